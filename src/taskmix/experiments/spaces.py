"""What of each learner is worth a search: ranges and choices of settings, by their names."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from taskmix.experiments.recipes import Recipe, check_settings


@dataclasses.dataclass(frozen=True)
class Between:
    """Numbers from ``low`` to ``high``, tried evenly on the scale of their logarithms.

    >>> Between(1e-4, 1e-2).whole
    False
    """

    low: int | float
    high: int | float
    whole: bool = False
    """Whether the numbers are whole."""

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high < math.inf:
            raise ValueError(
                f"The range {self.low}..{self.high} must go from a positive number to a larger one."
            )

    def holds(self, value: Any) -> bool:
        kinds = (int,) if self.whole else (int, float)
        return type(value) in kinds and self.low <= value <= self.high


@dataclasses.dataclass(frozen=True)
class OneOf:
    """Some values, in no order.

    >>> OneOf((1, 2)).holds(3)
    False
    """

    values: tuple[Any, ...]

    def holds(self, value: Any) -> bool:
        return value in self.values


Range = Between | OneOf
Space = Mapping[str, Range]
"""Setting of a learner -> what to try."""

WORTH_A_SEARCH: Space = {
    "meta_rate": Between(3e-4, 1e-2),
    # The paper's mixture: what its authors tuned, and what its rule depends on.
    "coefficient": Between(0.1, 3.0),
    "refresh_every": Between(50, 4000, whole=True),
    "refresh": OneOf(("average", "weighted", "density")),
    "refresh_alone": OneOf((False, True)),
    "temperature": Between(0.1, 10.0),
    # Ours.
    "worth": Between(2.0, 20.0),
    "certainty": Between(20.0, 120.0),
    # How strongly a learner holds on to what it knows.
    "strength": Between(1e-2, 1e4),
    "phase_tasks": Between(20, 200_000, whole=True),
    "kl_weight": Between(1e-3, 1.0),
    # Changes.
    "fast_rate": Between(3e-3, 0.1),
    "hazard": Between(1e-3, 0.1),
    "hidden": OneOf((10, 20, 40)),
}
"""Tried for every learner that has a setting of the name, unless it is what makes the method."""


def space_of(recipe: Recipe) -> dict[str, Range]:
    """What is searched for a method: its own settings among those that are worth it.

    >>> from taskmix.experiments import method
    >>> sorted(space_of(method("ewc").recipe))
    ['meta_rate', 'strength']
    """
    return {
        name: values
        for name, values in WORTH_A_SEARCH.items()
        # A rate may be part of a recipe and makes no method.
        if name in recipe.fields and (name not in recipe.fixed or name == "meta_rate")
    }


def read_space(texts: Iterable[str], recipe: Recipe) -> dict[str, Range]:
    """Ranges as the command line has them: ``worth=2..20`` or ``refresh=average,density``.

    >>> from taskmix.experiments import method
    >>> read_space(["meta_rate=1e-4..1e-2"], method("maml").recipe)
    {'meta_rate': Between(low=0.0001, high=0.01, whole=False)}
    """
    space: dict[str, Range] = {}
    for text in texts:
        name, _, values = text.partition("=")
        name = name.replace("-", "_")
        check_settings(recipe.learner.__name__, [name], recipe.fields)
        if not values:
            raise ValueError(f"{text} has no values; write {name}=LOW..HIGH or {name}=A,B,C.")
        try:
            space[name] = _range(values)
        except ValueError as error:
            raise ValueError(f"{text} cannot be searched: {error}") from None
    return space


def _range(values: str) -> Range:
    low, dots, high = values.partition("..")
    if not dots:
        return OneOf(tuple(_value(one) for one in values.split(",")))
    bounds = _value(low), _value(high)
    if not all(isinstance(bound, int | float) for bound in bounds):
        raise ValueError(f"{values} is no range of numbers.")
    return Between(*bounds, whole=all(isinstance(bound, int) for bound in bounds))


def _value(text: str) -> Any:
    """A number if it is one, true or false, or the word itself."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)
