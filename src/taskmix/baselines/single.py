"""What learners without clusters have in common."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from taskmix.adaptation import TaskResult
from taskmix.adaptation.means import query_errors, task_weights, weighted_mean
from taskmix.learner import Info, Prediction, State
from taskmix.likelihood import Likelihood
from taskmix.models import Model
from taskmix.tasks import TaskBatch


class Single:
    """A learner with one set of parameters."""

    model: Model

    @property
    def one_at_a_time(self) -> bool:
        return self.model.one_at_a_time

    def parameters(self, state: State) -> int:
        return size(state.params)


def single_info(
    loss: Float[Array, " tasks"], error: Float[Array, " tasks"], batch: TaskBatch
) -> Info:
    """What a step came to, given the loss and the error of each task."""
    weights = task_weights(batch)
    return Info(
        loss=weighted_mean(loss, weights),
        error=jnp.where(batch.real, error, jnp.nan),
        responsibilities=weights[:, None],
        alive=jnp.ones(1, dtype=bool),
        spawned=jnp.asarray(False),
        alarm=jnp.asarray(False),
        suspicion=jnp.asarray(0.0),
    )


def query_info(likelihood: Likelihood, result: TaskResult, batch: TaskBatch) -> Info:
    """What a step came to, given what each task's query did."""
    return single_info(result.loss, query_errors(likelihood, result.predicted, batch), batch)


def single_prediction(
    mean: Float[Array, "query outputs"],
    variance: Float[Array, "query outputs"] | None = None,
    noise: Float[Array, "query outputs"] | None = None,
) -> Prediction:
    """A prediction that no cluster disagrees with."""
    return Prediction(
        mean=mean,
        components=mean[None],
        responsibilities=jnp.ones(1),
        variance=variance,
        noise=noise,
    )


def size(params: PyTree) -> int:
    """How many numbers a tree of arrays, or of their shapes, holds."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def check_not_negative(**settings: float | int) -> None:
    """Raise a ``ValueError`` that names the first setting which is negative or no number."""
    for name, value in settings.items():
        if not value >= 0:
            raise ValueError(f"{name} is {value}; it must be 0 or more.")


def check_positive(**settings: float | int) -> None:
    """Raise a ``ValueError`` that names the first setting which is not positive."""
    for name, value in settings.items():
        if not value > 0:
            raise ValueError(f"{name} is {value}; it must be positive.")
