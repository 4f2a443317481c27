"""What a method is: a learner with a name, an origin, and what it takes of an experiment."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from taskmix.adaptation import BayesianHead, CalibratedGradient, Gradient, RidgeHead
from taskmix.experiments.shared import Shared
from taskmix.learner import Learner, Told
from taskmix.names import nearest
from taskmix.registry import Registry

TASK_MODELS: Registry[type] = Registry("task model", "taskmix.task_models")
"""Every task model by its name."""
TASK_MODELS.register("gradient", Gradient)
TASK_MODELS.register("calibrated-gradient", CalibratedGradient)
TASK_MODELS.register("bayesian-head", BayesianHead)
TASK_MODELS.register("ridge-head", RidgeHead)

SHARED = frozenset(field.name for field in dataclasses.fields(Shared)) - {"task_models"}

OPTIONAL = frozenset(field.name for field in dataclasses.fields(Shared) if field.default is None)
"""Fields of ``Shared`` with which an experiment may leave the choice to the learner."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a learner is made for an experiment.

    What it takes is named here, field by field, and a name that the learner or ``Shared`` does
    not have is an error at once: nothing is passed by chance, and nothing is dropped.

    Examples
    --------
    >>> import taskmix as tm
    >>> recipe = Recipe(tm.MAML, takes={"model": "model"}, fixed={"meta_rate": 0.1})
    >>> recipe.build(tm.Regression(hidden=(8,)).shared()).model.hidden
    (8,)
    """

    learner: Any
    """The learner's class, a frozen dataclass whose fields all have defaults."""
    takes: Mapping[str, str]
    """Field of the learner -> field of ``Shared`` that fills it, whatever the user says."""
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Settings that make the method."""
    suggested: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """As ``takes``, but a setting of the user's own goes before it."""
    instead: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Task model asked for -> task model taken, where the first does not fit the learner."""
    fitting: bool = False
    """Whether its usual task model is the head in closed form that suits the experiment."""

    def __post_init__(self) -> None:
        name = self.learner.__name__
        if not dataclasses.is_dataclass(self.learner):
            raise ValueError(f"{name} is no dataclass; decorate it with @dataclass(frozen=True).")
        check_settings(name, [*self.takes, *self.suggested, *self.fixed], self.fields)
        check_settings("Shared", [*self.takes.values(), *self.suggested.values()], SHARED)

    @staticmethod
    def of(learner: Any) -> Recipe:
        """For a learner's class, or a ``partial`` of it: it takes what it has a field for.

        >>> from taskmix.baselines import MAML
        >>> sorted(Recipe.of(MAML).takes)
        ['adaptation', 'anneal_over', 'likelihood', 'meta_rate', 'model']
        """
        fixed = learner.keywords if isinstance(learner, partial) else {}
        kind = learner.func if isinstance(learner, partial) else learner
        if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
            raise ValueError(
                f"{getattr(kind, '__name__', kind)!r} is no learner; register a frozen dataclass "
                f"with the methods of taskmix.Learner, or a Method."
            )
        fields = {field.name for field in dataclasses.fields(kind)}
        free = sorted(fields & SHARED - set(fixed))
        takes = {name: name for name in free if name not in OPTIONAL}
        suggested = {name: name for name in free if name in OPTIONAL}
        if "task_model" in fields:
            # Which rate it is depends on the task model.
            takes.pop("meta_rate", None)
        return Recipe(kind, takes, fixed, suggested)

    @property
    def fields(self) -> frozenset[str]:
        """The names of the learner's settings."""
        return frozenset(field.name for field in dataclasses.fields(self.learner) if field.init)

    @property
    def task_model(self) -> str | None:
        """The task model it has unless the user asks for another; None if it has its own way."""
        for field in dataclasses.fields(self.learner):
            if field.name == "task_model":
                usual = type(self.fixed.get("task_model", field.default))
                return next((name for name, kind in TASK_MODELS.items() if kind is usual), None)
        return None

    def given(self, shared: Shared, task_model: str | None = None) -> dict[str, Any]:
        """What the experiment decides, by the names of the learner's fields."""
        given = {name: getattr(shared, source) for name, source in self.takes.items()}
        if "task_model" in self.fields:
            asked = task_model or (shared.head if self.fitting else self.task_model)
            if asked is not None:
                chosen = self.instead.get(asked, asked)
                settings = shared.task_model_settings(chosen)
                given |= {name: value for name, value in settings.items() if name in self.fields}
        elif task_model is not None:
            raise ValueError(
                f"{self.learner.__name__} has its own way to adapt; leave the task model "
                f"{task_model} out."
            )
        return given

    def suggestions(self, shared: Shared) -> dict[str, Any]:
        """What the experiment proposes, by the names of the learner's fields."""
        proposed = {name: getattr(shared, source) for name, source in self.suggested.items()}
        return {name: value for name, value in proposed.items() if value is not None}

    def build(
        self, shared: Shared, own: Mapping[str, Any] | None = None, task_model: str | None = None
    ) -> Learner:
        """The learner for an experiment, with settings of one's ``own``.

        A learner that is written against task models gets the one asked for, or its usual one,
        as the experiment offers it.
        """
        check_settings(self.learner.__name__, own or (), self.fields)
        settings = {**self.fixed, **self.suggestions(shared), **self.given(shared, task_model)}
        learner: Learner = self.learner(**{**settings, **(own or {})})
        return learner


def check_settings(owner: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise a ``ValueError`` for the first name that is none of the ``known`` ones."""
    known = sorted(known)
    for name in names:
        if name not in known:
            similar = nearest(name, known)
            suggestion = f" Did you mean {similar!r}?" if similar else ""
            raise ValueError(
                f"{owner} has no setting {name!r}.{suggestion} It has {', '.join(known)}."
            )


@dataclasses.dataclass(frozen=True)
class Method:
    """A learner with its name and its origin.

    Parameters
    ----------
    name
        What the command line, tables and folders call it.
    recipe
        How it is made; a learner's class will do, see ``Recipe.of``.
    year, reference
        Where it was published; None and empty if it was not.
    summary
        One line for ``taskmix methods``.

    Examples
    --------
    >>> from taskmix.baselines import MAML
    >>> Method("mine", Recipe.of(MAML), summary="one initialisation").told.value
    'nothing'
    """

    name: str
    recipe: Recipe
    year: int | None = None
    reference: str = ""
    summary: str = ""
    paper: Recipe | None = None
    """The algorithm as its paper describes it, where ``recipe`` departs from it."""
    classes_only: str = ""
    """Why the method cannot do regression, if it cannot."""
    numbers_only: str = ""
    """Why the method cannot do classes, if it cannot."""

    @property
    def told(self) -> Told:
        learner: Learner = self.recipe.learner(**self.recipe.fixed)
        return learner.told

    def rule(self, name: str) -> Recipe:
        """``ours`` or ``paper``."""
        if name == "ours":
            return self.recipe
        if name == "paper" and self.paper is not None:
            return self.paper
        rules = ["ours"] if self.paper is None else ["ours", "paper"]
        raise ValueError(
            f"{self.name} has no rule {name!r}; use {' or '.join(rules)}, or leave the rule out."
        )


def as_method(name: str, thing: Any) -> Method:
    """A method of that name: as it was registered, or made for a learner's class."""
    if isinstance(thing, Method):
        method = dataclasses.replace(thing, name=name)
    else:
        recipe = thing if isinstance(thing, Recipe) else Recipe.of(thing)
        summary = (recipe.learner.__doc__ or "").strip().split("\n")[0].rstrip(".")
        method = Method(name, recipe, summary=summary)
    learner = method.recipe.learner(**method.recipe.fixed)
    if not isinstance(learner, Learner):
        missing = [part for part in LEARNER_PARTS if not hasattr(learner, part)]
        raise ValueError(f"{type(learner).__name__} is no learner; it has no {missing[0]}.")
    return method


LEARNER_PARTS = ("likelihood", "one_at_a_time", "told", "init", "step", "predict", "parameters")
"""What the protocol asks for, to name what is missing."""
