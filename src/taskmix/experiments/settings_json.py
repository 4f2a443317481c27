"""Settings back from JSON. Only classes and functions that are named here can come out of it."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

import optax

from taskmix.adaptation import Adaptation
from taskmix.experiments.methods import METHODS
from taskmix.experiments.parts import Embedding
from taskmix.experiments.recipes import TASK_MODELS
from taskmix.learner import Learner
from taskmix.likelihood import LIKELIHOODS
from taskmix.models import MODELS, Encoder, EquinoxModel, FlaxModel, Pair, ResNetEncoder
from taskmix.registry import Registry
from taskmix.streams import image_features, image_statistics
from taskmix.training.run_folder import public_name

PARTS: Registry[Any] = Registry("part", "taskmix.parts")
"""What learners are made of beside registered models, task models and likelihoods."""
_OPTIMISERS = (
    *(optax.adabelief, optax.adagrad, optax.adam, optax.adamax, optax.adamw, optax.lamb),
    *(optax.lion, optax.radam, optax.rmsprop, optax.sgd, optax.yogi),
)
for _part in (
    Pair,
    EquinoxModel,
    FlaxModel,
    Encoder,
    ResNetEncoder,
    Embedding,
    Adaptation,
    image_features,
    image_statistics,
    *_OPTIMISERS,
):
    PARTS.register(_part.__name__, _part)


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
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
        raise ValueError(f"{str(value)[:60]!r} is nothing that this version knows")
    kind = _known(value["type"])
    if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
        raise ValueError(f"{value['type'][:60]} is no dataclass")
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
        found = _known(value)
        if isinstance(found, type):
            raise ValueError(f"{value[:60]!r} is no function")
        return found
    kinds = typing.get_args(hint) or (hint,)
    if not any(kind in (Any, type(value)) or (kind, type(value)) == (float, int) for kind in kinds):
        raise ValueError(f"{value!r} is not of the type {hint}")
    return value


def _known(name: str) -> Any:
    """What is registered and is called so in JSON; nothing else can come out of a file."""
    registries: tuple[Registry[Any], ...] = (PARTS, MODELS, LIKELIHOODS, TASK_MODELS)
    parts = (*(one for registry in registries for one in registry.values()), *_learners())
    known = {public_name(part): part for part in parts}
    if name not in known:
        advice = " (register it as a part, or install its package)" if ":" in name else ""
        raise ValueError(f"{name[:60]!r} is nothing that this version knows{advice}")
    return known[name]


def _learners() -> set[Any]:
    recipes = (recipe for one in METHODS.values() for recipe in (one.recipe, one.paper))
    return {recipe.learner for recipe in recipes if recipe is not None}
