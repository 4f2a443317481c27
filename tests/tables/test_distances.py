"""Intervals become as wide as would have held the right share of past targets."""

import numpy as np
import pytest
from tests.tables.conftest import rows

from taskmix.estimator import TableLearner
from taskmix.tables.distances import KEPT, Distances
from taskmix.tables.engine import Forecast
from taskmix.tables.packing import Sides


def said(count, half, seed=0, off=0.0):
    """Tasks with standard normal errors, and forecasts whose 90 % intervals are ``half`` wide."""
    rng = np.random.default_rng(seed)
    tasks, found = [], []
    for number in range(count):
        x, y = np.zeros((10, 1), np.float32), rng.normal(size=10)
        tasks.append(Sides(f"t{number}", x, y, x, y))
        mean = np.full((10, 1), -off)
        found.append(Forecast(mean, mean - half, mean + half, np.ones(1), 0.0, 0.0))
    return tasks, found, [np.full((10, 1), off)] * count


@pytest.mark.parametrize("half", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.98])
def test_too_narrow_and_too_wide_intervals_are_made_right(half, level):
    distances = Distances()
    distances.learn(*said(300, half))
    tasks, _, _ = said(300, half, seed=1)
    every = np.abs(np.concatenate([task.query_y for task in tasks]))
    assert np.mean(every <= half * distances.factor(level)) == pytest.approx(level, abs=0.03)


def test_distances_are_those_of_what_was_said_with_its_correction():
    plain, moved = Distances(), Distances()
    plain.learn(*said(50, 1.0))
    moved.learn(*said(50, 1.0, off=7.0))
    np.testing.assert_allclose(moved.newest, plain.newest)


def test_before_the_first_task_intervals_are_as_the_learner_says():
    assert Distances().factor(0.9) == pytest.approx(1, abs=0.02)


def test_what_is_long_past_is_forgotten():
    one, other = Distances(), Distances()
    one.learn(*said(200, 0.01))
    for each in (one, other):
        each.learn(*said(200, 1.0, seed=1))
    assert len(one.newest) == KEPT
    np.testing.assert_array_equal(one.newest, other.newest)


def test_a_higher_level_is_wider_also_beyond_the_sample():
    distances = Distances()
    distances.learn(*said(200, 1.0))
    factors = [distances.factor(level) for level in (0.5, 0.9, 0.99, 0.999, 0.999999)]
    assert factors == sorted(set(factors))


def test_what_is_not_finite_teaches_nothing_and_no_width_is_a_miss():
    tasks, found, shifts = said(1, 0.0)
    tasks[0].query_y[:5] = np.nan
    distances = Distances()
    distances.learn(tasks, found, shifts)
    new = distances.newest[len(Distances().newest) :]
    assert len(new) == 4
    assert np.all(new == 1000)


@pytest.mark.parametrize("newest", [np.zeros((2, 2)), np.zeros(0), np.array([-1.0]), [np.nan]])
def test_arrays_that_cannot_be_are_refused(newest):
    with pytest.raises(ValueError, match="no list of positive numbers"):
        Distances().restore({"newest": newest})


@pytest.mark.usefixtures("quick")
def test_what_a_table_says_of_its_intervals_holds():
    learner = TableLearner("task", "y", time="when", inputs=["a", "b"], support=2, batch=4)
    model = learner.fit(rows()).model_
    known, asked = rows()[:2].drop("when"), rows()[2:6]
    widths = []
    for factor in (1, 3):
        model.distances.newest = np.full(9, float(factor))
        low, high = learner.predict(known, asked).interval(0.9)
        widths.append(high - low)
    np.testing.assert_allclose(widths[1], 3 * widths[0], rtol=1e-5)


@pytest.mark.usefixtures("quick")
def test_what_is_learned_later_changes_nothing_of_what_was_said():
    learner = TableLearner("task", "y", time="when", inputs=["a", "b"], support=2, batch=4)
    learner.fit(rows())
    found = learner.predict(rows()[:2].drop("when"), rows()[2:6])
    before = found.interval(0.8)
    learner.partial_fit(rows())
    np.testing.assert_array_equal(found.interval(0.8), before)
