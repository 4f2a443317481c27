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
    """Folder that `taskmix run`, `compare`, `tune` or `reproduce` wrote."""
    accept: tuple[str, ...] = ()
    """Settings by which it may differ from what it was begun with, named as in config.json."""
    quiet: bool = False
    """Say nothing while training."""


def main(arguments: Sequence[str]) -> None:
    flags = parse(ResumeFlags, arguments, "taskmix resume")
    resume(flags.run, flags.accept, flags.quiet)


def resume(run: str | Path, accept: Sequence[str] = (), quiet: bool = False) -> None:
    """Go on with what a command of ``taskmix`` began in a folder, from its last checkpoint.

    What ``taskmix.fit``, ``compare`` and the like began goes on when they are called again with
    the same folder.

    Parameters
    ----------
    run
        Folder that ``taskmix run``, ``compare``, ``tune`` or ``reproduce`` wrote.
    accept
        Settings by which it may differ from what it was begun with, named as in config.json.
    quiet
        Whether to say nothing while training.

    Examples
    --------
    >>> resume("runs/none")
    Traceback (most recent call last):
    ValueError: runs/none is not a folder; give one that a run wrote.
    """
    command, *rest = recalled(Path(run))
    if quiet and "--quiet" not in rest:
        rest.append("--quiet")
    if accept:
        rest += ["--accept", *accept]
    import_module(f"taskmix.cli.{command}").main(rest)
