"""Methods with settings of one's own, written as one word: ``mixture:4:meta_rate=0.01``."""

from __future__ import annotations

import typing
from typing import Any

from taskmix.experiments.methods import method
from taskmix.experiments.recipes import TASK_MODELS, Recipe, check_settings
from taskmix.experiments.shared import Shared
from taskmix.learner import Learner


def variant(name: str, shared: Shared) -> Learner:
    """A method for an experiment, with what stands after its name.

    Parameters
    ----------
    name
        After the method's name and colons, in any order: a number of components, a rule
        (``paper``), a task model (each at most once), and settings of the learner as
        ``field=value``.
    shared
        What the experiment gives to every method.

    Examples
    --------
    >>> from taskmix.experiments import Regression
    >>> variant("mixture:4:bayesian-head:temperature=2", Regression().shared()).temperature
    2.0
    """
    base, *parts = name.split(":")
    settings = [part for part in parts if "=" in part]
    numbers = [part for part in parts if part.isdigit()]
    models = [part for part in parts if part in TASK_MODELS]
    rules = [part for part in parts if part not in {*settings, *numbers, *models}]
    keys = [setting.split("=")[0] for setting in settings]
    if max(map(len, (numbers, models, rules))) > 1 or len(set(keys)) < len(keys):
        raise ValueError(f"{name} says the same thing twice; give each part once.")
    recipe = method(base).rule(rules[0] if rules else "ours")
    if numbers and "components" not in recipe.fields:
        raise ValueError(f"{base} has no number of components; leave {numbers[0]} out of {name}.")
    own: dict[str, Any] = {"components": int(numbers[0])} if numbers else {}
    own |= dict(_setting(recipe, setting) for setting in settings)
    return recipe.build(shared, own, models[0] if models else None)


def _setting(recipe: Recipe, text: str) -> tuple[str, Any]:
    """A field and its value, read as the type that the field has."""
    name, value = text.split("=", 1)
    name = name.replace("-", "_")
    check_settings(recipe.learner.__name__, [name], recipe.fields)
    kind = typing.get_type_hints(recipe.learner)[name]
    try:
        return name, _read(value, kind)
    except ValueError:
        expected = getattr(kind, "__name__", str(kind))
        raise ValueError(f"{name} is {value!r} in {text}; it must be of type {expected}.") from None


def _read(text: str, kind: Any) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError
        return text.lower() == "true"
    if kind in (int, float, str):
        return kind(text)
    if typing.get_origin(kind) is typing.Literal:
        if text not in typing.get_args(kind):
            raise ValueError
        return text
    if typing.get_origin(kind) is tuple:
        return tuple(_read(part, typing.get_args(kind)[0]) for part in text.split(",") if part)
    raise ValueError


def folder_name(label: str) -> str:
    """The name of a method, or of a variant, as that of a folder."""
    return label.replace(":", "-")
