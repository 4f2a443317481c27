"""What learners without clusters have in common."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from taskmix.adaptation import TaskResult
from taskmix.learner import Info, Prediction, State
from taskmix.likelihood import Likelihood, masked_mean
from taskmix.tasks import Examples


class Single:
    """A learner with one set of parameters, which never needs more room."""

    def has_room(self, state: State, iterations: int) -> Bool[Array, ""]:
        return jnp.asarray(True)

    def grow(self, state: State) -> State:
        return state

    def parameters(self, state: State) -> int:
        return size(state.params)


def single_info(loss: Float[Array, " tasks"], error: Float[Array, " tasks"]) -> Info:
    """What a step came to, given the loss and the error of each task."""
    return Info(
        loss=jnp.mean(loss),
        error=error,
        responsibilities=jnp.ones((*loss.shape, 1)),
        clusters=jnp.asarray(1),
        spawned=jnp.asarray(False),
        suspicion=jnp.asarray(0.0),
    )


def query_info(likelihood: Likelihood, result: TaskResult, query: Examples) -> Info:
    """What a step came to, given what each task's query did."""
    errors = likelihood.error(result.predicted, query.y)
    return single_info(result.loss, masked_mean(errors, query.mask))


def single_prediction(
    mean: Float[Array, "query outputs"], variance: Float[Array, "query outputs"] | None = None
) -> Prediction:
    """A prediction that no cluster disagrees with; without a variance it is a point."""
    return Prediction(
        mean=mean,
        variance=jnp.zeros_like(mean) if variance is None else variance,
        components=mean[None],
        responsibilities=jnp.ones(1),
        novelty=jnp.asarray(0.0),
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
