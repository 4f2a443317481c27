"""``taskmix reproduce``: the figures and the table of the paper, and the stress streams."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from taskmix.cli.compare import SeveralFlags
from taskmix.cli.flags import first_argument, parse
from taskmix.cli.interruptions import interruptible, owned
from taskmix.cli.output import Screen, show, show_paths
from taskmix.cli.settings import chosen_experiment, parsed_experiment, with_experiment
from taskmix.experiments.image_families import GLYPHS
from taskmix.experiments.stress import SEEDS
from taskmix.reporting import shot_table
from taskmix.reporting.drawn import DRAWN, draw_figure
from taskmix.reporting.reproducing import (
    FIGURES,
    Training,
    figure_plan,
    stress_plans,
    table_plans,
    trained_figure,
    trained_table,
)
from taskmix.reporting.stress import stress_table
from taskmix.training.workers import request_for

TABLE, STRESS = "table-1", "stress"


@dataclasses.dataclass(frozen=True)
class PaperTableFlags(SeveralFlags):
    """Train what the paper's table compares, once for each number of shots."""

    shots: tuple[int, ...] = (1, 5)
    """Support images of a class: a column of the table each."""


@dataclasses.dataclass(frozen=True)
class StressFlags(SeveralFlags):
    """Train on streams of every kind, and say which of the criteria are reached."""

    streams: tuple[str, ...] = ()
    """Names of streams, as results/stress/README.md lists them (default: all)."""
    seeds: tuple[int, ...] = SEEDS
    """One run per seed and method; stationary streams take the first three."""
    scale: Literal["small", "full"] = "full"
    """small: a fifth of the length, to see that all works; its bounds are those of the full."""


@dataclasses.dataclass(frozen=True)
class DrawnFlags:
    """Draw a figure of the paper that shows its data and no run."""

    out: Path | None = None
    """Folder to create for the picture (default: runs/NAME)."""
    data: str = GLYPHS
    """For the filters: a folder that `taskmix data prepare` wrote, or `glyphs`."""
    split: str = "val"
    """The split whose classes are shown."""


def main(arguments: Sequence[str]) -> None:
    known = (*DRAWN, *FIGURES, TABLE, STRESS)
    name = first_argument(arguments, "figure or table", known, "taskmix reproduce")
    arguments = list(arguments[1:])
    if name == TABLE:
        _table(arguments)
    elif name == STRESS:
        _stress(arguments)
    elif name in DRAWN:
        _drawn(name, arguments)
    else:
        _figure(name, arguments)


def _figure(name: str, arguments: Sequence[str]) -> None:
    default = chosen_experiment(FIGURES[name].experiment, arguments)
    flags: Any = parse(
        with_experiment(SeveralFlags, default), arguments, f"taskmix reproduce {name}"
    )
    out = flags.out or Path("runs", name)
    plan = figure_plan(name, _training(flags), parsed_experiment(default, flags))
    request = request_for(flags.workers)
    with owned(out, ["reproduce", name, *arguments]), interruptible(out, request):
        done = trained_figure(name, plan, out, request)
    show(Screen(), done.comparisons[plan.name], out, done.figures)


def _drawn(name: str, arguments: Sequence[str]) -> None:
    flags = parse(DrawnFlags, arguments, f"taskmix reproduce {name}")
    out = flags.out or Path("runs", name)
    show_paths(Screen(), out, draw_figure(name, out, flags.data, flags.split))


def _table(arguments: Sequence[str]) -> None:
    """One comparison for each number of shots, and a table of them all."""
    default = chosen_experiment("few-shot", arguments)
    flags: Any = parse(
        with_experiment(PaperTableFlags, default), arguments, f"taskmix reproduce {TABLE}"
    )
    if any(argument.split("=")[0] == "--shot" for argument in arguments):
        raise ValueError(f"{TABLE} has a column for each of --shots; give that instead of --shot.")
    out = flags.out or Path("runs", TABLE)
    plans = table_plans(flags.shots, _training(flags), parsed_experiment(default, flags))
    request = request_for(flags.workers)
    with owned(out, ["reproduce", TABLE, *arguments]), interruptible(out, request):
        done = trained_table(plans, out, request)
    console = Screen()
    console.print(shot_table(done.comparisons))
    show_paths(console, out, [])


def _stress(arguments: Sequence[str]) -> None:
    """One comparison for each stream, and a table of what was reached on all of them."""
    flags = parse(StressFlags, arguments, f"taskmix reproduce {STRESS}")
    out = flags.out or Path("runs", STRESS)
    plans = stress_plans(flags.streams, flags.scale, _training(flags))
    request = request_for(flags.workers)
    with owned(out, ["reproduce", STRESS, *arguments]), interruptible(out, request):
        done = plans.train(out, request)
    console = Screen()
    console.print(stress_table(done.results))
    show_paths(console, out, done.figures)


def _training(flags: Any) -> Training:
    """What ``SeveralFlags``, with or without those of an experiment, ask for."""
    settings = getattr(flags, "training", None)
    return Training(flags.seeds, settings, flags.keeping, flags.workers, flags.quiet)
