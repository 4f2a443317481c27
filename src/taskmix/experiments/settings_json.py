"""Settings back from JSON. Only classes and functions that are named here can come out of it."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from taskmix.adaptation import Adaptation
from taskmix.experiments.images import Embedding
from taskmix.experiments.methods import METHODS, TASK_MODELS, learner_class
from taskmix.learner import Learner
from taskmix.likelihood import Categorical, Gaussian
from taskmix.models import MLP, Conv4, Encoder, ResNet12
from taskmix.streams import image_statistics

PARTS = (
    *(MLP, Conv4, ResNet12, Encoder, Embedding),
    *(Gaussian, Categorical, Adaptation),
    *TASK_MODELS.values(),
)
FUNCTIONS = {function.__name__: function for function in (image_statistics,)}


MOST_ENTRIES = 64
"""Of a list, such as the layers of a network: each is traced, which takes time."""
MOST_PARTS = 64
"""Objects within objects; a learner has ten."""


def learner_from_json(value: Any) -> Learner:
    """The learner that ``as_json`` described; a ``ValueError`` if it is none of ours."""
    try:
        _check_extent(value)
        learner = _object(value)
    except (TypeError, KeyError, OverflowError) as error:
        raise ValueError(f"it describes no learner ({error})") from None
    if not isinstance(learner, Learner):
        raise ValueError(f"{value['type']} is no learner")
    return learner


def _check_extent(value: Any) -> None:
    """Refuse what is far larger than any learner, before anything is built from it."""
    parts, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            parts += 1
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
            if len(one) > MOST_ENTRIES:
                raise ValueError(f"a list of {len(one):,} entries is no setting of a learner")
        if parts > MOST_PARTS:
            raise ValueError("it describes more parts than a learner has")


def _object(value: Any) -> Any:
    known = {one.__name__: one for one in (*PARTS, *_learners())}
    if not isinstance(value, Mapping) or value.get("type") not in known:
        raise ValueError(f"{str(value)[:60]!r} is nothing that this version knows")
    kind = known[value["type"]]
    fields = {field.name: field for field in dataclasses.fields(kind)}
    given = {name: entry for name, entry in value.items() if name != "type"}
    if given.keys() != fields.keys():
        names = sorted(given.keys() ^ fields.keys())
        raise ValueError(f"{value['type']} of another version ({', '.join(names)[:60]})")
    hints = typing.get_type_hints(kind)
    return kind(
        **{name: _value(entry, hints[name]) for name, entry in given.items() if fields[name].init}
    )


def _value(value: Any, hint: Any) -> Any:
    if isinstance(value, Mapping):
        return _object(value)
    if isinstance(value, list):
        if typing.get_origin(hint) is not tuple and hint is not Any:
            raise ValueError(f"a list is not of the type {hint}")
        return tuple(_value(entry, Any) for entry in value)
    if isinstance(value, str):
        if hint is float:
            # The infinities, for which JSON has no word.
            return float(value)
        if hint is str or typing.get_origin(hint) is typing.Literal:
            return value
        if value not in FUNCTIONS:
            raise ValueError(f"{value[:60]!r} is no function that this version knows")
        return FUNCTIONS[value]
    kinds = typing.get_args(hint) or (hint,)
    if not any(kind in (Any, type(value)) or (kind, type(value)) == (float, int) for kind in kinds):
        raise ValueError(f"{value!r} is not of the type {hint}")
    return value


def _learners() -> set[Any]:
    builds = (build for method in METHODS.values() for build in (method.build, method.paper))
    return {learner_class(build) for build in builds if build is not None}
