"""``taskmix resume``: the command that began a folder, once more."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated

import tyro

from taskmix.cli.flags import parse
from taskmix.cli.interruptions import recalled


@dataclasses.dataclass(frozen=True)
class ResumeFlags:
    """Go on with a run, a comparison or a figure that was interrupted, from its last checkpoint.

    It ends with the same bits as if it had never been interrupted.
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder that `taskmix run`, `compare` or `reproduce` wrote."""
    accept: tuple[str, ...] = ()
    """Settings by which it may differ from what it was begun with, named as in config.json."""
    quiet: bool = False
    """Say nothing while training."""


def main(arguments: Sequence[str]) -> None:
    flags = parse(ResumeFlags, arguments, "taskmix resume")
    command, *rest = recalled(flags.run)
    if flags.quiet and "--quiet" not in rest:
        rest.append("--quiet")
    if flags.accept:
        rest += ["--accept", *flags.accept]
    import_module(f"taskmix.cli.{command}").main(rest)
