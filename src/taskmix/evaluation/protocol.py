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
from taskmix.spread import rows_of_all
from taskmix.tasks import Examples, Hints, Task, TaskBatch

LEVEL = 0.9
"""Probability of the intervals that targets are compared with."""


CALIBRATION_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Probabilities of the intervals by which calibration is judged at the end of a run."""
BINS = 10
"""Of the probability of the most probable class."""
LEAST_HELD = 0.01
"""Part of the tasks that a cluster has to answer for to have an error on them."""
SHOWN = 24
"""Test tasks of each family whose predictions are kept, so that a person can look at some."""


class Details(eqx.Module):
    """What only reports need of an evaluation."""

    within: Float[Array, "*seeds families tasks levels"]
    """Share of a task's targets within their central intervals; NaN if there are none."""
    confidence: Float[Array, "*seeds families tasks bins 3"]
    """By the probability of the predicted class: how many, the sum of it, how many right."""
    mean: Float[Array, "*seeds families shown query outputs"]
    """Predictions of the first tasks of each family."""
    low: Float[Array, "*seeds families shown query outputs"]
    """Bounds of their 90 % intervals; NaN if there are none."""
    high: Float[Array, "*seeds families shown query outputs"]


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
    details: Details | None = None


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

    def tested(drawn: Task) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        loaded = load(TaskBatch(drawn.support, drawn.query, drawn.hints))
        support, query = loaded.support, loaded.query
        hints = visible_hints(learner, drawn.hints)
        prediction = learner.predict(state, support, query.x, hints, query.mask)

        def score(predicted: Array) -> Float[Array, ""]:
            return masked_mean(learner.likelihood.error(predicted, query.y), query.mask)

        component_error = jax.vmap(score)(prediction.components)
        low, high = _bounds(prediction)
        measured = (
            score(prediction.mean),
            jnp.where(jnp.isnan(component_error), jnp.inf, component_error),
            prediction.responsibilities,
            jnp.asarray(jnp.nan if prediction.novelty is None else prediction.novelty),
            jnp.asarray(0.0 if prediction.background is None else prediction.background),
            _covered(low, high, prediction, query),
        )
        details = (
            _within(prediction, query),
            _confidence(prediction, query),
            prediction.mean,
            low,
            high,
        )
        return measured, details

    each = Task(support, query, _hints_of_each_task(test.hints, families * tasks))

    def all_tested(some: Task) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        count = some.query.mask.shape[0]
        at_once = None if learner.one_at_a_time else min(chunk, count)
        return jax.lax.map(tested, some, batch_size=at_once)

    found, details = jax.tree.map(
        lambda leaf: leaf.reshape(families, tasks, *leaf.shape[1:]), rows_of_all(all_tested, each)
    )
    shown = (leaf[:, :SHOWN] for leaf in details[2:])
    error, component_error, shares, novelty, background, covered = found
    return Evaluation(
        error,
        component_error,
        shares,
        novelty,
        background,
        covered,
        Details(*details[:2], *shown),
    )


def _bounds(prediction: Prediction) -> tuple[Array, Array]:
    """Of the 90 % intervals; NaN if the learner knows none."""
    if prediction.variance is None:
        unknown = jnp.full_like(prediction.mean, jnp.nan)
        return unknown, unknown
    return prediction.interval(LEVEL)


def _covered(
    lower: Array, upper: Array, prediction: Prediction, query: Examples
) -> Float[Array, ""]:
    """Share of the targets of one task within their intervals.

    A class number lies in no interval: its distribution are the probabilities themselves.
    """
    if prediction.variance is None or query.y.shape != prediction.mean.shape:
        return jnp.asarray(jnp.nan)
    within = (lower <= query.y) & (query.y <= upper)
    return masked_mean(jnp.mean(within, axis=-1), query.mask)


def _within(prediction: Prediction, query: Examples) -> Float[Array, " levels"]:
    """The same for intervals of all levels, from where in its distribution a target lies."""
    if prediction.variance is None or query.y.shape != prediction.mean.shape:
        return jnp.full(len(CALIBRATION_LEVELS), jnp.nan)
    if prediction.mix is not None:
        below = prediction.mix.cumulative(query.y)
    else:
        deviation = jnp.sqrt(prediction.variance)
        below = jax.scipy.stats.norm.cdf((query.y - prediction.mean) / deviation)
    off_centre = jnp.abs(2 * below - 1)[..., None]
    inside = jnp.mean(off_centre <= jnp.asarray(CALIBRATION_LEVELS), axis=-2)
    return jax.vmap(masked_mean, in_axes=(-1, None))(inside, query.mask)


def _confidence(prediction: Prediction, query: Examples) -> Float[Array, "bins 3"]:
    """How sure predictions of classes are, and how often right; zeros for regression."""
    if query.y.ndim == prediction.mean.ndim:
        return jnp.zeros((BINS, 3))
    sure = jnp.max(prediction.mean, axis=-1)
    right = jnp.argmax(prediction.mean, axis=-1) == query.y
    place = jnp.clip((sure * BINS).astype(int), 0, BINS - 1)
    counted = query.mask.astype(sure.dtype)
    each = jnp.stack([counted, counted * sure, counted * right], axis=-1)
    return jnp.zeros((BINS, 3), sure.dtype).at[place].add(each)


def calibration(evaluation: Evaluation, families: Sequence[str]) -> dict[str, Any] | None:
    """How often intervals, or predicted classes, are right; None if that is not known.

    For regression, ``covered`` has the share of targets within intervals of ``levels``; for
    classes, ``confidence`` has, in ten steps of the probability of the predicted class, how
    many there are, the sum of these probabilities and how many are right.
    """
    if evaluation.details is None:
        return None
    within = np.asarray(evaluation.details.within).mean(axis=1)
    if np.isfinite(within).all():
        shares = [[_number(one) for one in row] for row in within]
        covered = dict(zip(families, shares, strict=True))
        return {"levels": list(CALIBRATION_LEVELS), "covered": covered}
    counts = np.asarray(evaluation.details.confidence, dtype=float).sum(axis=1)
    if not counts.any():
        return None
    rows = [[[round(one, 4) for one in step] for step in family] for family in counts.tolist()]
    return {"confidence": dict(zip(families, rows, strict=True))}


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
    an interval over tasks; ``weighted`` is the mean of the clusters' own errors by their
    responsibilities, the paper's measure, and ``likeliest`` that of the cluster with the largest;
    ``oracle`` gives each task its best cluster in hindsight; ``held_error`` is a cluster's error on
    the tasks that it answers for, None where it answers for next to none;
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
            "weighted": _number(weighted_errors(component_error[f], responsibilities[f]).mean()),
            "likeliest": _number(likeliest_errors(component_error[f], responsibilities[f]).mean()),
            "oracle": _number(component_error[f].min(axis=-1).mean()),
            "component_error": [_number(mean) for mean in component_error[f].mean(axis=0)],
            "held_error": [
                _number(mean) for mean in held_errors(component_error[f], responsibilities[f])
            ],
            "responsibilities": [_number(mean) for mean in responsibilities[f].mean(axis=0)],
            "background": _number(np.asarray(evaluation.background)[f].mean()),
            "coverage": _number(np.asarray(evaluation.covered)[f].mean()),
        }
        for f, family in enumerate(families)
    }


def weighted_errors(
    component_error: Float[np.ndarray, "tasks clusters"],
    responsibilities: Float[np.ndarray, "tasks clusters"],
) -> Float[np.ndarray, " tasks"]:
    """sum_l gamma_l error_l of each task, the clusters among themselves.

    For classes this is one minus the accuracy that is weighted by responsibilities. A cluster
    without responsibility adds nothing, whatever its error; where none has any, the mean is taken.

    >>> weighted_errors(np.array([[1.0, 5.0]]), np.array([[0.75, 0.25]])).tolist()
    [2.0]
    """
    taken = responsibilities > 0
    weights = np.where(taken.any(axis=-1, keepdims=True), responsibilities, 1.0)
    errors = np.where(weights > 0, component_error, 0.0)
    return (weights * errors).sum(axis=-1) / weights.sum(axis=-1)


def likeliest_errors(
    component_error: Float[np.ndarray, "tasks clusters"],
    responsibilities: Float[np.ndarray, "tasks clusters"],
) -> Float[np.ndarray, " tasks"]:
    """Error of each task's cluster with the largest responsibility.

    >>> likeliest_errors(np.array([[1.0, 5.0]]), np.array([[0.75, 0.25]])).tolist()
    [1.0]
    """
    best = responsibilities.argmax(axis=-1)
    return np.take_along_axis(component_error, best[..., None], axis=-1)[..., 0]


def held_errors(
    component_error: Float[np.ndarray, "tasks clusters"],
    responsibilities: Float[np.ndarray, "tasks clusters"],
) -> Float[np.ndarray, " clusters"]:
    """Each cluster's mean error, weighted by its responsibility for the tasks.

    NaN for a cluster whose part of all tasks is less than ``LEAST_HELD``.

    >>> held = held_errors(np.array([[1.0, 5.0], [3.0, 5.0]]), np.array([[0.9, 0.0], [0.1, 0.0]]))
    >>> held.round(3).tolist()
    [1.2, nan]
    """
    held = responsibilities.sum(axis=0)
    errors = (responsibilities * np.where(responsibilities > 0, component_error, 0.0)).sum(axis=0)
    enough = held >= LEAST_HELD * len(responsibilities)
    return np.where(enough, errors / np.where(enough, held, 1.0), np.nan)


def _number(value: float | np.floating) -> float | None:
    return float(value) if np.isfinite(value) else None
