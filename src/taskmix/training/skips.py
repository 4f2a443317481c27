"""Tasks that would leave numbers which are not finite: they are not learned from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

from taskmix.learner import Info, State, stayed_finite


class Diverged(ValueError):
    """A run that cannot go on, since batch after batch leaves numbers that are not finite."""


class Skips(NamedTuple):
    """Which tasks were not learned from, and which batches not at all."""

    batch: Shaped[Array | np.ndarray, "*seeds_iterations"]
    """Whether nothing was learned from it: the state is as before it, bit for bit."""
    task: Shaped[Array | np.ndarray, "*seeds_iterations tasks"]
    """Which of its tasks alone leave numbers that are not finite."""

    @staticmethod
    def none(shape: tuple[int, ...]) -> Skips:
        """Batches that were learned from as a whole; the last of their axes is that of tasks."""
        return Skips(np.zeros(shape[:-1], dtype=bool), np.zeros(shape, dtype=bool))

    @property
    def any(self) -> Shaped[np.ndarray, "*seeds_iterations"]:
        """Which batches were not learned from as a whole."""
        return np.asarray(self.batch | self.task.any(axis=-1))


@jax.jit
def healthy(before: State, after: State, loss: Float[Array, "*axes"]) -> Bool[Array, ""]:
    """Whether the losses are finite, and so is everything in the state that was before."""

    return jnp.all(jnp.isfinite(loss)) & stayed_finite(before, after)


def learned_in_part(
    step: Callable[[np.ndarray], tuple[State, Info, Bool[Array, ""]]],
    state: State,
    alive: Bool[Array | np.ndarray, " clusters"] | None,
    tasks: int,
) -> tuple[State, Info, Skips]:
    """Learn from those tasks of a batch that can be learned from.

    ``step`` learns from the tasks of the given numbers, and says whether all is finite then;
    ``alive`` are the clusters before it, None if the run has just begun. A task at fault is
    one with which alone it is not. If there is none, or if without them it still is not,
    nothing is learned.
    """
    lone = [step(np.array([task])) for task in range(tasks)]
    good = np.array([bool(fine) for _, _, fine in lone])
    if good.any() and not good.all():
        after, info, fine = step(np.flatnonzero(good))
        if fine:
            return after, _of_some(info, good), Skips(np.asarray(False), ~good)
    return state, _of_nothing(lone[0][1], alive, tasks), Skips(np.asarray(True), ~good)


def _of_some(info: Info, learned: Shaped[np.ndarray, " tasks"]) -> Info:
    """Those that were left out have no error, and no cluster took them."""
    shares = jnp.zeros((*learned.shape, info.responsibilities.shape[-1]))
    return dataclasses.replace(
        info,
        error=jnp.full(learned.shape, jnp.nan).at[learned].set(info.error),
        responsibilities=shares.at[learned].set(info.responsibilities),
    )


def _of_nothing(
    info: Info, alive: Bool[Array | np.ndarray, " clusters"] | None, tasks: int
) -> Info:
    """What a step says that did not take place; ``info`` is of one from the same state."""
    # The very first step neither opens nor removes a cluster.
    before = info.alive if alive is None else jnp.asarray(alive)
    return Info(
        loss=jnp.asarray(jnp.nan),
        error=jnp.full(tasks, jnp.nan),
        responsibilities=jnp.zeros((tasks, info.responsibilities.shape[-1])),
        alive=jnp.zeros_like(info.alive).at[: before.shape[0]].set(before),
        spawned=jnp.asarray(False),
        alarm=jnp.asarray(False),
        suspicion=jnp.asarray(0.0),
    )


def check_skips(
    skips: Skips | None, before: Sequence[int], most: int, seeds: Sequence[int], stop: int
) -> tuple[int, ...]:
    """Batches of each seed with tasks left out, one after the other until ``stop``.

    There were ``before`` of them when the chunk began. Raises ``Diverged``, which says
    where and what, if there are as many as ``most`` anywhere.
    """
    if skips is None:
        return (0,) * len(seeds)
    in_a_row = list(before)
    for position, seed in enumerate(seeds):
        for offset, skipped in enumerate(skips.any[position]):
            in_a_row[position] = in_a_row[position] + 1 if skipped else 0
            if in_a_row[position] >= most:
                last = stop - skips.batch.shape[1] + offset
                cause = _cause(np.asarray(skips.task[position, offset]))
                raise Diverged(
                    f"The loss or the gradient of seed {seed} is not finite at iteration "
                    f"{last - in_a_row[position] + 1} and in each of the {most} batches from "
                    f"there on ({cause}). Lower the meta rate or the adaptation rate, or remove "
                    f"examples that are not numbers."
                )
    return tuple(in_a_row)


def _cause(tasks: Shaped[np.ndarray, " tasks"]) -> str:
    broken = np.flatnonzero(tasks)
    if not broken.size:
        return "no single task is the cause"
    return f"in the last of them, because of task {', '.join(map(str, broken))}"
