"""Batches that would leave numbers which are not finite: they are not learned from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

from taskmix.learner import Info, State
from taskmix.tasks import TaskBatch


class Skips(NamedTuple):
    """Which batches were skipped, and which of their tasks may be the cause."""

    batch: Shaped[Array | np.ndarray, "*seeds_iterations"]
    """Whether it was skipped: the state is as before it, bit for bit."""
    task: Shaped[Array | np.ndarray, "*seeds_iterations tasks"]
    """Which of its tasks hold, or were predicted with, numbers that are not finite."""


@jax.jit
def healthy(before: State, after: State, loss: Float[Array, "*axes"]) -> Bool[Array, ""]:
    """Whether the losses are finite, and so is everything in the state that was before."""

    def stayed_finite(old: Array, new: Array) -> Bool[Array, ""]:
        if not jnp.issubdtype(new.dtype, jnp.inexact):
            return jnp.asarray(True)
        return jnp.all(jnp.isfinite(new) | ~jnp.isfinite(old))

    leaves = jax.tree.leaves(jax.tree.map(stayed_finite, before, after))
    return jnp.all(jnp.isfinite(loss)) & jnp.all(jnp.asarray(leaves))


def suspects(batch: TaskBatch, info: Info) -> Bool[Array, " tasks"]:
    """Tasks with examples, or with an error, that are not finite."""
    broken = ~jnp.isfinite(info.error)
    batch = batch.without_padding_values()
    for values in (batch.support.x, batch.support.y, batch.query.x, batch.query.y):
        if jnp.issubdtype(values.dtype, jnp.inexact):
            broken |= jnp.any(~jnp.isfinite(values), axis=tuple(range(1, values.ndim)))
    return broken


def if_learned(info: Info, learned: Bool[Array, ""]) -> Info:
    """The same, or that nothing happened, for a batch that was skipped."""
    return Info(
        loss=jnp.where(learned, info.loss, jnp.nan),
        error=jnp.where(learned, info.error, jnp.nan),
        responsibilities=jnp.where(learned, info.responsibilities, 0.0),
        clusters=info.clusters - (info.spawned & ~learned),
        spawned=info.spawned & learned,
        suspicion=jnp.where(learned, info.suspicion, 0.0),
    )


def check_skips(
    skips: Skips | None, before: Sequence[int], most: int, seeds: Sequence[int], stop: int
) -> tuple[int, ...]:
    """Batches of each seed that were skipped one after the other until ``stop``.

    There were ``before`` of them when the chunk began. Raises a ``ValueError`` that says
    where and what, if there are as many as ``most`` anywhere.
    """
    if skips is None:
        return (0,) * len(seeds)
    in_a_row = list(before)
    for position, seed in enumerate(seeds):
        for offset, skipped in enumerate(skips.batch[position]):
            in_a_row[position] = in_a_row[position] + 1 if skipped else 0
            if in_a_row[position] >= most:
                last = stop - skips.batch.shape[1] + offset
                cause = _cause(np.asarray(skips.task[position, offset]))
                raise ValueError(
                    f"The loss or the gradient of seed {seed} is not finite at iteration "
                    f"{last - in_a_row[position] + 1}; {in_a_row[position]} batches in a row "
                    f"were skipped ({cause}). Lower the meta "
                    f"rate or the adaptation rate, or remove examples that are not numbers."
                )
    return tuple(in_a_row)


def _cause(tasks: Shaped[np.ndarray, " tasks"]) -> str:
    broken = np.flatnonzero(tasks)
    if not broken.size:
        return "no single task is the cause"
    return f"in the last of them, because of task {', '.join(map(str, broken))}"
