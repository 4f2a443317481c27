"""Where the paper's candidates come from: a running summary of the clusters.

Averaging networks is known to be poor, and the paper found a kernel density estimate
slightly better than the average; both are here, as is the average weighted by size.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from taskmix.mixture.clusters import as_rows

Refresh = Literal["average", "weighted", "density"]


def summary(
    params: PyTree,
    alive: Bool[Array, " clusters"],
    sizes: Float[Array, " clusters"],
    refresh: Refresh,
    key: Key[Array, ""],
) -> PyTree:
    """One set of parameters that stands for all living clusters.

    ``density`` draws a cluster in proportion to its size: the centre of one kernel of
    the density estimate, to which ``candidate`` adds the kernel's noise.
    """
    weights = jnp.where(alive, 1.0 if refresh == "average" else jnp.maximum(sizes, 1.0), 0.0)
    if refresh == "density":
        drawn = jax.random.categorical(key, jnp.log(weights))
        return jax.tree.map(lambda leaf: leaf[drawn], params)
    weights = weights / jnp.sum(weights)

    def average(leaf: Array) -> Array:
        living = jnp.where(as_rows(alive, leaf), leaf, 0)
        return jnp.tensordot(weights, living, axes=1)

    return jax.tree.map(average, params)


def candidate(centre: PyTree, noise: float, key: Key[Array, ""]) -> PyTree:
    """A draw from N(centre, noise^2); exactly the centre when there is no noise."""
    if noise == 0:
        return centre
    leaves, structure = jax.tree.flatten(centre)
    keys = jax.random.split(key, len(leaves))
    drawn = [
        leaf + noise * jax.random.normal(k, leaf.shape)
        for k, leaf in zip(keys, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, drawn)
