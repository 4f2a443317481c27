"""The flags of experiments and learners, read off their dataclasses."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import textwrap
import typing
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import tyro

from taskmix.cli.flags import Flat, named, peek
from taskmix.experiments import Experiment, Recipe, Shared, default_experiment


def learner_flags(recipe: Recipe, shared: Shared, taken: Iterable[str]) -> type:
    """The flags of a learner: its fields, but for those that are decided elsewhere.

    What the experiment gives, and what makes the method, is no flag; what the experiment
    suggests is a default. A name that another flag has ``taken`` gets the prefix ``learner-``.
    """
    kind = recipe.learner
    decided = {*recipe.given(shared), *recipe.fixed}
    types = typing.get_type_hints(kind, include_extras=True)
    described = descriptions(kind)
    suggested = recipe.suggestions(shared)
    fields = []
    for field in dataclasses.fields(kind):
        if not field.init or field.name in decided or not _is_flag(types[field.name]):
            continue
        flag = field.name.replace("_", "-")
        flag = f"learner-{flag}" if field.name in {*taken} else flag
        default = suggested.get(field.name, _default(field))
        marks = named(flag, described.get(field.name))
        fields.append((field.name, Annotated[(types[field.name], *marks)], default))
    made = dataclasses.make_dataclass(f"{kind.__name__}Flags", fields, frozen=True)
    made.__doc__ = kind.__doc__
    return made


def own_settings(flags: Any) -> dict[str, Any]:
    """What was read with ``learner_flags``, by the names of the learner's fields."""
    return {field.name: getattr(flags, field.name) for field in dataclasses.fields(flags)}


def descriptions(kind: type) -> dict[str, str]:
    """The strings below the fields of a dataclass, and of those that it is derived from."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__[:-1]):
        try:
            (written,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
        except (OSError, TypeError, SyntaxError, ValueError):
            # Without its source a class has no more to say.
            continue
        body = written.body if isinstance(written, ast.ClassDef) else []
        for field, text in itertools.pairwise(body):
            match field, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(words))),
                ):
                    found[name] = " ".join(words.split())
    return found


def with_learner(flags: type, learner: type) -> type:
    """The flags of a command together with those of a learner."""
    field = ("learner", Annotated[learner, Flat], dataclasses.field(default_factory=learner))
    return _extended(flags, [field])


def with_experiment(flags: type, experiment: Experiment) -> type:
    """The flags of a command together with those of an experiment and of how it is watched."""
    parts = {"experiment": _parsable(experiment), "training": experiment.training()}
    return _extended(
        flags,
        [(name, Annotated[type(part), Flat], part) for name, part in parts.items()],
    )


def parsed_experiment(default: Experiment, flags: Any) -> Experiment:
    """The experiment that was read with ``with_experiment``, as one of its own class."""
    found = flags.experiment
    settings = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
    return type(default)(**settings)


def chosen_experiment(name: str, arguments: Sequence[str]) -> Experiment:
    """An experiment with the defaults of the scale that the arguments ask for."""
    experiment: Any = default_experiment(name)
    if "scale" not in {field.name for field in dataclasses.fields(experiment)}:
        return experiment
    return default_experiment(name, peek(arguments, "scale", "cpu"))


def _parsable(part: Any) -> Any:
    """The same settings in a class all of whose fields can be flags.

    A field that may hold any stream becomes the flags of the stream that it holds.
    """
    types = typing.get_type_hints(type(part))
    streams = [field.name for field in dataclasses.fields(part) if _is_protocol(types[field.name])]
    if not streams:
        return part
    fields = []
    for name in streams:
        value: Any = getattr(part, name)
        readable = dataclasses.is_dataclass(value) and all(map(_is_flag, _types_of(value)))
        mark: Any = Flat if readable else tyro.conf.Fixed
        fields.append((name, Annotated[type(value), mark], value))
    settings = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    return _extended(type(part), fields)(**settings)


def _types_of(value: Any) -> list[Any]:
    types = typing.get_type_hints(type(value))
    return [types[field.name] for field in dataclasses.fields(value) if field.init]


def _is_protocol(kind: Any) -> bool:
    return getattr(kind, "_is_protocol", False)


def _is_flag(kind: Any) -> bool:
    """Whether a field can be read from a word or two; networks and functions cannot."""
    if typing.get_origin(kind) in (tuple, Annotated):
        return all(_is_flag(one) for one in typing.get_args(kind) if one is not ...)
    if typing.get_origin(kind) is typing.Literal or dataclasses.is_dataclass(kind):
        return True
    return kind in (bool, int, float, str)


def _extended(flags: type, fields: Sequence[tuple[Any, ...]]) -> type:
    made = dataclasses.make_dataclass(flags.__name__, fields, bases=(flags,), frozen=True)
    made.__doc__ = flags.__doc__
    return made


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return dataclasses.field(default_factory=field.default_factory)
