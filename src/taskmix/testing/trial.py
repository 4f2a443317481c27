"""A learner on trial: its compiled methods, a state, and batches with padding."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp

from taskmix.learner import (
    Info,
    Learner,
    Prediction,
    State,
    visible,
)
from taskmix.streams import FunctionStream, Stream, interleaved
from taskmix.tasks import Examples, TaskBatch

KEY = jax.random.key(0)


STEPS = 3
"""Batches that a trial has learned from before it is looked at."""


def default_stream() -> FunctionStream:
    """Two families of functions in small batches."""
    return FunctionStream(interleaved(("linear", "sinusoid"), 100), tasks=3, support=4, query=5)


class Trial:
    """A learner with its compiled methods, and a state that is no longer the first one.

    >>> import taskmix as tm
    >>> Trial(tm.MAML(tm.MLP(hidden=(4,)))).compiled
    1
    """

    def __init__(self, learner: Learner, stream: Stream | None = None) -> None:
        self.learner = learner
        self.stream = stream or default_stream()
        self._traces = 0
        self._batch: Callable[..., TaskBatch] = jax.jit(self.stream.batch)
        self.init: Callable[..., State] = jax.jit(learner.init)
        self.predict: Callable[..., Prediction] = jax.jit(learner.predict)
        self.step: Callable[..., tuple[State, Info]] = jax.jit(self._counted)
        self.state = self.init(KEY, self.batch(0))
        for iteration in range(STEPS):
            self.state, _ = self.step(self.state, self.batch(iteration), KEY)
        self.compiled = self._traces

    def whole(self, iteration: int) -> TaskBatch:
        """A batch with all hints that the stream gives."""
        return self._batch(KEY, iteration)

    def batch(self, iteration: int) -> TaskBatch:
        """As the learner sees it."""
        return visible(self.learner, self.whole(iteration))

    @cached_property
    def after(self) -> tuple[State, Info]:
        """What one more step gives."""
        return self.step(self.state, self.batch(STEPS), KEY)

    def predicted(self, batch: TaskBatch, state: State = None) -> Prediction:
        """The first task of a batch."""
        task = batch.task(0)
        everything = jnp.ones(task.query.mask.shape, dtype=bool)
        state = self.state if state is None else state
        return self.predict(state, task.support, task.query.x, task.hints, everything)

    def _counted(self, state: State, batch: TaskBatch, key: jax.Array) -> tuple[State, Info]:
        self._traces += 1
        return self.learner.step(state, batch, key)


def ragged(batch: TaskBatch, fill: float) -> TaskBatch:
    """The batch with the last examples of its tasks masked, and this content in them."""

    def masked(examples: Examples) -> Examples:
        tasks, most = examples.mask.shape
        real = 1 + jnp.arange(tasks) % most
        return Examples(examples.x, examples.y, jnp.arange(most) < real[:, None])

    support, query = masked(batch.support), masked(batch.query)
    return filled(TaskBatch(support, query, batch.hints), fill)


def filled(batch: TaskBatch, fill: float) -> TaskBatch:
    """The batch with this content in its padding; class numbers there are 0."""

    def content(values: jax.Array, mask: jax.Array) -> jax.Array:
        expand = (...,) + (None,) * (values.ndim - mask.ndim)
        return jnp.where(mask[expand], values, jnp.asarray(fill if is_float(values) else 0))

    def padded(examples: Examples) -> Examples:
        x, y = (content(part, examples.mask) for part in (examples.x, examples.y))
        return Examples(x, y.astype(examples.y.dtype), examples.mask)

    return dataclasses.replace(batch, support=padded(batch.support), query=padded(batch.query))


def is_float(array: Any) -> bool:
    return bool(jnp.issubdtype(array.dtype, jnp.floating))


def scaled(batch: TaskBatch, by: float) -> TaskBatch:
    """The same batch with inputs and targets so many times as large; class numbers stay."""

    def larger(leaf: jax.Array) -> jax.Array:
        return leaf * by if is_float(leaf) else leaf

    support, query = jax.tree.map(larger, (batch.support, batch.query))
    return dataclasses.replace(batch, support=support, query=query)
