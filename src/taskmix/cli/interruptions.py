"""Commands that train can be stopped, and go on when they are given again."""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from taskmix.files import read_bytes, replace, write_json
from taskmix.names import printable
from taskmix.reporting.report import report
from taskmix.training import Stopped
from taskmix.training.lock import Refused, owning
from taskmix.training.run_folder import COMMAND, CONFIG, claim, read_command
from taskmix.training.skips import Diverged
from taskmix.training.watch import Request, listening


@contextlib.contextmanager
def interruptible(out: Path, request: Request) -> Iterator[None]:
    """Let signals stop what is trained into ``out`` in good order, with their own exit codes."""

    def say(what: str) -> None:
        # The terminal may be what has gone away.
        with contextlib.suppress(OSError):
            print(f"taskmix: {printable(what)}", file=sys.stderr, flush=True)

    try:
        with listening(request, say):
            yield
    except Stopped as stop:
        name = signal.Signals(stop.signum).name
        again = f"taskmix resume {shlex.quote(str(out))}"
        say(f"{name}: stopped at iteration {stop.iteration}; {again} goes on.")
        sys.exit(128 + stop.signum)
    except Diverged:
        # What can be shown of it says more than the one line that ends the command.
        with contextlib.suppress(ValueError, OSError):
            say(f"report: {report(out)}")
        raise


@contextlib.contextmanager
def owned(out: Path, command: Sequence[str]) -> Iterator[None]:
    """Be the only command that writes into a folder of several runs.

    It is the one to resume, as it may ask for more than the one before, unless it is refused.
    """
    claim(out, "comparison")
    with owning(out):
        path = out / COMMAND
        before = read_bytes(path) if path.exists() else None
        write_json(path, {"command": without_out(command)})
        try:
            yield
        except Refused:
            # Whatever else goes wrong, it is this command that has begun and is to go on.
            if before is None:
                path.unlink()
            else:
                replace(path, before)
            raise


def remember(out: Path, command: Sequence[str]) -> None:
    """Write down, in a new folder, which command makes it."""
    claim(out)
    if (out / COMMAND).exists():
        return
    if (out / CONFIG).exists():
        raise Refused(f"{out} is part of a comparison; choose another --out.")
    write_json(out / COMMAND, {"command": without_out(command)})


def recalled(out: Path) -> list[str]:
    """The command that makes a folder, to be given once more."""
    if not out.is_dir():
        raise ValueError(f"{out} is not a folder; give one that a run wrote.")
    if (out / CONFIG).exists() and not (out / COMMAND).exists():
        raise ValueError(f"{out} is part of a comparison; resume the folder of the comparison.")
    command = without_out(read_command(out))
    if any(argument.partition("=")[0] == "--coordinator" for argument in command):
        # Nobody is led to an address by a folder that may come from somebody else.
        raise Refused(
            f"{out} is trained by several processes; give the command of each of them once more."
        )
    return [*command, "--out", str(out)]


def without_out(command: Sequence[str]) -> list[str]:
    """The folder is where it is found, even if it was moved.

    >>> without_out(["run", "regression", "--out", "runs/1", "--seed", "3", "--out=x"])
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
