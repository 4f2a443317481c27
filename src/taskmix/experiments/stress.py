"""Streams of every kind that one default configuration has to cope with, and what must be true.

The learner is never told which stream it is on. Settings are chosen on seeds 0 to 4, and what is
reported is of ``SEEDS``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from typing import Any, Literal

from taskmix.experiments import criteria
from taskmix.experiments.criteria import Criterion, JudgedRun, Verdict, verdict
from taskmix.experiments.outcome import Outcome
from taskmix.experiments.regression import Regression
from taskmix.experiments.shared import Shared
from taskmix.names import unknown
from taskmix.streams import (
    FunctionStream,
    Schedule,
    consecutive,
    gradual,
    interleaved,
    paper_stream,
    recurring,
)
from taskmix.training import Settings

OURS = "nonparametric"
ONE_CLUSTER = "alpaca-replay"
"""One cluster with a reservoir."""
TOLD = "alpaca-per-family"
"""One cluster per family, told which."""

SEEDS = tuple(range(10, 20))
PAPER = ("polynomial", "sinusoid", "sawtooth")
SIX = ("polynomial", "sinusoid", "absolute-value", "step", "bump", "sawtooth")
WITH_JUMPS = ("step", "sawtooth")
NOISE_SHARE = 0.02
FALSE_ALARMS = 1.0
"""Per 5000 iterations, at most."""
CLUSTER_WORTH = 0.01
"""Part of the error of one cluster by which each further one has to lower it."""
SHORTER = 5
"""How many times shorter the streams of the small scale are."""

Scale = Literal["small", "full"]


@dataclasses.dataclass(frozen=True)
class StressStream:
    """A stream with what is asked of a learner on it."""

    name: str
    point: int
    """Of the list of promises in docs/results.md."""
    stream: FunctionStream
    criteria: tuple[Criterion, ...]
    rivals: tuple[str, ...] = ()
    """Methods that the criteria compare with."""
    beside: str | None = None
    """Another stream that the criteria compare with."""
    most_seeds: int | None = None

    @property
    def methods(self) -> tuple[str, ...]:
        return (OURS, *self.rivals)


@dataclasses.dataclass(frozen=True)
class StressExperiment:
    """What every method on a stream shares: the settings of the regression."""

    functions: FunctionStream

    @staticmethod
    def at(scale: Scale, stream: FunctionStream) -> StressExperiment:
        return StressExperiment(stream if scale == "full" else shortened(stream, SHORTER))

    def stream(self) -> FunctionStream:
        return self.functions

    def training(self) -> Settings:
        return Settings(evaluate_every=500, test_tasks=200)

    def facts(self) -> dict[str, Any]:
        return {}

    def shared(self) -> Shared:
        families = len(self.functions.families)
        return dataclasses.replace(Regression().shared(), families=families)


def shortened(stream: FunctionStream, times: int) -> FunctionStream:
    """The same with everything that takes time so many times shorter.

    >>> shortened(paper_stream(), 100).schedule.lengths
    (40, 30, 25)
    """
    schedule = dataclasses.replace(
        stream.schedule,
        lengths=tuple(max(length // times, 1) for length in stream.schedule.lengths),
        transition=stream.schedule.transition // times,
    )
    return dataclasses.replace(stream, schedule=schedule, drift=max(stream.drift // times, 1))


def chosen(names: Sequence[str]) -> dict[str, StressStream]:
    """Streams by name, with those that they are compared with; all of them if none is named."""
    for name in names:
        if name not in STREAMS:
            raise unknown("stress stream", name, STREAMS)
    if len(set(names)) != len(names):
        raise ValueError(f"streams are {list(names)}; name each stream once.")
    asked = set(names or STREAMS)
    asked |= {beside for name in asked if (beside := STREAMS[name].beside)}
    return {name: stream for name, stream in STREAMS.items() if name in asked}


def verdicts(name: str, outcomes: Mapping[str, Iterable[Outcome]]) -> list[Verdict]:
    """Judge one stream by the ``outcomes`` of all streams that it needs."""
    stress = STREAMS[name]
    by_seed: dict[int, dict[str, Outcome]] = {}
    for outcome in outcomes[name]:
        by_seed.setdefault(outcome.seed, {})[outcome.method] = outcome
    for outcome in outcomes[stress.beside] if stress.beside else ():
        if outcome.method == OURS and outcome.seed in by_seed:
            by_seed[outcome.seed][stress.beside or ""] = outcome
    trials = [JudgedRun(runs[OURS], runs) for runs in by_seed.values()]
    return [verdict(criterion, trials) for criterion in stress.criteria]


def order_name(order: Sequence[str]) -> str:
    """Of the stream with these families one after the other, phases of 2500."""
    return f"order-{'-'.join(order)}"


_CLEAN = order_name(PAPER)

_ORDERS = (
    Criterion("mean error", criteria.mean_error, most=1.05),
    Criterion("polynomial error", criteria.error_of("polynomial"), most=0.25),
    Criterion("sinusoid error", criteria.error_of("sinusoid"), most=0.05),
    Criterion("NMI", criteria.nmi, least=0.7),
    Criterion("purity", criteria.purity, least=0.85),
    Criterion("own cluster, end / phase end", criteria.own_cluster_growth, most=1.02, share=1.0),
    Criterion("clusters", criteria.clusters, most=6.0, share=0.9),
    Criterion("batches to alarm", criteria.batches_to_alarm, most=3.0, share=1.0),
    Criterion("coverage while active", criteria.coverage_when_active, most=0.93, least=0.87),
    Criterion("coverage at the end", criteria.coverage_at_end, most=0.93, least=0.87),
    Criterion("coverage of the unseen", criteria.coverage_before_seen, least=0.8),
)
_MIXED = (
    Criterion("mean error", criteria.mean_error, most=1.10),
    Criterion("NMI", criteria.nmi, least=0.7),
)
_RECURRING = (
    Criterion("survivors born in round 2", criteria.born_in_second_round, most=0.0, share=1.0),
    Criterion("batches to return", criteria.batches_to_return, most=5.0, share=1.0),
)
_SIX = (
    Criterion("mean error / told", criteria.mean_error_against(TOLD), most=1.25),
    Criterion("purity", criteria.purity, least=0.7),
    Criterion("clusters", criteria.clusters, most=14.0, share=1.0),
)
_SIX_KEPT = Criterion(
    "own cluster, end / phase end", criteria.own_cluster_growth, most=1.05, share=1.0
)
_STATIONARY = (
    Criterion("passing births per 5000", criteria.passing_births, most=1.0, share=1.0),
    Criterion("false alarms per 5000", criteria.false_alarms, most=FALSE_ALARMS),
)
_ONE_CLUSTER = Criterion("clusters", criteria.clusters, most=1.0, share=1.0)
_WORTH = Criterion(
    "gain per further cluster",
    criteria.gain_per_cluster(ONE_CLUSTER),
    least=CLUSTER_WORTH,
    share=1.0,
)
_NOTICED = Criterion("batches to alarm", criteria.batches_to_alarm, most=100.0, share=0.9)
_NOT_WORSE = Criterion("error / one cluster", criteria.prediction_against(ONE_CLUSTER), most=1.05)


def _orders() -> Iterable[StressStream]:
    yield StressStream("paper", 1, paper_stream(), _ORDERS)
    for order in permutations(PAPER):
        functions = FunctionStream(consecutive(order, (2500,) * 3))
        yield StressStream(order_name(order), 1, functions, _ORDERS)


def _mixed() -> Iterable[StressStream]:
    streams = {
        "interleaved": FunctionStream(interleaved(PAPER, 6000)),
        "interleaved-4-tasks": FunctionStream(interleaved(PAPER, 10_000), tasks=4),
        "gradual": FunctionStream(gradual(PAPER, (2500,) * 3, transition=1000)),
        "pure-to-mixed": FunctionStream(Schedule((PAPER[:1], PAPER), (2000, 6000))),
    }
    for name, functions in streams.items():
        yield StressStream(name, 2, functions, _MIXED)


def _again_and_many() -> Iterable[StressStream]:
    again = FunctionStream(recurring(PAPER, (1500,) * 3))
    yield StressStream("recurring", 3, again, _RECURRING)
    twice = FunctionStream(recurring(SIX, (1500,) * 6))
    yield StressStream("six-twice", 4, twice, (*_SIX, _SIX_KEPT), (TOLD,))
    at_once = FunctionStream(interleaved(SIX, 9000))
    yield StressStream("six-interleaved", 4, at_once, _SIX, (TOLD,))


def _stationary() -> Iterable[StressStream]:
    for family in SIX:
        jumps = family in WITH_JUMPS
        yield StressStream(
            f"stationary-{family}",
            5,
            FunctionStream(consecutive((family,), (20_000,))),
            (_WORTH if jumps else _ONE_CLUSTER, *_STATIONARY),
            (ONE_CLUSTER,) if jumps else (),
            most_seeds=3,
        )


def _small_shifts() -> Iterable[StressStream]:
    louder = FunctionStream(consecutive(("sinusoid", "loud-sinusoid"), (2500, 2500)))
    yield StressStream("louder", 6, louder, (_NOTICED, _NOT_WORSE), (ONE_CLUSTER,))
    noisier = FunctionStream(consecutive(("sinusoid", "noisy-sinusoid"), (2500, 2500)), noise=0.1)
    yield StressStream("noisier", 6, noisier, (_NOTICED, _NOT_WORSE), (ONE_CLUSTER,))
    # 1000 iterations are left after the drift.
    drift = FunctionStream(consecutive(("sinusoid", "drifting-sinusoid"), (2500, 3000)), drift=2000)
    yield StressStream("drift", 6, drift, (_NOT_WORSE,), (ONE_CLUSTER,))


def _noise() -> Iterable[StressStream]:
    clean = consecutive(PAPER, (2500,) * 3)
    speckled = FunctionStream(dataclasses.replace(clean, rare=(("noise", NOISE_SHARE),)))
    of_speckled = (
        Criterion("clusters of noise", criteria.noise_clusters(NOISE_SHARE), most=0.0, share=1.0),
        Criterion("mean error / clean stream", criteria.mean_error_against(_CLEAN), most=1.05),
    )
    yield StressStream("noise-tasks", 6, speckled, of_speckled, beside=_CLEAN)
    against_told = Criterion("mean error / told", criteria.mean_error_against(TOLD), most=1.3)
    noisy = FunctionStream(clean, noise=0.3)
    yield StressStream("noise-0.3", 6, noisy, (against_told,), (TOLD,))


STREAMS: Mapping[str, StressStream] = {
    stress.name: stress
    for group in (_orders, _mixed, _again_and_many, _stationary, _small_shifts, _noise)
    for stress in group()
}
"""Every stream by its name."""
