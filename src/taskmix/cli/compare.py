"""``taskmix compare``: several methods, several seeds, one stream."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from taskmix.cli.flags import Flat, first_argument, parse
from taskmix.cli.interruptions import interruptible, owned
from taskmix.cli.output import Screen, console_for, show
from taskmix.cli.settings import chosen_experiment, with_experiment
from taskmix.experiments import (
    EXPERIMENTS,
    Experiment,
    build_learner,
    compare,
    method,
    methods_for,
    run_method,
)
from taskmix.experiments.group import Keeping
from taskmix.experiments.methods import TASK_MODELS, learner_class
from taskmix.experiments.summary import Summary
from taskmix.files import inside, write_json
from taskmix.learner import Learner
from taskmix.report import loss_figure, overview_figure, read_runs, responsibility_figure
from taskmix.training import Settings
from taskmix.training.loop import check_seeds
from taskmix.training.watch import Request, StopRequest
from taskmix.training.workers import Job, shared_out, shared_request


@dataclasses.dataclass(frozen=True)
class SeveralFlags:
    """What every command that trains several methods can be told."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """One run of each method per seed, trained side by side."""
    out: Path | None = None
    """Folder to create for the results, or to go on in (default: runs/NAME)."""
    keeping: Annotated[Keeping, Flat] = Keeping()
    workers: int = 1
    """Processes to share methods and seeds out to; one a core is best."""
    quiet: bool = False
    """Say nothing while training."""


@dataclasses.dataclass(frozen=True)
class CompareFlags(SeveralFlags):
    """Train several methods on the same stream."""

    methods: tuple[str, ...] = ()
    """Some of those that `taskmix methods` lists; NAME:paper for a paper's own rule, mixture:4 for
    four components, NAME:bayesian-head for a task model, mixture:4:bayesian-head for both
    (default: all that can do the experiment)."""


def main(arguments: Sequence[str]) -> None:
    name = first_argument(arguments, "experiment", EXPERIMENTS, "taskmix compare")
    asked_for = with_experiment(CompareFlags, chosen_experiment(name, arguments[1:]))
    flags: Any = parse(asked_for, arguments[1:], f"taskmix compare {name}")
    out = flags.out or Path("runs", f"compare-{name}")
    methods = flags.methods or methods_for(flags.experiment.learner_settings()["likelihood"])
    plan = planned(name, methods, flags)
    request = plan.request()
    with owned(out, ["compare", *arguments]), interruptible(out, request):
        comparison = plan.train(out, request)
    show(Screen(), comparison, out, draw(out, methods, comparison))


@dataclasses.dataclass(frozen=True)
class Plan:
    """Methods and seeds to be trained; everything that can be wrong with them has been checked."""

    experiment: str
    learners: Mapping[str, Learner]
    flags: Any
    """``SeveralFlags`` with an experiment."""

    def request(self) -> Request:
        """One to stop, which all workers hear."""
        return StopRequest() if self.flags.workers == 1 else shared_request()

    def train(self, out: Path, request: Request) -> dict[str, Any]:
        """Train every method on every seed and write what came out.

        Runs that have ended are left as they are, those that were interrupted go on.
        """
        flags, workers = self.flags, self.flags.workers
        # Only what a worker process can be sent: the class of the flags is made on the spot.
        console = partial(console_for, flags.quiet, plain=workers > 1)
        train = partial(
            _train, self.experiment, flags.experiment, flags.training, flags.keeping, out, console
        )
        groups = [flags.seeds[first::workers] for first in range(workers)]
        jobs = [(name, one, seeds) for name, one in self.learners.items() for seeds in groups]
        jobs = [job for job in jobs if job[-1]]
        if workers == 1:
            summaries = [train(*job, request) for job in jobs]
        else:
            named = [
                Job(f"{name}, seeds {' '.join(map(str, seeds))}", partial(train, name, one, seeds))
                for name, one, seeds in jobs
            ]
            summaries = shared_out(named, workers, request)
        told = {name: learner.told.value for name, learner in self.learners.items()}
        comparison = compare(self.experiment, told, chain.from_iterable(summaries))
        write_json(out / "comparison.json", comparison)
        return comparison


def planned(experiment: str, methods: Sequence[str], flags: Any) -> Plan:
    """Whatever is wrong is said here, before any folder exists."""
    if not methods or len(set(methods)) != len(methods):
        raise ValueError(f"--methods is {list(methods)}; name at least one, and each once.")
    if flags.workers < 1:
        raise ValueError(f"--workers is {flags.workers}; it must be at least 1.")
    settings = flags.experiment.learner_settings()
    learners = {name: variant(name, settings) for name in methods}
    check_seeds(flags.seeds)
    flags.experiment.stream()
    return Plan(experiment, learners, flags)


def variant(name: str, settings: Mapping[str, Any]) -> Learner:
    """``mixture:4:bayesian-head``: after the method's name, in any order, a number of components,
    a rule (``paper``) and a task model, each at most once."""
    base, *parts = name.split(":")
    numbers = [part for part in parts if part.isdigit()]
    models = [part for part in parts if part in TASK_MODELS]
    rules = [part for part in parts if part not in {*numbers, *models}]
    if max(map(len, (numbers, models, rules))) > 1:
        raise ValueError(f"{name} says the same thing twice; give each part once.")
    build = method(base).rule(rules[0] if rules else "ours")
    fields = {field.name for field in dataclasses.fields(learner_class(build))}
    if numbers and "components" not in fields:
        raise ValueError(f"{base} has no number of components; leave {numbers[0]} out of {name}.")
    own = {"components": int(numbers[0])} if numbers else {}
    return build_learner(build, settings, own, models[0] if models else None)


def _train(
    label: str,
    experiment: Experiment,
    training: Settings,
    keeping: Keeping,
    out: Path,
    console: Callable[[], Console],
    name: str,
    learner: Learner,
    seeds: Sequence[int],
    request: Request,
) -> list[Summary]:
    labels = {"experiment": label, "method": name}
    folder = partial(_folder, out, name.replace(":", "-"))
    return run_method(
        experiment, labels, learner, seeds, folder, training, console(), keeping, request
    )


def _folder(out: Path, method: str, seed: int) -> Path:
    return inside(out, method, f"seed-{seed}")


def draw(out: Path, methods: Sequence[str], comparison: Mapping[str, Any]) -> list[Path]:
    """All methods at the end and over time, and responsibilities in one figure a method."""
    runs, folder = read_runs(out), inside(out, "figures")
    figures = list(loss_figure(runs, folder / runs[0].measure))
    if len(methods) > 1 and len(runs[0].phases) > 1:
        figures += overview_figure(comparison, folder / "overview")
    for name in methods:
        own = [run for run in runs if run.method == name]
        path = folder / f"responsibilities-{name.replace(':', '-')}"
        figures += responsibility_figure(own, path)
    return figures
