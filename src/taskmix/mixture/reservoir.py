"""A bounded uniform sample of the tasks that were learned from, to be learned from again.

J. S. Vitter: Random sampling with a reservoir. ACM Transactions on Mathematical Software 11, 1985.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from taskmix.tasks import TaskBatch


class Reservoir(eqx.Module):
    """Places for tasks. After s tasks were offered, each of them is kept with the same chance."""

    tasks: TaskBatch
    """One task per place; where none is, zeros that are masked."""
    filled: Bool[Array, "*clusters places"]
    offered: Float[Array, "*clusters"]
    """How many tasks were offered, less the share that was dropped again."""

    @staticmethod
    def empty(example: TaskBatch, places: int) -> Reservoir:
        """No task yet; ``example`` gives shapes."""
        tasks = jax.tree.map(
            lambda leaf: jnp.zeros((places, *leaf.shape[1:]), leaf.dtype), example.without_hints()
        )
        return Reservoir(tasks, jnp.zeros(places, dtype=bool), jnp.zeros(()))

    @property
    def places(self) -> int:
        return self.filled.shape[-1]

    def offer(
        self, batch: TaskBatch, where: Bool[Array, " tasks"], key: Key[Array, ""]
    ) -> tuple[Reservoir, Int[Array, " tasks"]]:
        """Offer the tasks ``where`` asked, and say to which place each came.

        The s-th task (from 1) goes to an empty place while there is one, afterwards to a place
        drawn from 1..s, and nowhere if that is beyond the last. Nowhere is a number that is no
        place: writing there changes nothing.
        """
        count = where.shape[0]
        number = self.offered + jnp.cumsum(where) - where
        drawn = jnp.floor(jax.random.uniform(key, (count,)) * (number + 1)).astype(int)
        empty = jnp.argsort(self.filled, stable=True)
        rank = (jnp.cumsum(where) - where).astype(int)
        free = self.places - jnp.sum(self.filled)
        place = jnp.where(rank < free, empty[jnp.minimum(rank, self.places - 1)], drawn)
        place = jnp.where(where, place, self.places)
        # Of two tasks that come to the same place the later one stays there.
        later = jnp.triu(place[:, None] == place, k=1)
        place = jnp.where(jnp.any(later, axis=1), self.places, jnp.minimum(place, self.places))
        tasks, filled = put(
            (self.tasks, self.filled), place, (batch.without_hints(), jnp.ones(count, dtype=bool))
        )
        return Reservoir(tasks, filled, self.offered + jnp.sum(where)), place

    def draw(
        self, key: Key[Array, ""], count: int, where: Bool[Array, " places"] | None = None
    ) -> tuple[TaskBatch, Bool[Array, " {count}"]]:
        """``count`` different tasks among those kept, and which of them are real.

        Where there are too few, the others are padding. ``where`` leaves places out.
        """
        usable = self.filled if where is None else self.filled & where
        order = jnp.argsort(jnp.where(usable, jax.random.uniform(key, usable.shape), 2.0))
        chosen = order[:count]
        return jax.tree.map(lambda leaf: leaf[chosen], self.tasks), usable[chosen]

    def drop(self, where: Bool[Array, " places"]) -> Reservoir:
        """Without the tasks ``where`` asked; the rest stands for as many as it did before."""
        filled = self.filled & ~where
        share = jnp.sum(filled) / jnp.maximum(jnp.sum(self.filled), 1)
        return Reservoir(self.tasks, filled, self.offered * share)


def put(tree: PyTree, place: Int[Array, " some"], new: PyTree) -> PyTree:
    """The same with ``new`` rows in their places; those that have none are left out."""
    return jax.tree.map(lambda old, rows: old.at[place].set(rows, mode="drop"), tree, new)
