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
    *("matching", "matching-simple", "meta-lstm", "prototypical", "maml", "fomaml"),
    *("mt-net", "t-net", "platipus", "versa", "llama"),
    *("mixture:2", "mixture:3", "mixture:4", "mixture:5", "nonparametric"),
)


@dataclasses.dataclass(frozen=True)
class TableFlags(SeveralFlags):
    """Train what the paper's table compares, once for each number of shots."""

    shots: tuple[int, ...] = (1, 5)
    """Support images of a class: a column of the table each."""


def main(arguments: Sequence[str]) -> None:
    name = first_argument(arguments, "figure or table", (*FIGURES, TABLE), "taskmix reproduce")
    arguments = list(arguments[1:])
    if name == TABLE:
        _table(arguments)
        return
    figure = FIGURES[name]
    asked_for = with_experiment(SeveralFlags, chosen_experiment(figure.experiment, arguments))
    flags: Any = parse(asked_for, arguments, f"taskmix reproduce {name}")
    out = flags.out or Path("runs", name)
    command = ["reproduce", name, *arguments]
    plan = planned(figure.experiment, figure.methods, flags)
    request = plan.request()
    with owned(out, command), interruptible(out, request):
        comparison = plan.train(out, request)
    show(Console(), comparison, out, figure.draw(read_runs(out), out / "figures" / name))


def _table(arguments: Sequence[str]) -> None:
    """One comparison for each number of shots, and a table of them all."""
    asked_for = with_experiment(TableFlags, chosen_experiment("few-shot", arguments))
    flags: Any = parse(asked_for, arguments, f"taskmix reproduce {TABLE}")
    if any(argument.split("=")[0] == "--shot" for argument in arguments):
        raise ValueError(f"{TABLE} has a column for each of --shots; give that instead of --shot.")
    if not flags.shots or len(set(flags.shots)) != len(flags.shots):
        raise ValueError(f"--shots is {list(flags.shots)}; name at least one, and each once.")
    out = flags.out or Path("runs", TABLE)
    plans = {}
    for shot in flags.shots:
        experiment = dataclasses.replace(flags.experiment, shot=shot)
        of_shot = dataclasses.replace(flags, experiment=experiment)
        plans[shot] = planned("few-shot", TABLE_METHODS, of_shot)
    request = plans[flags.shots[0]].request()
    with owned(out, ["reproduce", TABLE, *arguments]), interruptible(out, request):
        comparisons = {
            shot: plan.train(out / f"{shot}-shot", request) for shot, plan in plans.items()
        }
    console = Console()
    console.print(shot_table(comparisons))
    console.print(f"results: {out}", highlight=False, soft_wrap=True)
