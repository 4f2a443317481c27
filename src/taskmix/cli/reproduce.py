"""``taskmix reproduce``: the figures and the table of the paper."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from taskmix.cli.compare import SeveralFlags, planned
from taskmix.cli.flags import first_argument, parse
from taskmix.cli.interruptions import interruptible, owned
from taskmix.cli.output import show
from taskmix.cli.settings import chosen_experiment, with_experiment
from taskmix.report import loss_figure, read_runs, responsibility_figure, shot_table


@dataclasses.dataclass(frozen=True)
class Figure:
    """What a figure of the paper compares, and what draws it."""

    experiment: str
    methods: tuple[str, ...]
    draw: Callable[..., Any]


FIGURES = {
    "figure-5": Figure("regression", ("nonparametric", "mixture", "uniform", "maml"), loss_figure),
    "figure-6": Figure("regression", ("nonparametric",), responsibility_figure),
    "figure-8": Figure(
        "evolving-images",
        ("nonparametric", "task-aware", "mixture", "uniform", "maml"),
        loss_figure,
    ),
    "figure-9": Figure("evolving-images", ("nonparametric",), responsibility_figure),
}

TABLE = "table-1"
TABLE_METHODS = (
    *("matching", "meta-lstm", "prototypical", "maml", "mt-net", "platipus", "versa", "llama"),
    *("mixture:2", "mixture:3", "mixture:4", "mixture:5", "nonparametric"),
)
TABLE_SHOTS = (1, 5)


def main(arguments: Sequence[str]) -> None:
    name = first_argument(arguments, "figure or table", (*FIGURES, TABLE), "taskmix reproduce")
    experiment = "few-shot" if name == TABLE else FIGURES[name].experiment
    asked_for = with_experiment(SeveralFlags, chosen_experiment(experiment, arguments[1:]))
    flags: Any = parse(asked_for, arguments[1:], f"taskmix reproduce {name}")
    out = flags.out or Path("runs", name)
    command = ["reproduce", *arguments]
    if name == TABLE:
        _table(flags, out, command)
        return
    figure = FIGURES[name]
    plan = planned(experiment, figure.methods, flags)
    request = plan.request()
    with owned(out, command), interruptible(out, request):
        comparison = plan.train(out, request)
    show(Console(), comparison, out, figure.draw(read_runs(out), out / "figures" / name))


def _table(flags: Any, out: Path, command: Sequence[str]) -> None:
    """One comparison for each number of shots, and a table of them all."""
    plans = {}
    for shot in TABLE_SHOTS:
        experiment = dataclasses.replace(flags.experiment, shot=shot)
        of_shot = dataclasses.replace(flags, experiment=experiment)
        plans[shot] = planned("few-shot", TABLE_METHODS, of_shot)
    request = plans[TABLE_SHOTS[0]].request()
    with owned(out, command), interruptible(out, request):
        comparisons = {
            shot: plan.train(out / f"{shot}-shot", request) for shot, plan in plans.items()
        }
    console = Console()
    console.print(shot_table(comparisons))
    console.print(f"results: {out}", highlight=False, soft_wrap=True)
