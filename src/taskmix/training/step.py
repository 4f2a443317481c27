"""One step outside of a run, with the care that a run takes."""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Key

from taskmix.learner import Info, Learner, State
from taskmix.tasks import TaskBatch, check_batch
from taskmix.training.skips import healthy, learned_in_part


def step(
    learner: Learner, state: State, batch: TaskBatch, key: Key[Array, ""]
) -> tuple[State, Info]:
    """Learn from a batch of one's own; the state that comes out is fit to go on with.

    The batch is checked first. ``learner.step`` itself leaves its state as it was if a batch
    would leave numbers in it that are not finite; here only the tasks that would do so are left
    out, and the whole batch where no single task is at fault. Then ``info.loss`` is NaN.

    A learner that opens clusters is to be given room by its caller (``has_room``, ``grow``).
    """
    batch = jax.tree.map(jnp.asarray, check_batch(batch))
    after, info = _stepped(learner, state, batch, key)
    if healthy(state, after, info.loss):
        return after, info
    tasks = int(batch.query.mask.shape[0])
    after, info, _ = learned_in_part(
        partial(_in_part, learner, state, batch, key), state, None, tasks
    )
    return after, info


@eqx.filter_jit
def _stepped(
    learner: Learner, state: State, batch: TaskBatch, key: Key[Array, ""]
) -> tuple[State, Info]:
    return learner.step(state, batch, key)


def _in_part(
    learner: Learner, state: State, batch: TaskBatch, key: Key[Array, ""], tasks: np.ndarray
) -> tuple[State, Info, Bool[Array, ""]]:
    after, info = _stepped(learner, state, batch.take(jnp.asarray(tasks)), key)
    return after, info, healthy(state, after, info.loss)
