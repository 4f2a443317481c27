"""Where the paper's candidates come from: a summary of the clusters, refreshed now and then.

Averaging networks is known to be poor, and the paper found a kernel density estimate slightly
better than the average; both are here, as is the average weighted by size.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from taskmix.mixture.clusters import as_rows

Refresh = Literal["average", "weighted", "density"]


class GlobalPrior(eqx.Module):
    """The clusters as they were at the last refreshment, and how much each of them weighs."""

    centres: PyTree
    weights: Float[Array, " clusters"]
    """They sum to 1; 0 for rows that held no cluster then, whose centres are 0."""
    due: Float[Array, ""]
    """The iteration of the next refreshment."""
    pause: Float[Array, ""]
    """Iterations from there to the one after it."""

    @staticmethod
    def at(params: PyTree, first: int, pause: int) -> GlobalPrior:
        """One set of parameters in the first of as many rows as there are."""
        rows = jax.tree.leaves(params)[0].shape[0]
        weights = jnp.zeros(rows).at[0].set(1.0)
        params = jax.tree.map(lambda leaf: jnp.where(as_rows(weights > 0, leaf), leaf, 0), params)
        return GlobalPrior(params, weights, jnp.zeros(()) + first, jnp.zeros(()) + pause)

    def mean(self) -> PyTree:
        """The average of the centres by their weights."""
        return jax.tree.map(lambda leaf: jnp.tensordot(self.weights, leaf, axes=1), self.centres)

    def kernel(self, key: Key[Array, ""]) -> PyTree:
        """The centre of one kernel of the density estimate, drawn by its weight."""
        drawn = jax.random.categorical(key, jnp.log(self.weights))
        return jax.tree.map(lambda leaf: leaf[drawn], self.centres)

    def refreshed(
        self,
        params: PyTree,
        weights: Float[Array, " clusters"],
        now: Int[Array, ""],
        growth: float,
        taken: Bool[Array, ""],
    ) -> GlobalPrior:
        """When it is due: the clusters as they are, if they are to be ``taken``.

        The next pause is ``growth`` times as long, whether or not they were.
        """
        time = now >= self.due
        params = jax.tree.map(lambda leaf: jnp.where(as_rows(weights > 0, leaf), leaf, 0), params)
        centres, weights = jax.tree.map(
            lambda mine, its: jnp.where(time & taken, its, mine),
            (self.centres, self.weights),
            (params, weights),
        )
        return GlobalPrior(
            centres,
            weights,
            jnp.where(time, self.due + self.pause, self.due),
            jnp.where(time, growth * self.pause, self.pause),
        )


def summary_weights(
    alive: Bool[Array, " clusters"], sizes: Float[Array, " clusters"], refresh: Refresh
) -> Float[Array, " clusters"]:
    """What the living clusters weigh: all alike, or by the tasks that they took in their lives."""
    weights = jnp.where(alive, 1.0 if refresh == "average" else jnp.maximum(sizes, 1.0), 0.0)
    return weights / jnp.sum(weights)


def deviation_at(
    noise: float, halved_after: int, iteration: Int[Array, ""] | int
) -> Float[Array, ""]:
    """Deviation of a candidate whose variance is half of noise^2 after some iterations.

    variance_t = noise^2 / (1 + t / halved_after), as certainty about a mean grows with what was
    seen; 0 keeps it as it is.
    """
    if halved_after == 0:
        return jnp.asarray(float(noise))
    return noise / jnp.sqrt(1 + iteration / halved_after)


def candidates(
    prior: GlobalPrior,
    refresh: Refresh,
    deviation: Float[Array, ""] | None,
    draws: int,
    key: Key[Array, ""],
) -> PyTree:
    """Draws from a normal distribution around the global prior; a leading axis of draws.

    With ``density`` each is around a kernel of its own. Without a deviation they are the centre.
    """

    def one(key: Key[Array, ""]) -> PyTree:
        kernel_key, noise_key = jax.random.split(key)
        centre = prior.kernel(kernel_key) if refresh == "density" else prior.mean()
        return centre if deviation is None else noisy(centre, deviation, noise_key)

    return jax.vmap(one)(jax.random.split(key, draws))


def noisy(centre: PyTree, deviation: Float[Array, ""], key: Key[Array, ""]) -> PyTree:
    """A draw from N(centre, deviation^2)."""
    leaves, structure = jax.tree.flatten(centre)
    keys = jax.random.split(key, len(leaves))
    drawn = [
        leaf + deviation * jax.random.normal(k, leaf.shape)
        for k, leaf in zip(keys, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, drawn)
