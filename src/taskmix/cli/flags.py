"""Dataclasses as flags. Whatever is wrong with a flag becomes a ``ValueError`` of one line."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import sys
import typing
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Any, TypeVar

import tyro

from taskmix.experiments.methods import Build, learner_class
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


def learner_flags(build: Build, decided: Iterable[str], taken: Iterable[str]) -> type:
    """The flags of a learner: its fields, but for those that are ``decided`` elsewhere.

    A name that another flag has ``taken`` gets the prefix ``learner-``.
    """
    learner = learner_class(build)
    types = typing.get_type_hints(learner, include_extras=True)
    namespace: dict[str, Any] = {"__annotations__": {}, "__doc__": learner.__doc__}
    for field in dataclasses.fields(learner):
        if not field.init or field.name not in {*decided, *taken}:
            continue
        kind: Any = types[field.name]
        if field.name in decided:
            kind = tyro.conf.Fixed[kind]  # type: ignore[misc]
        else:
            flag = f"learner-{field.name.replace('_', '-')}"
            kind = Annotated[kind, tyro.conf.arg(name=flag)]
        namespace["__annotations__"][field.name] = kind
        namespace[field.name] = _default(field)
    # A subclass, so that the descriptions of the fields are found where they were written.
    return dataclasses.dataclass(frozen=True)(type(learner.__name__, (learner,), namespace))


def decided_elsewhere(build: Build, shared: Iterable[str]) -> set[str]:
    """Fields that are no flags: ``shared`` ones of the experiment, and what makes the method."""
    return {*shared, *(build.keywords if isinstance(build, partial) else ())}


def own_settings(learner: Any, decided: Iterable[str]) -> dict[str, Any]:
    """What was read with ``learner_flags``, without the fields ``decided`` elsewhere."""
    return {
        field.name: getattr(learner, field.name)
        for field in dataclasses.fields(learner)
        if field.init and field.name not in decided
    }


def with_learner(flags: type, learner: type) -> type:
    """The flags of a command together with those of a learner."""
    field = ("learner", Annotated[learner, Flat], dataclasses.field(default_factory=learner))
    return dataclasses.make_dataclass(flags.__name__, [field], bases=(flags,), frozen=True)


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


def _default(field: dataclasses.Field) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return dataclasses.field(default_factory=field.default_factory)


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
