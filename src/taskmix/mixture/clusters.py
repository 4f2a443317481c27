"""A stack of initialisations: parameters, optimiser states and which of them are alive."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Int, PyTree, Shaped


class Clusters(eqx.Module):
    """Every leaf has a leading axis as long as the capacity; dead rows are padding.

    Padding keeps shapes, and so compiled code, unchanged when a cluster is born.
    Clusters are born in order and keep their row for good.
    """

    params: PyTree
    optimiser: PyTree
    alive: Bool[Array, " clusters"]

    @staticmethod
    def stack(
        params: PyTree, optimiser: optax.GradientTransformation, alive: Bool[Array, " clusters"]
    ) -> Clusters:
        """Clusters from parameters that already have the leading axis."""
        return Clusters(params, jax.vmap(optimiser.init)(params), alive)

    @property
    def capacity(self) -> int:
        return self.alive.shape[0]

    def count(self) -> Int[Array, ""]:
        return jnp.sum(self.alive)

    def take(self, index: Int[Array, ""]) -> tuple[PyTree, PyTree]:
        """Parameters and optimiser state of one cluster."""
        return jax.tree.map(lambda leaf: leaf[index], (self.params, self.optimiser))

    def put(
        self, index: Int[Array, ""], params: PyTree, optimiser: PyTree, where: Bool[Array, ""]
    ) -> Clusters:
        """Replace one cluster and call it alive, if ``where``; else change no bit."""
        # A mask rather than an indexed update, which vmap over seeds turns into a scatter.
        chosen = (jnp.arange(self.capacity) == index) & where
        params, optimiser = jax.tree.map(
            lambda rows, row: jnp.where(as_rows(chosen, rows), row[None], rows),
            (self.params, self.optimiser),
            (params, optimiser),
        )
        return Clusters(params, optimiser, self.alive | chosen)

    def replaced(self, other: Clusters, where: Bool[Array, " clusters"]) -> Clusters:
        """Rows of ``other`` where asked, own rows elsewhere, bit for bit."""
        params, optimiser = jax.tree.map(
            lambda mine, theirs: jnp.where(as_rows(where, mine), theirs, mine),
            (self.params, self.optimiser),
            (other.params, other.optimiser),
        )
        return Clusters(params, optimiser, self.alive)


def with_rows(tree: PyTree, rows: int) -> PyTree:
    """The same arrays with ``rows`` more rows, copies of the first.

    A copy, rather than zeros, keeps what is computed for dead clusters finite.
    """
    return jax.tree.map(
        lambda leaf: jnp.concatenate([leaf, jnp.broadcast_to(leaf[:1], (rows, *leaf.shape[1:]))]),
        tree,
    )


def grown(clusters: Clusters) -> Clusters:
    """Twice the capacity; the new rows are dead."""
    capacity = clusters.capacity
    params, optimiser = with_rows((clusters.params, clusters.optimiser), capacity)
    alive = jnp.concatenate([clusters.alive, jnp.zeros(capacity, dtype=bool)])
    return Clusters(params, optimiser, alive)


def as_rows(values: Shaped[Array, " clusters"], leaf: Array) -> Array:
    """One value a cluster with as many axes as ``leaf``, to choose or weigh whole rows of it."""
    return values.reshape(values.shape + (1,) * (leaf.ndim - 1))
