"""Dataclasses as flags. Whatever is wrong with a flag becomes a ``ValueError`` of one line."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import tyro

from taskmix.names import unknown

Flags = TypeVar("Flags")
Flat = tyro.conf.arg(name="")
"""Marks a nested dataclass whose flags carry no prefix."""


def parse(flags: type[Flags], arguments: Sequence[str], command: str) -> Flags:
    """Read the arguments of ``command``; asked for help, print it and exit with code 0."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                flags,
                args=arguments,
                prog=command,
                config=(tyro.conf.SuppressFixed, tyro.conf.FlagCreatePairsOff),
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise ValueError(f"{_one_line(complaint.getvalue())} See {command} --help.") from None


def peek(arguments: Sequence[str], name: str, default: str) -> str:
    """The value of one flag before the others are known.

    >>> peek(["--seed", "1", "--method", "maml"], "method", "mixture")
    'maml'
    """
    one: Any = dataclasses.make_dataclass("One", [(name, str, default)])
    rest = [argument for argument in arguments if argument not in ("-h", "--help")]
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            found, _ = tyro.cli(one, args=rest, add_help=False, return_unknown_args=True)
        except SystemExit:
            raise ValueError(f"--{name} needs a value.") from None
    return getattr(found, name)


def first_argument(arguments: Sequence[str], kind: str, known: Iterable[str], command: str) -> str:
    """What a command is about, which comes before its flags."""
    known = list(known)
    if not arguments or arguments[0].startswith("-"):
        if set(arguments) & {"-h", "--help"}:
            print(f"usage: {command} {{{','.join(known)}}} [flags]\n")
            print(f"{command} {known[0]} --help lists the flags.")
            sys.exit(0)
        raise ValueError(f"{command} needs the {kind} first: {command} {' | '.join(known)}.")
    if arguments[0] not in known:
        raise unknown(kind, arguments[0], known)
    return arguments[0]


def _one_line(box: str) -> str:
    """The message in the box that tyro draws, with its suggestions."""
    paragraphs = [
        " ".join(re.sub("[│╭╮╰╯─]", " ", part).split())
        for part in re.split("─{8,}", box.split("\n", 1)[1])
    ]
    message = re.sub(r"^Error parsing (experiment\.|training\.|learner\.)?", "", paragraphs[0])
    similar = [
        found[1]
        for part in paragraphs
        if (found := re.match(r"Arguments similar.*?: (-\S+)", part))
    ]
    suggestion = f" Did you mean {' and '.join(similar)}?" if similar else ""
    return f"{message.rstrip('.')}.{suggestion}"
