"""The command line. Commands import what they need when they run, so that help is instant."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

import taskmix
from taskmix.names import printable, unknown

COMMANDS = {
    "run": "train one method on an experiment, or learn from a table",
    "predict": "predict new tasks of a table that was learned from",
    "compare": "train several methods on the same stream, and compare them",
    "tune": "choose settings of methods, each with the same budget",
    "reproduce": "repeat a figure or a table of the paper, or the stress streams",
    "report": "write one HTML page about a run, a comparison or a table",
    "resume": "go on with what was interrupted",
    "export": "write what a run has learned, to be shared",
    "methods": "list the methods",
    "data": "prepare images for training, and look at them",
    "doctor": "say what there is to compute with, and whether it computes rightly",
}

HELP = "\n".join(
    [
        "usage: taskmix COMMAND [...]",
        "",
        "Learn to learn from a stream of small tasks whose kind changes without notice.",
        "",
        *(f"  {name:<10} {summary}" for name, summary in COMMANDS.items()),
        "",
        "taskmix COMMAND --help tells more; taskmix --version prints the version.",
    ]
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 2 for what the user can put right, or 130.

    A run that is stopped by a signal in good order exits with 128 and the signal's number.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _dispatch(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Whoever read the output has seen enough of it, as in `taskmix methods | head`.
        _discard_output()
        return 128 + signal.SIGPIPE
    except (ValueError, OSError) as error:
        _complain(" ".join(str(error).split()))
        return 2
    except MemoryError as error:
        _complain(
            f"there is not enough memory ({' '.join(str(error).split()) or 'no more is told'})"
        )
        return 2
    except KeyboardInterrupt:
        _complain("interrupted; what was measured so far is in --out.")
        return 130


def _complain(what: str) -> None:
    """One line on standard error, if there is anyone to read it."""
    with contextlib.suppress(OSError):
        print(f"taskmix: {printable(what)}", file=sys.stderr)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        _discard_output()


def _discard_output() -> None:
    """What is left of it goes nowhere, so that Python does not complain of it at the end."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(HELP)
        return 0
    if arguments[0] == "--version":
        print(f"taskmix {taskmix.__version__}")
        return 0
    command, *rest = arguments
    if command not in COMMANDS:
        raise unknown("command", command, COMMANDS)
    import_module(f"taskmix.cli.{command}").main(rest)
    return 0
