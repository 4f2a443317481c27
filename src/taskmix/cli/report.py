"""``taskmix report``: what a folder tells, as one page."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from taskmix.cli.flags import parse
from taskmix.cli.output import Screen
from taskmix.reporting.report import report, watch


@dataclasses.dataclass(frozen=True)
class ReportFlags:
    """Write one HTML file about a run, a comparison or a table; it needs no network."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder that `taskmix run`, `compare` or `reproduce` wrote, whether it has ended or not."""
    out: Path | None = None
    """File to write (default: report.html in the folder)."""
    watch: bool = False
    """Write it again and again until the run has ended; a browser that shows it keeps up."""


def main(arguments: Sequence[str]) -> None:
    flags = parse(ReportFlags, arguments, "taskmix report")
    screen = Screen()
    if flags.watch:
        watch(flags.run, flags.out, screen.say)
    else:
        screen.say(f"report: {report(flags.run, flags.out)}")
