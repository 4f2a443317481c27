"""``taskmix compare``: several methods, several seeds, one stream."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from taskmix.cli.flags import Flat, first_argument, parse
from taskmix.cli.output import EXPERIMENTS, console_for, show
from taskmix.experiments import METHODS, Regression, build_learner, compare, method, run_method
from taskmix.report import loss_figure, read_runs, responsibility_figure
from taskmix.training import Settings
from taskmix.training.loop import check_seeds
from taskmix.training.run_folder import claim, write_json


@dataclasses.dataclass(frozen=True)
class SeveralFlags:
    """What every command that trains several methods can be told."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """One run of each method per seed, trained side by side."""
    out: Path | None = None
    """Folder to create for the results (default: runs/NAME)."""
    quiet: bool = False
    """Say nothing while training."""
    experiment: Annotated[Regression, Flat] = Regression()
    training: Annotated[Settings, Flat] = Settings()


@dataclasses.dataclass(frozen=True)
class CompareFlags(SeveralFlags):
    """Train several methods on the same stream."""

    methods: tuple[str, ...] = tuple(METHODS)
    """Some of those that `taskmix methods` lists."""


def main(arguments: Sequence[str]) -> None:
    name = first_argument(arguments, "experiment", EXPERIMENTS, "taskmix compare")
    flags = parse(CompareFlags, arguments[1:], f"taskmix compare {name}")
    out = flags.out or Path("runs", f"compare-{name}")
    comparison = compare_methods(name, flags.methods, flags, out)
    show(Console(), comparison, out, draw(out, flags.methods))


def compare_methods(
    experiment: str, methods: Sequence[str], flags: SeveralFlags, out: Path
) -> dict[str, Any]:
    """Train every method on every seed and write what came out."""
    if not methods or len(set(methods)) != len(methods):
        raise ValueError(f"--methods is {list(methods)}; name at least one, and each once.")
    chosen = [method(name) for name in methods]
    settings = flags.experiment.learner_settings()
    learners = {one.name: build_learner(one.build, settings, {}) for one in chosen}
    check_seeds(flags.seeds)
    # Whatever is wrong with the stream is said before the folder exists.
    flags.experiment.stream()
    claim(out)
    summaries = []
    for name, learner in learners.items():
        summaries += run_method(
            flags.experiment,
            {"experiment": experiment, "method": name, "rule": "ours"},
            learner,
            flags.seeds,
            partial(_folder, out / name),
            flags.training,
            console_for(flags.quiet),
        )
    told = {one.name: one.told.value for one in chosen}
    comparison = compare(experiment, told, summaries)
    write_json(out / "comparison.json", comparison)
    return comparison


def _folder(parent: Path, seed: int) -> Path:
    return parent / f"seed-{seed}"


def draw(out: Path, methods: Sequence[str]) -> list[Path]:
    """Errors of all methods in one figure, responsibilities in one figure a method."""
    runs = read_runs(out)
    figures = list(loss_figure(runs, out / "figures" / "loss"))
    for name in methods:
        own = [run for run in runs if run.method == name]
        figures += responsibility_figure(own, out / "figures" / f"responsibilities-{name}")
    return figures
