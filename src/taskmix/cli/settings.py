"""The flags of experiments and learners, read off their dataclasses."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import tyro

from taskmix.cli.flags import Flat, peek
from taskmix.experiments import Experiment, default_experiment
from taskmix.experiments.methods import Build, given_settings, learner_class


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


def decided_elsewhere(build: Build, shared: Mapping[str, Any]) -> set[str]:
    """Fields that are no flags: what the experiment gives, and what makes the method.

    A task model is chosen by its name, which decides how its gradients are clipped.
    """
    makes = build.keywords if isinstance(build, partial) else {}
    return {*given_settings(build, shared), *makes}


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
    return _extended(flags, [field])


def with_experiment(flags: type, experiment: Experiment) -> type:
    """The flags of a command together with those of an experiment and of how it is watched."""
    parts = {"experiment": experiment, "training": experiment.training()}
    return _extended(
        flags,
        [(name, Annotated[type(part), Flat], part) for name, part in parts.items()],
    )


def chosen_experiment(name: str, arguments: Sequence[str]) -> Experiment:
    """An experiment with the defaults of the scale that the arguments ask for."""
    experiment = default_experiment(name)
    if "scale" not in {field.name for field in dataclasses.fields(experiment)}:  # type: ignore[arg-type]
        return experiment
    return default_experiment(name, peek(arguments, "scale", "cpu"))


def _extended(flags: type, fields: Sequence[tuple]) -> type:
    made = dataclasses.make_dataclass(flags.__name__, fields, bases=(flags,), frozen=True)
    made.__doc__ = flags.__doc__
    return made


def _default(field: dataclasses.Field) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return dataclasses.field(default_factory=field.default_factory)
