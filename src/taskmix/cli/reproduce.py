"""``taskmix reproduce``: the figures of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from taskmix.cli.compare import SeveralFlags, compare_methods
from taskmix.cli.flags import first_argument, parse
from taskmix.cli.output import show
from taskmix.report import loss_figure, read_runs, responsibility_figure

FIGURES = {
    "figure-5": (("nonparametric", "mixture", "uniform", "maml"), loss_figure),
    "figure-6": (("nonparametric",), responsibility_figure),
}
"""Methods that a figure compares, and what draws it."""


def main(arguments: Sequence[str]) -> None:
    name = first_argument(arguments, "figure", FIGURES, "taskmix reproduce")
    flags = parse(SeveralFlags, arguments[1:], f"taskmix reproduce {name}")
    out = flags.out or Path("runs", name)
    methods, figure = FIGURES[name]
    comparison = compare_methods("regression", methods, flags, out)
    show(Console(), comparison, out, figure(read_runs(out), out / "figures" / name))
