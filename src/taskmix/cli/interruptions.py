"""Commands that train can be stopped, and go on when they are given again."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from taskmix.files import replace, write_json
from taskmix.training import Stopped
from taskmix.training.lock import owning
from taskmix.training.run_folder import claim, read_json
from taskmix.training.watch import Request, listening

NAME = "command.json"
COMMANDS = ("run", "compare", "reproduce")
"""Those that can be resumed."""


@contextlib.contextmanager
def interruptible(out: Path, request: Request) -> Iterator[None]:
    """Let signals stop what is trained into ``out`` in good order, with their own exit codes."""

    def say(what: str) -> None:
        print(f"taskmix: {what}", file=sys.stderr, flush=True)

    try:
        with listening(request, say):
            yield
    except Stopped as stop:
        name = signal.Signals(stop.signum).name
        say(f"{name}: stopped at iteration {stop.iteration}; taskmix resume {out} goes on.")
        sys.exit(128 + stop.signum)


@contextlib.contextmanager
def owned(out: Path, command: Sequence[str]) -> Iterator[None]:
    """Be the only command that writes into a folder of several runs.

    It is the one to resume, as it may ask for more than the one before, unless it is refused.
    """
    claim(out)
    with owning(out):
        before = (out / NAME).read_bytes() if (out / NAME).exists() else None
        write_json(out / NAME, {"command": _without_out(command)})
        try:
            yield
        except (ValueError, OSError):
            if before is not None:
                replace(out / NAME, before)
            raise


def remember(out: Path, command: Sequence[str]) -> None:
    """Write down, in a new folder, which command makes it."""
    claim(out)
    if not (out / NAME).exists():
        write_json(out / NAME, {"command": _without_out(command)})


def recalled(out: Path) -> list[str]:
    """The command that makes a folder, to be given once more."""
    if not out.is_dir():
        raise ValueError(f"{out} is not a folder; give one that a run wrote.")
    if (out / "config.json").exists() and not (out / NAME).exists():
        raise ValueError(f"{out} is part of a comparison; resume the folder of the comparison.")
    command = read_json(out / NAME).get("command")
    if (
        not isinstance(command, list)
        or not all(isinstance(argument, str) for argument in command)
        or command[:1] not in [[name] for name in COMMANDS]
    ):
        raise ValueError(f"{out / NAME} does not hold a command of taskmix; give it yourself.")
    return [*command, "--out", str(out)]


def _without_out(command: Sequence[str]) -> list[str]:
    """The folder is where it is found, even if it was moved.

    >>> _without_out(["run", "regression", "--out", "runs/1", "--seed", "3", "--out=x"])
    ['run', 'regression', '--seed', '3']
    """
    kept: list[str] = []
    skip = False
    for argument in command:
        if skip:
            skip = False
        elif argument == "--out":
            skip = True
        elif not argument.startswith("--out="):
            kept.append(argument)
    return kept
