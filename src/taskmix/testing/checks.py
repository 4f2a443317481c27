"""What every learner owes, one function each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from taskmix.evaluation import evaluate
from taskmix.learner import (
    Growing,
    Learner,
    Prediction,
    Told,
    stayed_finite,
    visible_hints,
)
from taskmix.testing.comparing import assert_alike, assert_close, assert_equal
from taskmix.testing.trial import KEY, STEPS, Trial, filled, ragged, scaled


def check_protocol(trial: Trial) -> None:
    """The learner has every member of the protocol, and its settings cannot be changed."""
    learner: Any = trial.learner
    meets: bool = isinstance(learner, Learner)
    assert meets, "a member of taskmix.Learner is missing"
    assert dataclasses.is_dataclass(learner), "a learner is a dataclass"
    for field in dataclasses.fields(learner)[:1]:
        try:
            setattr(learner, field.name, getattr(learner, field.name))
        except dataclasses.FrozenInstanceError:
            return
        raise AssertionError("the dataclass of a learner is frozen=True")


def check_info(trial: Trial) -> None:
    """Information on a step has the shapes of the batch and of the clusters."""
    _, info = trial.after
    tasks = trial.batch(STEPS).query.mask.shape[0]
    clusters = trial.predicted(trial.batch(STEPS)).responsibilities.shape[0]
    for name in ("loss", "spawned", "alarm", "suspicion"):
        assert getattr(info, name).shape == (), f"info.{name} is one number"
    assert info.error.shape == (tasks,), "info.error has one number per task"
    assert info.responsibilities.shape == (tasks, clusters), "one responsibility per cluster"
    assert info.alive.shape == (clusters,), "info.alive has one entry per cluster"
    assert {info.spawned.dtype, info.alarm.dtype, info.alive.dtype} == {jnp.dtype(bool)}
    assert 0 <= info.suspicion <= 1, "suspicion lies between 0 and 1"
    assert info.clusters >= 1, "there is at least one cluster"


def check_births(trial: Trial) -> None:
    """A cluster is opened in a row that was empty, so that others know which is which."""
    state, before = trial.after
    for iteration in range(STEPS + 1, STEPS + 5):
        state, after = trial.step(state, trial.batch(iteration), KEY)
        born = int((after.alive & ~before.alive).sum())
        assert born == int(after.spawned), "a step that spawns fills one empty row"
        before = after


def check_fewer_tasks(trial: Trial) -> None:
    """A batch may have fewer tasks: those that are not finite are left out."""
    one = trial.batch(STEPS).take(jnp.array([1]))
    after, info = jax.eval_shape(trial.learner.step, trial.state, one, KEY)
    assert info.error.shape == (1,), "info.error has one number per task"
    assert_alike(after, trial.state)


def check_prediction(trial: Trial) -> None:
    """A prediction is finite, within its bounds, and has the shapes of query and clusters."""
    batch = trial.batch(STEPS)
    prediction = trial.predicted(batch)
    clusters, queries = prediction.responsibilities.shape[0], batch.query.mask.shape[1]
    outputs = prediction.mean.shape[-1]
    assert prediction.mean.shape == (queries, outputs), "mean has axes (query, outputs)"
    assert prediction.components.shape == (clusters, queries, outputs)
    for name in ("variance", "noise"):
        part = getattr(prediction, name)
        assert part is None or part.shape == (queries, outputs), f"{name} has the mean's shape"
    for name in ("mean", "variance", "noise", "background", "novelty"):
        part = getattr(prediction, name)
        assert part is None or np.isfinite(part).all(), f"{name} is finite, or None"
    for name in ("novelty", "background"):
        share = getattr(prediction, name)
        assert share is None or (share.shape == () and 0 <= share <= 1), f"{name} is 0 to 1"
    if prediction.variance is not None:
        assert (prediction.variance >= 0).all(), "a variance is not negative"
        if prediction.noise is not None:
            most = prediction.variance * (1 + 1e-5)
            assert (prediction.noise <= most).all(), "noise is a part of the variance"


def check_intervals(trial: Trial) -> None:
    """A wider interval holds the narrower one; without a variance there is none."""
    prediction = trial.predicted(trial.batch(STEPS))
    if prediction.variance is None or not (prediction.variance > 0).all():
        return
    (low, high), (lower, higher) = (prediction.interval(level) for level in (0.5, 0.9))
    assert (lower < low).all(), "the interval of 0.9 reaches lower than that of 0.5"
    assert (low < high).all(), "an interval is not empty"
    assert (high < higher).all(), "the interval of 0.9 reaches higher than that of 0.5"


def check_state(trial: Trial) -> None:
    """A step keeps structure, shapes and types, so that one compilation is enough."""
    assert_alike(trial.after[0], trial.state)
    assert trial.compiled == 1, f"the step was compiled {trial.compiled} times for one shape"


def check_protection(trial: Trial) -> None:
    """Numbers that overflow on the way leave the state as fit to go on with as it was.

    A learner that keeps tasks must not keep those, either: it would overflow when they come again.
    """
    for size in (1e12, 1e20, 1e30):
        huge = scaled(trial.batch(STEPS), size)
        after, _ = trial.step(trial.state, huge, KEY)
        assert stayed_finite(trial.state, after), (
            f"a batch of numbers like {size:g} left some in the state that are not finite; put "
            f"taskmix.protected on `step`"
        )
        for iteration in range(STEPS + 1, STEPS + 4):
            after, info = trial.step(after, trial.batch(iteration), KEY)
            assert np.isfinite(info.loss), (
                f"after a batch of numbers like {size:g} nothing is learned any more; put "
                f"taskmix.protected on `step`"
            )


def check_pure(trial: Trial) -> None:
    """A step and a first state are functions of their arguments; an example gives shapes only."""
    before = jax.tree.map(np.array, trial.state)
    again = trial.step(trial.state, trial.batch(STEPS), KEY)
    assert_equal(again, trial.after, "the same step twice gives the same")
    assert_equal(jax.tree.map(np.array, trial.state), before, "a step leaves its state alone")
    first, other = trial.init(KEY, trial.batch(0)), trial.init(KEY, trial.batch(7))
    assert_equal(first, other, "init looks at the shapes of its example only")


def check_responsibilities(trial: Trial) -> None:
    """Responsibilities are a distribution over living clusters and the background."""
    _, info = trial.after
    prediction = trial.predicted(trial.batch(STEPS))
    background = 0.0 if prediction.background is None else float(prediction.background)
    total = float(prediction.responsibilities.sum()) + background
    assert abs(total - 1) < 1e-5, f"responsibilities and background add up to {total}"
    for shares in (*info.responsibilities, prediction.responsibilities):
        assert shares.sum() <= 1 + 1e-5, "responsibilities add up to 1 at most"
        assert prediction.background is not None or shares.sum() >= 1 - 1e-5
        assert (shares >= 0).all(), "responsibilities are not negative"
        assert not shares[~info.alive].any(), "a dead cluster is responsible for nothing"


def check_growth(trial: Trial) -> None:
    """Room for a step comes with growth, which changes no prediction."""
    learner, state = trial.learner, trial.state
    if not isinstance(learner, Growing):
        return
    grown = learner.grow(state)
    room = state if learner.has_room(state, 1) else grown
    assert learner.has_room(room, 1), "growth makes room for a step"
    batch = trial.batch(STEPS)
    before, after = trial.predicted(batch), trial.predicted(batch, grown)
    assert_equal(_known(after), _known(before), "growth changes no prediction")


def check_evaluation(trial: Trial) -> None:
    """The protocol of evaluation accepts the learner."""
    drawn = trial.stream.test_tasks(KEY, 0, 4)
    test = jax.tree.map(lambda leaf: leaf[None], drawn)
    judged = jax.jit(lambda state: evaluate(trial.learner, state, test, trial.stream.load))
    assert np.isfinite(judged(trial.state).error).all(), "test errors are finite"


def check_padding(trial: Trial) -> None:
    """The content of padding examples changes no bit."""
    blank, wild = (ragged(trial.batch(STEPS), fill) for fill in (0.0, math.nan))
    expected = trial.step(trial.state, blank, KEY)
    assert_equal(trial.step(trial.state, wild, KEY), expected, "padding changes no step")
    query = trial.batch(STEPS).query
    found, wanted = (
        trial.predicted(dataclasses.replace(one, query=query)) for one in (wild, blank)
    )
    assert_equal(found, wanted, "padding changes no prediction")


def check_padding_tasks(trial: Trial) -> None:
    """Tasks of nothing but padding change nothing, and have no error and no cluster."""
    batch = trial.batch(STEPS)
    tasks = batch.query.mask.shape[0]
    blank, wild = (filled(batch.padded(tasks + 2), fill) for fill in (0.0, math.nan))
    after, info = trial.step(trial.state, wild, KEY)
    expected = trial.step(trial.state, blank, KEY)
    assert_equal((after, info), expected, "the content of padding tasks changes no step")
    assert not np.isnan(info.error[:tasks]).any(), "a real task has an error"
    assert np.isnan(info.error[tasks:]).all(), "a task of padding has no error (NaN)"
    assert not info.responsibilities[tasks:].any(), "a task of padding belongs to no cluster"
    assert np.isfinite(info.loss), "padding leaves the loss finite"
    without, without_info = trial.after
    found = (after, info.loss, info.alive, info.error[:tasks], info.responsibilities[:tasks])
    wanted = (without, *(getattr(without_info, name) for name in ("loss", "alive", "error")))
    assert_close(found, (*wanted, without_info.responsibilities), "padding tasks change nothing")


def check_shorter_task(trial: Trial) -> None:
    """A support set with padding is the support set without it."""
    task = ragged(trial.batch(STEPS), math.nan).task(1)
    count = int(task.support.count())
    everything = jnp.ones(task.query.mask.shape, dtype=bool)
    short = jax.tree.map(lambda leaf: leaf[:count], task.support)
    query_x = trial.batch(STEPS).task(1).query.x
    found, wanted = (
        trial.predict(trial.state, support, query_x, task.hints, everything)
        for support in (short, task.support)
    )
    assert_close(found, wanted, "a support set without its padding predicts the same")


def check_query_mask(trial: Trial) -> None:
    """A query that is padding may hold anything."""
    task = trial.batch(STEPS).task(0)
    support, query, hints = task.support, task.query, task.hints
    mask = jnp.arange(query.mask.shape[0]) < 2
    wild = jnp.where(mask.reshape(-1, *(1,) * (query.x.ndim - 1)), query.x, 0.0)
    one = trial.predict(trial.state, support, query.x, hints, mask)
    other = trial.predict(trial.state, support, wild, hints, mask)
    np.testing.assert_allclose(one.mean[:2], other.mean[:2], rtol=1e-4, atol=1e-6)


def check_hints(trial: Trial) -> None:
    """The learner gets what it is told, and asks for nothing else."""
    everything = trial.whole(STEPS)
    if everything.hints is None:
        return
    other = dataclasses.replace(everything, hints=visible_hints(trial.learner, everything.hints))
    found = trial.step(trial.state, other, KEY)
    assert_equal(found, trial.after, "a step needs no more than what the learner is told")
    if trial.learner.told is Told.NOTHING:
        found = trial.step(trial.state, everything, KEY)
        assert_equal(found, trial.after, "a learner that is told nothing ignores all hints")


CHECKS: tuple[Callable[[Trial], None], ...] = (
    check_protocol,
    check_info,
    check_births,
    check_fewer_tasks,
    check_prediction,
    check_intervals,
    check_state,
    check_protection,
    check_pure,
    check_responsibilities,
    check_growth,
    check_evaluation,
    check_padding,
    check_padding_tasks,
    check_shorter_task,
    check_query_mask,
    check_hints,
)
"""Every part of the contract."""


def _known(prediction: Prediction) -> tuple[Any, ...]:
    """What does not depend on how many clusters there is room for."""
    names = ("mean", "variance", "noise", "background", "novelty")
    return tuple(getattr(prediction, name) for name in names)
