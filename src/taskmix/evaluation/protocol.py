"""The meta-test protocol: every family's test tasks, judged without learning from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from taskmix.evaluation.intervals import over_tasks
from taskmix.learner import Learner, Prediction, State, visible_hints
from taskmix.likelihood import masked_mean
from taskmix.tasks import Examples, Hints, Task, TaskBatch

LEVEL = 0.9
"""Probability of the intervals that targets are compared with."""


class Evaluation(eqx.Module):
    """One evaluation of one state on the test tasks of all families."""

    error: Float[Array, "*seeds families tasks"]
    """Error of the prediction that weighs the clusters by their responsibilities."""
    component_error: Float[Array, "*seeds families tasks clusters"]
    """Error of each cluster alone; infinite where its prediction is not a number."""
    responsibilities: Float[Array, "*seeds families tasks clusters"]
    """Posterior probability of each cluster; 0 for dead ones."""
    novelty: Float[Array, "*seeds families tasks"]
    """How untypical each task is of every cluster, from 0 to 1; NaN if it is not known."""
    background: Float[Array, "*seeds families tasks"]
    """Posterior probability that no cluster explains a task; 0 for learners that know none."""
    covered: Float[Array, "*seeds families tasks"]
    """Share of a task's query targets within their 90 % intervals; NaN if there are none."""


def evaluate(
    learner: Learner,
    state: State,
    test: TaskBatch,
    load: Callable[[TaskBatch], TaskBatch] = lambda drawn: drawn,
    chunk: int = 50,
) -> Evaluation:
    """Predict every test task from its support set and judge its real query examples.

    ``test`` has leading axes (families, tasks), and ``load`` gives its tasks their inputs.
    ``chunk`` tasks are predicted at a time, which bounds the memory; only one if the
    learner wants them so. Can be jitted, and vmapped over a leading axis of ``state``.
    A learner that is told something gets the hints of one task at a time: a family
    without an axis, and no boundary.
    """
    test = test.without_padding_values()
    families, tasks = test.query.mask.shape[:2]
    support, query = jax.tree.map(
        lambda leaf: leaf.reshape(families * tasks, *leaf.shape[2:]), (test.support, test.query)
    )

    def judge(drawn: Task) -> tuple[Array, ...]:
        loaded = load(TaskBatch(drawn.support, drawn.query, drawn.hints))
        support, query = loaded.support, loaded.query
        hints = visible_hints(learner, drawn.hints)
        prediction = learner.predict(state, support, query.x, hints, query.mask)

        def score(predicted: Array) -> Float[Array, ""]:
            return masked_mean(learner.likelihood.error(predicted, query.y), query.mask)

        component_error = jax.vmap(score)(prediction.components)
        return (
            score(prediction.mean),
            jnp.where(jnp.isnan(component_error), jnp.inf, component_error),
            prediction.responsibilities,
            jnp.asarray(jnp.nan if prediction.novelty is None else prediction.novelty),
            jnp.asarray(0.0 if prediction.background is None else prediction.background),
            _covered(prediction, query),
        )

    each = Task(support, query, _hints_of_each_task(test.hints, families * tasks))
    at_once = None if learner.one_at_a_time else min(chunk, families * tasks)
    judged = jax.lax.map(judge, each, batch_size=at_once)
    return Evaluation(*(leaf.reshape(families, tasks, *leaf.shape[1:]) for leaf in judged))


def _covered(prediction: Prediction, query: Examples) -> Float[Array, ""]:
    """Share of the targets of one task within their intervals.

    A class number lies in no interval: its distribution are the probabilities themselves.
    """
    if prediction.variance is None or query.y.shape != prediction.mean.shape:
        return jnp.asarray(jnp.nan)
    lower, upper = prediction.interval(LEVEL)
    within = (lower <= query.y) & (query.y <= upper)
    return masked_mean(jnp.mean(within, axis=-1), query.mask)


def _hints_of_each_task(hints: Hints | None, tasks: int) -> Hints | None:
    """With one axis of tasks; no phase begins with a test task."""
    if hints is None:
        return None
    family = None if hints.family is None else hints.family.reshape(-1)
    return Hints(family, jnp.zeros(tasks, dtype=bool))


def family_measures(
    evaluation: Evaluation, families: Sequence[str], alive: Shaped[np.ndarray, " clusters"]
) -> dict[str, dict[str, Any]]:
    """Means over each family's test tasks, as they stand in a run's ``metrics.jsonl``.

    Lists have one entry per cluster that is ``alive`` (a boolean per cluster). ``ci95`` is
    an interval over tasks; ``oracle`` gives each task its best cluster in hindsight;
    ``coverage`` is the share of targets within their 90 % intervals, None if the learner
    gives none; ``background`` is the share of the tasks that no cluster explains. What is not
    finite becomes None, since JSON knows no infinity.
    """
    alive = np.asarray(alive, dtype=bool)
    error = np.asarray(evaluation.error)
    component_error = np.asarray(evaluation.component_error)[..., alive]
    responsibilities = np.asarray(evaluation.responsibilities)[..., alive]
    return {
        family: {
            "error": _number(error[f].mean()),
            "ci95": _number(over_tasks(error[f])),
            "oracle": _number(component_error[f].min(axis=-1).mean()),
            "component_error": [_number(mean) for mean in component_error[f].mean(axis=0)],
            "responsibilities": [_number(mean) for mean in responsibilities[f].mean(axis=0)],
            "background": _number(np.asarray(evaluation.background)[f].mean()),
            "coverage": _number(np.asarray(evaluation.covered)[f].mean()),
        }
        for f, family in enumerate(families)
    }


def _number(value: float | np.floating) -> float | None:
    return float(value) if np.isfinite(value) else None
