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

HEAD_CLIP = 1.0
"""Largest norm of the gradient of a Bayesian head."""


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
    likelihood: Likelihood
    task_models: Mapping[str, TaskModel]
    """What clusters may be made of, by name."""
    adaptation: Adaptation = Adaptation()
    meta_rate: float = 1e-3
    """Rate of the optimiser that learns initialisations."""
    head_rate: float = 2e-3
    """Rate of the optimiser that learns Bayesian heads."""
    anneal_over: int = 0
    """Iterations over which these rates fall to zero; 0 keeps them."""
    families: int = 1
    """Kinds of tasks, for those that are told which."""
    kept: int | None = None
    """Tasks that may be kept at a time, as images are large; None: as many as a learner likes."""
    frugal: bool = False
    """Whether to estimate a gradient that costs several times as much as an unbiased sample."""

    def task_model_settings(self, name: str) -> dict[str, Any]:
        """A task model by its name, and how it is learned best.

        A Bayesian head has a rate and a clip of its own, as its loss has another scale.
        """
        if name not in self.task_models:
            raise unknown("task model", name, self.task_models)
        head = name == "bayesian-head"
        return {
            "task_model": self.task_models[name],
            "meta_rate": self.head_rate if head else self.meta_rate,
            "meta_clip": HEAD_CLIP if head else math.inf,
        }
