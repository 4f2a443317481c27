"""Experience replay: MAML that goes on learning from a few tasks it has kept.

A. Chaudhry et al.: On tiny episodic memories in continual learning. 2019.
M. Riemer et al.: Learning to learn without forgetting by maximizing transfer and minimizing
interference. ICLR 2019 (the reservoir).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from taskmix.baselines.maml import Initialisation, MAMLState
from taskmix.learner import Info, Told
from taskmix.tasks import TaskBatch


class ReplayState(MAMLState):
    kept: TaskBatch
    """Tasks that may be replayed; only the first ``seen`` of them are real."""
    seen: Int[Array, ""]
    """Tasks seen so far."""


@dataclasses.dataclass(frozen=True)
class Replay(Initialisation):
    """Every batch is learned together with as many tasks drawn from those kept.

    The tasks kept are a uniform sample of all tasks seen (a reservoir). With J tasks in the
    batch and n replayed, the loss is the mean over all J + n.
    """

    size: int = 40
    """Tasks that are kept."""

    told = Told.NOTHING

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size < 1:
            raise ValueError(f"size is {self.size}; it must be at least 1.")

    def init(self, key: Key[Array, ""], example: TaskBatch) -> ReplayState:
        params = self.model.init(key)
        kept = jax.tree.map(
            lambda leaf: jnp.zeros((self.size, *leaf.shape[1:]), leaf.dtype),
            example.without_hints(),
        )
        return ReplayState(params, self._begin(params), kept, jnp.asarray(0))

    def step(
        self, state: ReplayState, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[ReplayState, Info]:
        batch = batch.without_padding_values().without_hints()
        draw_key, keep_key = jax.random.split(key)
        gradient, result = self._gradient(state.params, batch, key)
        again, replayed = self._draw(state, batch, draw_key)
        gradient_again, _ = self._gradient(state.params, again, key)
        share = replayed / (replayed + batch.query.mask.shape[0])
        both = jax.tree.map(lambda new, old: new + share * (old - new), gradient, gradient_again)
        moved = self._moved(state.params, state.optimiser, both)
        kept, seen = _keep(state, batch, keep_key)
        return ReplayState(moved.params, moved.optimiser, kept, seen), self._info(result, batch)

    def _draw(
        self, state: ReplayState, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[TaskBatch, Int[Array, ""]]:
        """Distinct tasks among those kept, and how many of them are real: all or none.

        From the second batch on, as many are kept as may be drawn. Before, the tasks of the
        batch stand in for them, which have shapes and finite gradients.
        """
        count = min(self.size, batch.query.mask.shape[0])
        filled = jnp.arange(self.size) < state.seen
        chosen = jax.random.choice(
            key, self.size, (count,), replace=False, p=jnp.where(state.seen > 0, filled, 1.0)
        )
        drawn = jax.tree.map(
            lambda kept, now: jnp.where(state.seen > 0, kept[chosen], now[:count]),
            state.kept,
            batch,
        )
        return drawn, jnp.where(state.seen > 0, count, 0)


def _keep(
    state: ReplayState, batch: TaskBatch, key: Key[Array, ""]
) -> tuple[TaskBatch, Int[Array, ""]]:
    size, tasks = state.kept.query.mask.shape[0], batch.query.mask.shape[0]
    source = reservoir(key, state.seen, size, tasks)
    kept = jax.tree.map(
        lambda old, new: jnp.where(
            (source >= 0).reshape(-1, *(1,) * (old.ndim - 1)), new[jnp.maximum(source, 0)], old
        ),
        state.kept,
        batch,
    )
    return kept, state.seen + tasks


def reservoir(
    key: Key[Array, ""], seen: Int[Array, ""], size: int, tasks: int
) -> Int[Array, " {size}"]:
    """Which of the next tasks comes to each place of a reservoir; -1 where none does.

    The s-th task seen (from 1) goes to place s while there are empty ones; afterwards to a
    place drawn from 1..s, and nowhere if that is beyond the last. So each of s tasks is
    kept with probability size / s.
    """
    number = seen + jnp.arange(tasks)
    drawn = jax.random.randint(key, (tasks,), 0, number + 1)
    place = jnp.where(number < size, number, drawn)
    # Of two tasks that come to the same place the later one stays there.
    return jnp.full(size, -1).at[place].max(jnp.arange(tasks), mode="drop")
