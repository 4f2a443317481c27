"""The learner of a table with its state: predicts tasks, then learns from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from taskmix.compiled import quickly
from taskmix.learner import Growing, Info, Learner, Prediction
from taskmix.tables.packing import BatchShape, Sides, batches, questions, stacked
from taskmix.tasks import Examples, TaskBatch

LEVEL = 0.9
"""Of the intervals whose coverage is measured, and that all others are made of."""


@dataclasses.dataclass(frozen=True)
class Forecast:
    """What was said of the query of one task, in the units of the learner."""

    mean: np.ndarray
    """(query, outputs)"""
    low: np.ndarray | None
    high: np.ndarray | None
    responsibilities: np.ndarray
    background: float
    novelty: float


@dataclasses.dataclass
class Engine:
    """A learner and what it has learned so far."""

    learner: Learner
    shape: BatchShape
    width: int
    classes: bool
    seed: int
    state: Any = None
    steps: int = 0

    def begin(self) -> None:
        self.state = self.first()

    def first(self) -> Any:
        """The state before the first task; depends on the seed alone."""
        example = TaskBatch(self._blank(self.shape.support), self._blank(self.shape.query))
        return _init(self.learner, jax.random.key(self.seed), example)

    def _blank(self, rows: int) -> Examples:
        nothing = np.zeros((0, self.width), np.float32), np.zeros(0, np.float32)
        return stacked([nothing], self.shape.tasks, rows, self.classes)

    def predict(self, tasks: Sequence[Sides]) -> list[Forecast]:
        """Of every task from its support set alone, changing nothing."""
        parts: list[list[Forecast]] = [[] for _ in tasks]
        for question in questions(tasks, self.shape, self.width, self.classes):
            found = _predicted(
                self.learner, self.state, question.support, question.query_x, question.query_mask
            )
            known = found.variance is not None and not self.classes
            bounds = jax.device_get(_interval(found)) if known else None
            said = jax.device_get(
                (found.mean, found.responsibilities, found.background, found.novelty)
            )
            for place, (number, _, count) in enumerate(question.places):
                parts[number].append(_forecast(said, bounds, place, count))
        return [_joined(pieces) for pieces in parts]

    @property
    def full(self) -> bool:
        """Whether the learner has to be given room, and compiled anew, before its next step."""
        return isinstance(self.learner, Growing) and not self.learner.has_room(self.state, 1)

    def learn(self, tasks: Sequence[Sides]) -> list[Info]:
        """One step per batch; what the learner said of each."""
        infos = []
        for batch in batches(tasks, self.shape, self.classes):
            learner = self.learner
            if isinstance(learner, Growing) and self.full:
                self.state = learner.grow(self.state)
            key = jax.random.fold_in(jax.random.key(self.seed), self.steps)
            self.state, info = _step()(learner, self.state, batch, key)
            self.steps += 1
            infos.append(jax.device_get(info))
        return infos


@partial(jax.jit, static_argnums=0)
def _init(learner: Learner, key: Array, example: TaskBatch) -> Any:
    return learner.init(key, example)


@cache
def _step() -> Any:
    """Few tables have so many tasks that faster code would make up for a longer compilation."""

    def step(learner: Learner, state: Any, batch: TaskBatch, key: Array) -> tuple[Any, Info]:
        return learner.step(state, batch, key)

    return jax.jit(step, static_argnums=0, compiler_options=quickly())


@partial(jax.jit, static_argnums=0)
def _predicted(
    learner: Learner, state: Any, support: Examples, query_x: Array, mask: Array
) -> Prediction:
    return jax.vmap(lambda one, x, own: learner.predict(state, one, x, None, own))(
        support, query_x, mask
    )


@jax.jit
def _interval(found: Prediction) -> tuple[Array, Array]:
    return found.interval(LEVEL)


def _forecast(said: tuple[Any, ...], bounds: Any, place: int, count: int) -> Forecast:
    """One task's part of what was said of all; what a learner does not know is 0."""
    mean, responsibilities, background, novelty = said
    low, high = (None, None) if bounds is None else (side[place, :count] for side in bounds)
    return Forecast(
        mean[place, :count],
        low,
        high,
        responsibilities[place],
        0.0 if background is None else float(background[place]),
        0.0 if novelty is None else float(novelty[place]),
    )


def _joined(pieces: list[Forecast]) -> Forecast:
    if len(pieces) == 1:
        return pieces[0]
    first = pieces[0]
    low, high = (
        None
        if getattr(first, side) is None
        else np.concatenate([getattr(piece, side) for piece in pieces])
        for side in ("low", "high")
    )
    mean = np.concatenate([piece.mean for piece in pieces])
    return dataclasses.replace(first, mean=mean, low=low, high=high)
