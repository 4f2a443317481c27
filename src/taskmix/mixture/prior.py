"""The Chinese restaurant process: how many tasks sat at which cluster lately."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class WindowedCounts(eqx.Module):
    """Responsibilities of the last iterations, newest first, summed over the tasks."""

    window: Float[Array, "iterations clusters"]

    @staticmethod
    def empty(iterations: int, clusters: int) -> WindowedCounts:
        return WindowedCounts(jnp.zeros((iterations, clusters)))

    def counts(self) -> Float[Array, " clusters"]:
        return jnp.sum(self.window, axis=0)

    def push(self, shares: Float[Array, "tasks clusters"]) -> WindowedCounts:
        newest = jnp.sum(shares, axis=0)
        return WindowedCounts(jnp.concatenate([newest[None], self.window[:-1]]))


def log_places(
    counts: Float[Array, " clusters"], concentration: float, coefficient: float
) -> Float[Array, " places"]:
    """c * log n_l for every cluster, and c * log zeta for a new one as the last entry.

    The common normaliser n + zeta cancels. A cluster that took nothing lately counts as
    one task: log 0 would forbid it to return.
    """
    places = jnp.append(jnp.maximum(counts, 1.0), concentration)
    return coefficient * jnp.log(places)
