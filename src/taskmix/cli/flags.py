"""Dataclasses as flags. Whatever is wrong with a flag becomes a ``ValueError`` of one line."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import tyro

from taskmix.cli.words import Called, Words, declared
from taskmix.names import nearest, unknown

Flags = TypeVar("Flags")
Flat = tyro.conf.arg(name="")
"""Marks a nested dataclass whose flags carry no prefix."""
HELP = ("-h", "--help")


def named(name: str, description: str | None) -> tuple[Any, Called]:
    """Marks of a field whose flag has another name than itself."""
    return tyro.conf.arg(name=name, help=description), Called(name)


def parse(flags: type[Flags], arguments: Sequence[str], command: str) -> Flags:
    """Read the arguments of ``command``; asked for help, print it and exit with code 0."""
    words = Words()
    asked = any(argument in HELP for argument in arguments)
    hidden = contextlib.nullcontext() if asked else contextlib.redirect_stderr(io.StringIO())
    try:
        with hidden:
            found, rest = tyro.cli(
                flags,
                args=arguments,
                prog=command,
                config=(tyro.conf.SuppressFixed, tyro.conf.FlagCreatePairsOff),
                registry=words.registry,
                return_unknown_args=True,
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        what = words.problem(arguments) or _refused(stop) or _absent(flags, arguments)
        raise ValueError(f"{what.rstrip('.')}. See {command} --help.") from None
    if rest:
        raise ValueError(f"{_unrecognised(flags, rest)} See {command} --help.")
    return found


def peek(arguments: Sequence[str], name: str, default: str) -> str:
    """The value of one flag before the others are known.

    >>> peek(["--seed", "1", "--method", "maml"], "method", "mixture")
    'maml'
    """
    one: Any = dataclasses.make_dataclass("One", [(name, str, default)])
    rest = [argument for argument in arguments if argument not in HELP]
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            found, _ = tyro.cli(one, args=rest, add_help=False, return_unknown_args=True)
        except SystemExit:
            raise ValueError(f"--{name} needs a value.") from None
    return getattr(found, name)


def peek_all(flags: type[Flags], arguments: Sequence[str]) -> Flags | None:
    """What is known of the flags before all of them are; None if something is wrong with them."""
    rest = [argument for argument in arguments if argument not in HELP]
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            found, _ = tyro.cli(flags, args=rest, add_help=False, return_unknown_args=True)
        except SystemExit:
            return None
    return found


def first_argument(arguments: Sequence[str], kind: str, known: Iterable[str], command: str) -> str:
    """What a command is about, which comes before its flags."""
    known = list(known)
    if not arguments or arguments[0].startswith("-"):
        if set(arguments) & {*HELP}:
            print(f"usage: {command} {{{','.join(known)}}} [flags]\n")
            print(f"{command} {known[0]} --help lists the flags.")
            sys.exit(0)
        raise ValueError(f"{command} needs the {kind} first: {command} {' | '.join(known)}.")
    if arguments[0] not in known:
        raise unknown(kind, arguments[0], known)
    return arguments[0]


def _refused(stop: SystemExit) -> str | None:
    """What a dataclass said of the values that it was given, if that is why tyro stopped."""
    reason = stop.__context__
    while reason is not None:
        if isinstance(reason, ValueError):
            return str(reason)
        reason = reason.__context__
    return None


def _absent(flags: type, arguments: Sequence[str]) -> str:
    """Which flag has no value, or what else is needed and was not given."""
    every = declared(flags, Flat)
    given = {argument.partition("=")[0].replace("_", "-") for argument in arguments}
    valued = {name for name, flag in every.items() if flag.takes_a_value}
    for argument, after in itertools.pairwise([*arguments, "--"]):
        if argument.replace("_", "-") in valued and after.startswith("--"):
            return f"{argument} needs a value"
    alone = any(
        not word.startswith("--") and before.replace("_", "-") not in valued
        for before, word in itertools.pairwise(["", *arguments])
    )
    needed = [
        name
        for name, flag in every.items()
        if flag.required and name not in given and (name.startswith("--") or not alone)
    ]
    return f"{' and '.join(needed)} must be given"


def _unrecognised(flags: type, rest: Sequence[str]) -> str:
    """Words that no flag takes, with flags that are called much the same."""
    known = [name for name in declared(flags, Flat) if name.startswith("--")]
    wrong = [word for word in rest if word.startswith("-")] or list(rest)
    similar = dict.fromkeys(
        filter(None, (nearest(word.partition("=")[0], known) for word in wrong))
    )
    suggestion = f" Did you mean {' and '.join(similar)}?" if similar else ""
    return f"Unrecognised: {' '.join(wrong)}.{suggestion}"
