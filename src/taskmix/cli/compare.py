"""``taskmix compare``: several methods, several seeds, one stream."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from taskmix.cli.flags import Flat, first_argument, parse
from taskmix.cli.interruptions import interruptible, owned
from taskmix.cli.output import Screen, show
from taskmix.cli.settings import chosen_experiment, parsed_experiment, with_experiment
from taskmix.experiments import EXPERIMENTS, Experiment, methods_for
from taskmix.experiments.comparison import ComparisonPlan, planned
from taskmix.experiments.group import Keeping
from taskmix.experiments.launching import Launcher
from taskmix.reporting import comparison_figures
from taskmix.training.workers import request_for


@dataclasses.dataclass(frozen=True)
class SeveralFlags:
    """What every command that trains several methods can be told."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """One run of each method per seed, trained side by side."""
    out: Path | None = None
    """Folder to create for the results, or to go on in (default: runs/NAME)."""
    keeping: Annotated[Keeping, Flat] = Keeping()
    workers: int = 1
    """Processes to share methods and seeds out to; one per core is best."""
    quiet: bool = False
    """Say nothing while training."""


@dataclasses.dataclass(frozen=True)
class CompareFlags(SeveralFlags):
    """Train several methods on the same stream."""

    methods: tuple[str, ...] = ()
    """Some of those that `taskmix methods` lists; NAME:paper for a paper's own rule, mixture:4 for
    four components, NAME:bayesian-head for a task model, NAME:meta_rate=0.01 for any setting, or
    several of these (default: all that can do the experiment)."""
    launcher: Annotated[Launcher, Flat] = Launcher()


def main(arguments: Sequence[str]) -> None:
    name = first_argument(arguments, "experiment", EXPERIMENTS, "taskmix compare")
    default = chosen_experiment(name, arguments[1:])
    asked_for = with_experiment(CompareFlags, default)
    flags: Any = parse(asked_for, arguments[1:], f"taskmix compare {name}")
    experiment = parsed_experiment(default, flags)
    out = flags.out or Path("runs", f"compare-{name}")
    methods = flags.methods or methods_for(experiment.shared().likelihood)
    plan = dataclasses.replace(plan_of(name, methods, experiment, flags), launcher=flags.launcher)
    request = request_for(plan.workers)
    with owned(out, ["compare", *arguments]), interruptible(out, request):
        comparison = plan.train(out, request)
    show(Screen(), comparison, out, comparison_figures(out))


def plan_of(
    name: str, methods: Sequence[str], experiment: Experiment, flags: Any
) -> ComparisonPlan:
    """What ``SeveralFlags`` with those of an experiment ask for."""
    return planned(
        methods,
        experiment,
        flags.seeds,
        flags.training,
        flags.keeping,
        flags.workers,
        flags.quiet,
        name,
    )
