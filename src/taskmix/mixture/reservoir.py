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
        place = self.place(where, key)
        new = batch.without_hints(), jnp.ones(where.shape, dtype=bool)
        tasks, filled = put((self.tasks, self.filled), place, new)
        return Reservoir(tasks, filled, self.offered + jnp.sum(where)), place

    def place(self, where: Bool[Array, " tasks"], key: Key[Array, ""]) -> Int[Array, " tasks"]:
        """To which place each of these tasks comes."""
        count = where.shape[0]
        number = self.offered + jnp.cumsum(where) - where
        drawn = jnp.floor(jax.random.uniform(key, (count,)) * (number + 1)).astype(int)
        rank = (jnp.cumsum(where) - where).astype(int)
        # Empty places by their numbers: before the one of a rank, as many are empty as it says.
        until = jnp.cumsum(~self.filled)
        empty = jnp.sum(until <= rank[:, None], axis=1)
        place = jnp.where(rank < until[-1], empty, drawn)
        place = jnp.where(where, place, self.places)
        # Of two tasks that come to the same place the later one stays there.
        later = jnp.triu(place[:, None] == place, k=1)
        return jnp.where(jnp.any(later, axis=1), self.places, jnp.minimum(place, self.places))

    def draw(
        self, key: Key[Array, ""], count: int, where: Bool[Array, " places"] | None = None
    ) -> tuple[TaskBatch, Bool[Array, " {count}"]]:
        """``count`` different tasks among those kept, and which of them are real.

        Where there are too few, the others are padding. ``where`` leaves places out.
        """
        usable = self.filled if where is None else self.filled & where
        drawn = jnp.where(usable, jax.random.uniform(key, usable.shape), 2.0)
        _, chosen = jax.lax.top_k(-drawn, count)
        return jax.tree.map(lambda leaf: leaf[chosen], self.tasks), usable[chosen]

    def drop(self, where: Bool[Array, " places"]) -> Reservoir:
        """Without the tasks ``where`` asked; the rest stands for as many as it did before."""
        filled = self.filled & ~where
        share = jnp.sum(filled) / jnp.maximum(jnp.sum(self.filled), 1)
        return Reservoir(self.tasks, filled, self.offered * share)


def offered(
    samples: Reservoir,
    beside: PyTree,
    batch: TaskBatch,
    new: PyTree,
    where: Bool[Array, "rows tasks"],
    keys: Key[Array, " rows"],
) -> tuple[Reservoir, PyTree]:
    """``offer`` to every row of samples, and ``new`` (rows, tasks) put ``beside`` those that come.

    A loop over what comes into a sample, which are few tasks: all else stays where it is in memory.
    """
    place = jax.vmap(Reservoir.place)(samples, where, keys)
    tasks, places = where.shape[1], samples.places

    def write(carry: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
        kept, waiting = carry
        first = jnp.argmax(waiting)
        own, task = first // tasks, first % tasks
        one = jax.tree.map(lambda leaf: leaf[task], batch.without_hints())
        one = (one, jnp.asarray(True), jax.tree.map(lambda leaf: leaf[own, task], new))

        def written(leaf: Array, value: Array) -> Array:
            start: list[Array | int] = [own, place[own, task], *[0] * value.ndim]
            return jax.lax.dynamic_update_slice(leaf, value[None, None], start)

        return jax.tree.map(written, kept, one), waiting & (jnp.arange(waiting.size) != first)

    kept, _ = jax.lax.while_loop(
        lambda carry: jnp.any(carry[1]),
        write,
        ((samples.tasks, samples.filled, beside), place.reshape(-1) < places),
    )
    tasks_kept, filled, beside = kept
    return Reservoir(tasks_kept, filled, samples.offered + jnp.sum(where, axis=1)), beside


def put(tree: PyTree, place: Int[Array, " some"], new: PyTree) -> PyTree:
    """The same with ``new`` rows in their places; those that have none are left out."""
    return jax.tree.map(lambda old, rows: old.at[place].set(rows, mode="drop"), tree, new)
