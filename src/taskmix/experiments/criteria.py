"""What has to be true of runs, measured seed by seed and judged over seeds.

A measure gives one number per family, or per shift, of a seed. A criterion bounds them all.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from taskmix.evaluation import last_active, shifts
from taskmix.evaluation.history import returns
from taskmix.experiments.outcome import Outcome, number

Values = Mapping[str, float]
"""A number per family or shift; the empty name where there is one number only."""

FLOOR = 0.01
"""Errors below it count as it where they are divided: predicting zero costs 280 times as much or
more, and the ratio of two errors that are next to nothing says nothing."""


@dataclasses.dataclass(frozen=True)
class JudgedRun:
    """One seed: the run to be judged, and those it is compared with, by name."""

    ours: Outcome
    others: Mapping[str, Outcome] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Criterion:
    """Bounds for a measure."""

    what: str
    measure: Callable[[JudgedRun], Values]
    most: float = math.inf
    least: float = -math.inf
    share: float | None = None
    """The share of seeds that have to keep the bounds; None: the mean over seeds has to."""

    @property
    def bound(self) -> str:
        """In words.

        >>> Criterion("clusters", clusters, most=6.0, share=0.9).bound
        'at most 6, 90 % of seeds'
        """
        if math.isinf(self.least):
            bounds = f"at most {self.most:g}"
        elif math.isinf(self.most):
            bounds = f"at least {self.least:g}"
        else:
            bounds = f"{self.least:g} to {self.most:g}"
        if self.share is None:
            return f"{bounds}, mean"
        seeds = "every seed" if self.share == 1 else f"{100 * self.share:g} % of seeds"
        return f"{bounds}, {seeds}"

    def excess(self, value: float) -> float:
        """How far a number is out of bounds; at most 0 if it is not, infinite if it is none."""
        if math.isnan(value):
            return math.inf
        # Infinity less infinity is no number, and where there is no bound none is broken.
        above = -math.inf if math.isinf(self.most) else value - self.most
        below = -math.inf if math.isinf(self.least) else self.least - value
        return max(above, below)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A criterion, what was measured where it came out worst, and whether it was reached."""

    what: str
    bound: str
    where: str
    """The family or shift that the numbers are of, if there are several."""
    mean: float
    spread: float
    """Standard deviation over seeds; NaN for a single one."""
    worst: float
    worst_seed: int
    kept: int
    """Seeds within the bounds."""
    seeds: int
    by_seed: bool
    """Whether seeds are judged one by one, and not their mean."""
    reached: bool


def verdict(criterion: Criterion, trials: Sequence[JudgedRun]) -> Verdict:
    """What a criterion comes to over seeds."""
    measured = [criterion.measure(trial) for trial in trials]
    names = list(measured[0])
    means = {name: _mean([one[name] for one in measured]) for name in names}
    kept = [all(criterion.excess(value) <= 0 for value in one.values()) for one in measured]
    if criterion.share is None:
        reached = all(criterion.excess(mean) <= 0 for mean in means.values())
        where = max(names, key=lambda name: criterion.excess(means[name]))
    else:
        reached = sum(kept) >= criterion.share * len(trials) - 1e-9
        where = max(names, key=lambda name: max(criterion.excess(one[name]) for one in measured))
    values = [one[where] for one in measured]
    worst = max(range(len(values)), key=lambda place: criterion.excess(values[place]))
    return Verdict(
        criterion.what,
        criterion.bound,
        where,
        means[where],
        _spread(values),
        values[worst],
        trials[worst].ours.seed,
        sum(kept),
        len(trials),
        criterion.share is not None,
        reached,
    )


def mean_error(trial: JudgedRun) -> Values:
    """Mean over the families of the error at the end."""
    return {"": trial.ours.mean_error}


def error_of(family: str) -> Callable[[JudgedRun], Values]:
    """Error of one family at the end."""
    return lambda trial: {"": trial.ours.errors[family]}


def nmi(trial: JudgedRun) -> Values:
    return {"": trial.ours.summary["assignment"]["nmi"]}


def purity(trial: JudgedRun) -> Values:
    return {"": trial.ours.summary["assignment"]["purity"]}


def clusters(trial: JudgedRun) -> Values:
    return {"": float(trial.ours.summary["clusters"])}


def own_cluster_growth(trial: JudgedRun) -> Values:
    """Error of each family's own cluster at the end, as a multiple of that at its phase's end.

    Infinite if that cluster is gone.
    """
    grown = {}
    for family in trial.ours.families:
        own = trial.ours.summary["own_cluster"][family]
        if own is None or own["final"] is None:
            grown[family] = math.inf
        else:
            grown[family] = ratio(own["final"], own["at_phase_end"])
    return grown


def batches_to_alarm(trial: JudgedRun) -> Values:
    """Batches of each shift up to the one that raised the alarm; infinite if none did."""
    alarms = trial.ours.summary["alarms"]
    return {
        " and ".join(shift.families): min(
            (alarm - shift.start + 1.0 for alarm in alarms if shift.start <= alarm < shift.stop),
            default=math.inf,
        )
        for shift in shifts(trial.ours.phases)
    }


def batches_to_return(trial: JudgedRun) -> Values:
    """Batches of each return up to the one from which the family's old cluster carries it."""
    again = [trial.ours.phases[index].families[0] for index in returns(trial.ours.phases)]
    delays = trial.ours.summary["return_delays"]
    return {
        family: math.inf if delay is None else delay + 1.0
        for family, delay in zip(again, delays, strict=True)
    }


def born_in_second_round(trial: JudgedRun) -> Values:
    """Clusters alive at the end that were born after every family had had its phase."""
    (first, *_) = returns(trial.ours.phases)
    start = trial.ours.phases[first].start
    return {"": float(sum(birth >= start for birth in trial.ours.lasting_births()))}


def passing_births(trial: JudgedRun) -> Values:
    """Births that did not last, per 5000 iterations."""
    passed = len(trial.ours.summary["spawns"]) - len(trial.ours.lasting_births())
    return {"": 5000 * passed / trial.ours.summary["iterations"]}


def false_alarms(trial: JudgedRun) -> Values:
    """Alarms that answer no shift, per 5000 iterations."""
    false = trial.ours.summary["alarm_detection"]["false"]
    return {"": 5000 * false / trial.ours.summary["iterations"]}


def coverage_when_active(trial: JudgedRun) -> Values:
    """Coverage of 90 % intervals at the end of each family's last phase."""
    return {
        family: _coverage(trial.ours.at(last_active(trial.ours.phases, family).stop), family)
        for family in trial.ours.families
    }


def coverage_at_end(trial: JudgedRun) -> Values:
    return {family: _coverage(trial.ours.metrics[-1], family) for family in trial.ours.families}


def coverage_before_seen(trial: JudgedRun) -> Values:
    """Coverage of families that have not occurred yet, at the end of each phase."""
    found: dict[str, float] = {}
    seen: set[str] = set()
    for phase in trial.ours.phases[:-1]:
        seen |= set(phase.families)
        found |= {
            f"{family} after {phase.families[0]}": _coverage(trial.ours.at(phase.stop), family)
            for family in trial.ours.families
            if family not in seen
        }
    return found


def noise_clusters(share: float) -> Callable[[JudgedRun], Values]:
    """Clusters alive at the end whose tasks are mostly noise, which has this ``share`` of all."""

    def measure(trial: JudgedRun) -> Values:
        last, families = trial.ours.metrics[-1]["families"], trial.ours.families
        taken = {name: np.array(last[name]["responsibilities"], float) for name in last}
        known = sum(taken[name] for name in families) * (1 - share) / len(families)
        return {"": float(np.sum(share * taken["noise"] > known))}

    return measure


def mean_error_against(other: str) -> Callable[[JudgedRun], Values]:
    """Mean error over families, as a multiple of another run's."""

    def measure(trial: JudgedRun) -> Values:
        return {"": ratio(trial.ours.mean_error, trial.others[other].mean_error)}

    return measure


def prediction_against(other: str) -> Callable[[JudgedRun], Values]:
    """Error of each family, at the end and on the stream itself, as a multiple of another's."""

    def measure(trial: JudgedRun) -> Values:
        ours, theirs = trial.ours, trial.others[other]
        at_end = {
            f"{family} at the end": ratio(ours.errors[family], theirs.errors[family])
            for family in ours.families
        }
        own, rival = ours.summary["prequential"], theirs.summary["prequential"]
        return at_end | {
            f"{family} in the stream": ratio(own[family], rival[family]) for family in ours.families
        }

    return measure


def gain_per_cluster(other: str) -> Callable[[JudgedRun], Values]:
    """By how much the error is below that of one cluster, per cluster more than one.

    Infinite for a single cluster, which has nothing to justify.
    """

    def measure(trial: JudgedRun) -> Values:
        more = trial.ours.summary["clusters"] - 1
        gain = 1 - ratio(trial.ours.mean_error, trial.others[other].mean_error)
        return {"": gain / more if more else math.inf}

    return measure


def ratio(error: float | None, other: float | None) -> float:
    """Of two errors, neither of them taken for less than the floor.

    >>> ratio(0.002, 0.0001), ratio(1.0, 0.5)
    (1.0, 2.0)
    """
    return max(number(error), FLOOR) / max(number(other), FLOOR)


def _coverage(line: Mapping[str, Any], family: str) -> float:
    return number(line["families"][family]["coverage"])


def _mean(values: Sequence[float]) -> float:
    return math.inf if math.inf in values else float(np.mean(values))


def _spread(values: Sequence[float]) -> float:
    if len(values) < 2 or not np.isfinite(values).all():
        return math.nan
    return float(np.std(values, ddof=1))
