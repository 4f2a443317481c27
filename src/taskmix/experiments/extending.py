"""One function by which a program adds parts of its own; packages use entry points."""

from __future__ import annotations

from typing import Any

from taskmix.evaluation import MEASURES
from taskmix.experiments.catalogue import EXPERIMENTS
from taskmix.experiments.methods import METHODS
from taskmix.experiments.recipes import TASK_MODELS
from taskmix.experiments.settings_json import PARTS
from taskmix.likelihood import LIKELIHOODS
from taskmix.models import MODELS
from taskmix.names import unknown
from taskmix.registry import Registry
from taskmix.streams.filters import FILTERS
from taskmix.training.writers import WRITERS

REGISTRIES: dict[str, Registry[Any]] = {
    "learner": METHODS,
    "task model": TASK_MODELS,
    "model": MODELS,
    "likelihood": LIKELIHOODS,
    "stream": EXPERIMENTS,
    "measure": MEASURES,
    "filter": FILTERS,
    "part": PARTS,
    "writer": WRITERS,
}
"""Everything that can be added to, by its kind."""


def register(kind: str, name: str, thing: Any) -> Any:
    """Add something of one's own, to be chosen by its name as ours are.

    A package does the same for all its users by an entry point, as in
    ``[project.entry-points."taskmix.learners"]`` of its ``pyproject.toml``; the groups are
    ``taskmix.learners``, ``taskmix.task_models``, ``taskmix.models``, ``taskmix.likelihoods``,
    ``taskmix.streams``, ``taskmix.measures``, ``taskmix.filters``, ``taskmix.writers`` and
    ``taskmix.parts``.

    Parameters
    ----------
    kind
        ``"learner"``: a frozen dataclass with the methods of ``Learner``, or a ``Method``.
        ``"model"``: a class with a class method ``fitting(shape, outputs)``.
        ``"task model"``, ``"likelihood"``: a class.
        ``"stream"``: what gives a stream, or an experiment, when it is called.
        ``"measure"``: a ``Measure``.
        ``"filter"``: a function of images, see ``register_filter``.
        ``"writer"``: what makes, of a run's folder and settings, something that follows the run.
        ``"part"``: any other class or function that a learner is made of, so that it can be
        exported; its name must be its own.
    name
        What the command line, tables and folders call it.
    thing
        What is to be found there.

    Returns
    -------
    Any
        The ``thing``.

    Examples
    --------
    >>> import dataclasses
    >>> import taskmix as tm
    >>> @dataclasses.dataclass(frozen=True)
    ... class Hasty(tm.MAML):
    ...     meta_rate: float = 0.1
    >>> _ = tm.register("learner", "hasty-example", tm.Recipe(Hasty, {"model": "model"}))
    >>> from taskmix.experiments import METHODS
    >>> METHODS["hasty-example"].told.value
    'nothing'
    >>> METHODS.remove("hasty-example")
    """
    if kind not in REGISTRIES:
        raise unknown("kind of part", kind, REGISTRIES)
    return REGISTRIES[kind].register(name, thing)
