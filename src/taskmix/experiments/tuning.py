"""One protocol to choose settings by: so many trials per method, on seeds of their own.

The search is Optuna's (T. Akiba et al.: Optuna. KDD 2019), which is an extra: ``taskmix[tune]``.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from taskmix.experiments.catalogue import Source, experiment_of
from taskmix.experiments.experiment import Experiment
from taskmix.experiments.group import Keeping
from taskmix.experiments.methods import method
from taskmix.experiments.recipes import Recipe
from taskmix.experiments.run import run_method
from taskmix.experiments.spaces import Between, Range, read_space, space_of
from taskmix.experiments.trials import Trial, read_trials, value_of, write_trials
from taskmix.experiments.variants import folder_name, variant
from taskmix.files import inside, write_json
from taskmix.streams import Stream
from taskmix.training import Settings
from taskmix.training.moments import check_seeds
from taskmix.training.run_folder import as_json
from taskmix.training.watch import Request, StopRequest


@dataclasses.dataclass(frozen=True)
class Tuned:
    """What a search has found.

    Parameters
    ----------
    name
        The method with its best settings, as ``compare`` takes it: ``ewc:strength=3.1``.
    settings
        The best settings.
    error
        Their error: the mean over seeds and families at the end of the stream.
    trials
        Settings that were tried, with the error of each; None where it was not finite.

    Examples
    --------
    >>> Tuned("maml:meta_rate=0.01", {"meta_rate": 0.01}, 2.5, ()).error
    2.5
    """

    name: str
    settings: Mapping[str, Any]
    error: float
    trials: Sequence[Mapping[str, Any]]


def tune(
    methods: Sequence[str],
    on: Source,
    out: str | Path,
    *,
    trials: int = 20,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    space: Sequence[str] = (),
    settings: Settings | None = None,
    keeping: Keeping | None = None,
    quiet: bool = True,
    request: Request | None = None,
) -> dict[str, Tuned]:
    """Choose the settings of methods, each with the same number of trials on the same seeds.

    The first trial is the method as it is; the others are drawn by Optuna's estimator of where
    good settings lie. The studies are kept: called again with the same folder, the search goes on
    where it was, and a trial that was interrupted goes on from its checkpoints. Report what was
    found on other seeds.

    Parameters
    ----------
    methods
        Names as ``taskmix methods`` lists them, perhaps with a rule, a task model or settings
        that are to stay (``"nonparametric:paper"``).
    on
        A stream, an experiment, or the name of one.
    out
        Folder to create, or to go on in: a study, and the runs of every trial, per method.
    trials
        Settings to try per method.
    seeds
        One run per trial and seed.
    space
        What to search instead of the usual: ``"worth=2..20"``, ``"refresh=average,density"``.
    settings
        How often runs are evaluated, and on how many tasks.
    keeping
        How often checkpoints are written.
    quiet
        Whether to say nothing while training.
    request
        By which the search may be asked to stop.

    Returns
    -------
    dict of str to Tuned
        By method; ``tuned.json`` in the folder says the same.

    Examples
    --------
    >>> tune([], "regression", "runs/none")
    Traceback (most recent call last):
    ValueError: methods are []; name at least one, and each once.
    """
    searches = planned_searches(methods, on, trials, seeds, space, settings, keeping, quiet)
    found: dict[str, Tuned] = {}
    for name, search in searches.items():
        found[name] = search.run(inside(Path(out), folder_name(name)), request or StopRequest())
        write_json(Path(out) / "tuned.json", described(found, trials, seeds))
    return found


def described(found: Mapping[str, Tuned], trials: int, seeds: Sequence[int]) -> dict[str, Any]:
    """What ``tuned.json`` holds."""
    return {
        "trials": trials,
        "seeds": list(seeds),
        "methods": {name: dataclasses.asdict(one) for name, one in found.items()},
    }


def planned_searches(
    methods: Sequence[str],
    on: Source,
    trials: int,
    seeds: Sequence[int],
    space: Sequence[str] = (),
    settings: Settings | None = None,
    keeping: Keeping | None = None,
    quiet: bool = True,
) -> dict[str, Search]:
    """Whatever is wrong is said here, before any folder exists."""
    if not methods or len(set(methods)) != len(methods):
        raise ValueError(f"methods are {list(methods)}; name at least one, and each once.")
    if trials < 1:
        raise ValueError(f"trials is {trials}; it must be at least 1.")
    check_seeds(seeds)
    _ = _optuna()
    _, experiment = experiment_of(on)
    stream = experiment.stream()
    searches = {}
    for name in methods:
        recipe = recipe_of(name)
        ranges = read_space(space, recipe) if space else space_of(recipe)
        # Settings that the name fixes are not searched.
        fixed = {part.split("=")[0].replace("-", "_") for part in name.split(":") if "=" in part}
        ranges = {setting: one for setting, one in ranges.items() if setting not in fixed}
        if not ranges:
            raise ValueError(f"There is nothing to search for {name}; name settings by space.")
        variant(name, experiment.shared())
        searches[name] = Search(
            name,
            ranges,
            experiment,
            stream,
            tuple(seeds),
            trials,
            settings or experiment.training(),
            keeping or Keeping(),
            quiet,
        )
    return searches


def recipe_of(name: str) -> Recipe:
    """The recipe of a method, perhaps with a rule, whatever else its name says."""
    base, *parts = name.split(":")
    return method(base).rule("paper" if "paper" in parts else "ours")


@dataclasses.dataclass(frozen=True)
class Search:
    """The search for one method's settings; everything that can be wrong has been checked."""

    name: str
    space: Mapping[str, Range]
    experiment: Experiment
    stream: Stream
    seeds: tuple[int, ...]
    trials: int
    settings: Settings
    keeping: Keeping
    quiet: bool

    def run(self, folder: Path, request: Request) -> Tuned:
        """Search, or go on, until there are as many trials as were asked for."""
        folder.mkdir(parents=True, exist_ok=True)
        tried = read_trials(folder, self._protocol(), self.space)
        optuna = _optuna()
        distributions = {name: _distribution(optuna, one) for name, one in self.space.items()}
        study = self._study(optuna, tried, distributions)
        while len(tried) < self.trials:
            # Seeded by how far it is, so that a search that goes on does not repeat itself.
            study.sampler = optuna.samplers.TPESampler(seed=len(study.trials))
            trial = study.ask(distributions)
            started = time.monotonic()
            error = self._error(trial.params, folder, request)
            seconds = round(time.monotonic() - started, 1)
            known = error if math.isfinite(error) else None
            tried.append({"settings": dict(trial.params), "error": known, "seconds": seconds})
            study.tell(trial, value_of(tried[-1]))
            write_trials(folder, self._protocol(), tried)
        best = min(tried, key=value_of)
        return Tuned(self._label(best["settings"]), best["settings"], value_of(best), tried)

    def _study(self, optuna: Any, tried: Sequence[Trial], distributions: Mapping[str, Any]) -> Any:
        """A study that knows what was tried; the method as it is comes first."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(study_name=self.name)
        for one in tried:
            study.add_trial(
                optuna.trial.create_trial(
                    params=dict(one["settings"]),
                    distributions=dict(distributions),
                    value=value_of(one),
                )
            )
        usual = self._usual()
        if not tried and usual is not None:
            study.enqueue_trial(usual)
        return study

    def _protocol(self) -> dict[str, Any]:
        """What a search was begun with, so that nothing else goes on in it."""
        return {
            "experiment": as_json(self.experiment),
            "seeds": list(self.seeds),
            "settings": as_json(self.settings),
            "space": {name: str(one) for name, one in self.space.items()},
        }

    def _usual(self) -> dict[str, Any] | None:
        """The settings of the method as it is; None if one of them is not among those searched."""
        learner = variant(self.name, self.experiment.shared())
        usual = {name: getattr(learner, name) for name in self.space}
        within = all(one.holds(usual[name]) for name, one in self.space.items())
        return usual if within else None

    def _error(self, settings: Mapping[str, Any], folder: Path, request: Request) -> float:
        """Mean over seeds and families of the error at the end."""
        label = self._label(settings)
        runs = inside(folder, folder_name(label))
        summaries = run_method(
            self.experiment,
            {"experiment": "tune", "method": label},
            variant(label, self.experiment.shared()),
            self.seeds,
            partial(_seed_folder, runs),
            self.settings,
            Console(quiet=self.quiet),
            self.keeping,
            request,
            self.stream,
        )
        errors = [
            np.nan if family["error"] is None else family["error"]
            for summary in summaries
            for family in summary["final"].values()
        ]
        return float(np.mean(errors))

    def _label(self, settings: Mapping[str, Any]) -> str:
        own = [f"{name}={_text(value)}" for name, value in sorted(settings.items())]
        return ":".join([self.name, *own])


def _seed_folder(runs: Path, seed: int) -> Path:
    return inside(runs, f"seed-{seed}")


def _text(value: Any) -> str:
    """As ``variant`` reads it again, to the last digit."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _distribution(optuna: Any, values: Range) -> Any:
    if not isinstance(values, Between):
        return optuna.distributions.CategoricalDistribution(values.values)
    if values.whole:
        return optuna.distributions.IntDistribution(int(values.low), int(values.high), log=True)
    return optuna.distributions.FloatDistribution(values.low, values.high, log=True)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ValueError(
            "The search needs Optuna; install it with: pip install 'taskmix[tune]'."
        ) from None
    return optuna
