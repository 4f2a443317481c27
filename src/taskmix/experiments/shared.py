"""What every method of a comparison is given, so that they differ in nothing else."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from taskmix.adaptation import Adaptation, TaskModel
from taskmix.likelihood import Likelihood
from taskmix.models import Model
from taskmix.names import unknown

HEADS = ("bayesian-head", "ridge-head")
"""Task models in closed form."""
HEAD_CLIP = 1.0
"""Largest norm of the gradient of a head in closed form."""

BY_LOOKS: dict[str, Any] = {
    # Looks give a change away, and an encoder of one kind of images helps with the next.
    "inherits": True,
    "scouting": 0,
    "youth": 3,
    # They tell a copy which tasks are its own: it need not learn for long to part.
    "probation": 150,
    "parting": 6,
    "parting_updates": 2,
    # A cluster of two looks gains 5 to 6 nats by parting, however far apart they are.
    "worth": 4.0,
    "split_worth": 4.0,
}
"""What a mixture of images is told about how to grow, unless the user says otherwise."""


@dataclasses.dataclass(frozen=True)
class Shared:
    """The network, the likelihood and the optimisation that the methods of a comparison share.

    An experiment makes it, and the recipe of each method says which fields of its learner are
    filled from which of these.

    Examples
    --------
    >>> from taskmix.experiments import Regression
    >>> Regression(hidden=(8,)).shared().model.hidden
    (8,)
    """

    model: Model
    """Network for learners with an inner loop."""
    likelihood: Likelihood
    """What targets are: numbers, classes or counts."""
    task_models: Mapping[str, TaskModel]
    """What clusters may be made of, by name."""
    adaptation: Adaptation = Adaptation()
    """Their inner loop."""
    meta_rate: float = 1e-3
    """Rate of the optimiser that learns initialisations."""
    head_rate: float = 2e-3
    """Rate of the optimiser that learns heads in closed form."""
    anneal_over: int = 0
    """Iterations over which these rates fall to zero; 0 keeps them."""
    families: int = 1
    """Kinds of tasks, for those that are told which."""
    kept: int | None = None
    """Tasks that may be kept at a time, as images are large; None: as many as a learner likes."""
    rehearsed: int | None = None
    """Kept tasks that an update may learn from again; None: as many as a learner likes."""
    inherits: bool | None = None
    """Whether new clusters begin as the one in use is; None: as a learner likes."""
    scouting: int | None = None
    """Updates of a mixture's scout per batch; None: as a learner likes."""
    youth: int | None = None
    """How much more often young clusters of a mixture learn; None: as a learner likes."""
    probation: int | None = None
    """Batches after which a mixture tries another candidate; None: as a learner likes."""
    parting: int | None = None
    """Batches in which one that is a copy parts from its parent; None: as a learner likes."""
    parting_updates: int | None = None
    """Updates of such a copy in each of them; None: as a learner likes."""
    worth: float | None = None
    """Nats per task that a new cluster has to gain; None: as a learner likes."""
    split_worth: float | None = None
    """The same of one that parts from another; None: as a learner likes."""
    rule_updates: int | None = None
    """Updates that a learned rule takes on a support set; None: as a learner likes."""
    warming: int | None = None
    """Iterations with a single cluster, for who begins with one; None: as a learner likes."""
    cooling: int | None = None
    """Iterations that a new cluster has for itself; None: as a learner likes."""

    head: str = "bayesian-head"
    """The task model in closed form that suits the inputs, for methods that have no own way."""

    def task_model_settings(self, name: str) -> dict[str, Any]:
        """A task model by its name, and how it is learned best.

        Heads in closed form have a rate and a clip of their own, as their losses have other
        scales.
        """
        if name not in self.task_models:
            raise unknown("task model", name, self.task_models)
        head = name in HEADS
        return {
            "task_model": self.task_models[name],
            "meta_rate": self.head_rate if head else self.meta_rate,
            "meta_clip": HEAD_CLIP if head else math.inf,
        }

    def paced(self, first_phase: int) -> Shared:
        """With ``warming`` and ``cooling`` that fit a stream with so long a first phase.

        A quarter of it alone, which the paper leaves open, and 1000 iterations of cool-down in
        7500, which is the paper's.

        >>> from taskmix.experiments import Regression
        >>> shared = Regression().shared().paced(7500)
        >>> shared.warming, shared.cooling
        (1875, 1000)
        """
        return dataclasses.replace(
            self, warming=max(first_phase // 4, 1), cooling=max(2 * first_phase // 15, 1)
        )
