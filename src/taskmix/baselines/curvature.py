"""What methods have in common that look at the curvature of every task."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import jax
from jaxtyping import Array, Float, Key, PyTree

from taskmix.adaptation import TaskResult, mean_gradient, query_result
from taskmix.adaptation.means import task_weights
from taskmix.baselines.maml import MAML
from taskmix.likelihood import Likelihood, Scoring
from taskmix.models.kronecker import Factors, checked_tapped, fisher_factors
from taskmix.tasks import Examples, TaskBatch

Objective = Callable[[TaskResult, tuple[Factors, ...]], Float[Array, ""]]
"""What is minimised of a task, given how its query did and the curvature there."""


@dataclasses.dataclass(frozen=True)
class CurvatureMAML(MAML):
    """MAML that knows the Fisher information of a query example at the adapted parameters.

    It has a Kronecker product for each layer and leaves out the shifts of batch normalisation.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_tapped(self.model)
        _scoring(self.likelihood)

    def _gradient_and_curvature(
        self, objective: Objective, params: PyTree, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[PyTree, tuple[TaskResult, tuple[Factors, ...]]]:
        """Gradient of the mean objective, and of each task the two things it was made of."""
        model = checked_tapped(self.model)

        def task_loss(
            params: PyTree, support: Examples, query: Examples, key: Key[Array, ""]
        ) -> tuple[Float[Array, ""], tuple[TaskResult, tuple[Factors, ...]]]:
            score = partial(_scoring(self.likelihood).random_score, key)
            adapted = self._adapt(params, support)
            outputs, factors = fisher_factors(model, adapted, query.x, query.mask, score)
            result = query_result(self.likelihood, outputs, query)
            return objective(result, factors), (result, factors)

        keys = jax.random.split(key, batch.query.mask.shape[0])
        tasks, weights = (batch.support, batch.query, keys), task_weights(batch)
        return mean_gradient(model, task_loss, params, *tasks, weights=weights)


def _scoring(likelihood: Likelihood) -> Scoring:
    if not isinstance(likelihood, Scoring):
        raise ValueError(
            f"likelihood is {likelihood}; curvature needs one with `random_score`, such as "
            f"Gaussian or Categorical."
        )
    return likelihood
