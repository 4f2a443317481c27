"""What learners that guard what earlier phases taught them have in common."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from taskmix.tasks import TaskBatch


class Quadratic(eqx.Module):
    """A penalty (1/2) sum_i importance_i (theta_i - centre_i)^2, up to a constant."""

    importance: PyTree
    centre: PyTree

    @staticmethod
    def nothing(params: PyTree) -> Quadratic:
        """No penalty on parameters of this structure."""
        zero = jax.tree.map(jnp.zeros_like, params)
        return Quadratic(zero, zero)

    def gradient(self, params: PyTree) -> PyTree:
        """importance * (theta - centre)."""
        return jax.tree.map(
            lambda weight, now, centre: weight * (now - centre),
            self.importance,
            params,
            self.centre,
        )

    def plus(self, other: Quadratic) -> Quadratic:
        """The sum of both, which is a quadratic again.

        Its importance is P + F; its centre c + F / (P + F) * (theta* - c), the mean of the
        two centres weighted by importance. A parameter that neither guards keeps its centre.
        """
        importance = jax.tree.map(jnp.add, self.importance, other.importance)

        def between(mine: Array, theirs: Array, weight: Array, total: Array) -> Array:
            return mine + weight / jnp.where(total > 0, total, 1) * (theirs - mine)

        centre = jax.tree.map(between, self.centre, other.centre, other.importance, importance)
        return Quadratic(importance, centre)


def begins_phase(batch: TaskBatch) -> Bool[Array, ""]:
    """Whether the batch is the first of a new phase."""
    if batch.hints is None or batch.hints.boundary is None:
        raise ValueError(
            "This learner has to be told where a phase begins; pass hints with the batch."
        )
    return batch.hints.boundary


def choose(where: Bool[Array, ""], new: PyTree, old: PyTree) -> PyTree:
    """``new`` if ``where``, else ``old``, bit for bit."""
    return jax.tree.map(lambda a, b: jnp.where(where, a, b), new, old)


def plus_scaled(gradient: PyTree, scale: float, penalty: PyTree) -> PyTree:
    """gradient + scale * penalty, leaf by leaf."""
    return jax.tree.map(lambda g, p: g + scale * p, gradient, penalty)
