"""``taskmix export``: what a run has learned, without the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from taskmix.cli.flags import parse
from taskmix.cli.output import Screen
from taskmix.experiments.sharing import export


@dataclasses.dataclass(frozen=True)
class ExportFlags:
    """Write what a run has learned as safetensors and JSON, for `taskmix.load` in Python."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder that `taskmix run` wrote."""
    out: Path
    """Folder to create."""


def main(arguments: Sequence[str]) -> None:
    flags = parse(ExportFlags, arguments, "taskmix export")
    export(flags.run, flags.out)
    Screen().say(f"model: {flags.out}")
