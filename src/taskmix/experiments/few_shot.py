"""The end of a few-shot run: the state that did best on validation, tested on new classes."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import numpy as np

from taskmix.adaptation import Adaptation
from taskmix.evaluation import Evaluation, evaluate, over_tasks
from taskmix.learner import Learner, State
from taskmix.streams import ImageStream
from taskmix.tasks import TaskBatch
from taskmix.training import Chunk, run_keys

FINAL_EPISODES = 600
"""Tasks of the final test, by the convention of few-shot tables."""


class EarlyStopping:
    """Keeps, for each seed, the state with the least validation error so far."""

    def __init__(self, seeds: int) -> None:
        self.error = [np.inf] * seeds
        self.iteration = [0] * seeds
        self.state: list[State] = [None] * seeds

    def see(self, chunk: Chunk) -> None:
        for seed, error in enumerate(np.mean(chunk.evaluation.error, axis=(1, 2))):
            if error < self.error[seed]:
                self.error[seed] = float(error)
                self.iteration[seed] = chunk.iteration
                # A copy on the host: the device's own is overwritten by the next chunk.
                self.state[seed] = jax.tree.map(lambda leaf, s=seed: _row(leaf, s), chunk.state)

    def restore(self, seed: int, error: float, iteration: int, state: State) -> None:
        """What was kept for one seed before an interruption."""
        self.error[seed], self.iteration[seed], self.state[seed] = error, iteration, state


def tested(
    stream: ImageStream, learner: Learner, state: State, seed: int, split: str
) -> dict[str, Any]:
    """Accuracy on the test tasks of a stream, as it stands in ``summary.json`` under ``test``."""
    data, recipe = eqx.partition(stream, eqx.is_array)

    @jax.jit
    def evaluated(data: Any, state: State) -> Evaluation:
        stream = eqx.combine(data, recipe)
        # Another key than that of the validation tasks, which have decided when to stop.
        key = jax.random.fold_in(run_keys(seed).test, 1)
        drawn: TaskBatch = stream.test_tasks(key, 0, FINAL_EPISODES)
        return evaluate(learner, state, with_family_axis(drawn), stream.load)

    evaluation = jax.tree.map(np.asarray, evaluated(data, state))
    accuracy = 1 - evaluation.error
    return {
        "split": split,
        "accuracy": float(accuracy.mean()),
        "ci95": over_tasks(accuracy.ravel()),
        "episodes": FINAL_EPISODES,
        "queries_per_class": stream.test_query,
        "responsibilities": [float(r) for r in evaluation.responsibilities.mean(axis=(0, 1))],
        "parameters": learner.parameters(state),
        "by_episode": [round(float(one), 6) for one in accuracy.ravel()],
    }


def with_steps(part: Any, steps: int) -> Any:
    """A learner, or a part of one, that adapts by so many gradient steps where it takes any."""
    if isinstance(part, Adaptation):
        return dataclasses.replace(part, steps=steps)
    if not dataclasses.is_dataclass(part) or isinstance(part, type):
        return part
    settings = {
        field.name: with_steps(getattr(part, field.name), steps)
        for field in dataclasses.fields(part)
        if field.init
    }
    return dataclasses.replace(part, **settings)


def with_family_axis(drawn: TaskBatch) -> TaskBatch:
    """Tasks of one family with the leading axis that ``evaluate`` expects."""
    alone: TaskBatch = jax.tree.map(lambda leaf: leaf[None], drawn)
    return alone


def _row(leaf: jax.Array, index: int) -> Any:
    return jax.device_get(leaf[index])
