"""Errors that follow from what is known are corrected, and nothing else is."""

import numpy as np
import pytest
from tests.tables.conftest import rows

from taskmix.estimator import TableLearner
from taskmix.tables.correction import STRENGTH, Correction
from taskmix.tables.engine import Forecast
from taskmix.tables.packing import Sides
from taskmix.tables.ridge import RunningRidge


def forecasts(count, error, seed=0):
    """Tasks, and forecasts that are off by ``error(task)`` and by noise."""
    rng = np.random.default_rng(seed)
    tasks, found = [], []
    for number in range(count):
        x = rng.normal(size=(9, 3)).astype(np.float32)
        y = rng.normal(size=9)
        task = Sides(f"t{number}", x[:4], y[:4], x[4:], y[4:])
        mean = task.query_y - error(task) + 0.1 * rng.normal(size=5)
        tasks.append(task)
        found.append(Forecast(mean[:, None], None, None, np.ones(1), 0.0, 0.0))
    return tasks, found


def bias(task):
    """What a tail that is too light for the level of a task does."""
    return 0.3 + 0.5 * task.support_y.mean() - 0.2 * task.query_x[:, 0]


def test_errors_that_follow_from_support_and_inputs_are_corrected():
    correction = Correction()
    for seed in range(60):
        correction.learn(*forecasts(10, bias, seed))
    tasks, found = forecasts(10, bias, seed=99)
    shifts = np.concatenate(correction.shifts(tasks, found))[:, 0]
    expected = np.concatenate([bias(task) for task in tasks])
    assert np.mean(np.square(shifts - expected)) < 0.1 * np.mean(np.square(expected))


def test_nothing_is_corrected_where_it_would_have_made_the_past_worse():
    correction = Correction()
    correction.learn(*forecasts(30, bias))
    correction.learn(*forecasts(30, lambda task: -bias(task), seed=1))
    assert correction.share == 0
    assert not np.any(correction.shifts(*forecasts(4, bias)))


def test_as_much_is_corrected_as_would_have_made_the_past_best():
    correction = Correction()
    correction.learn(*forecasts(30, bias))
    tasks, found = forecasts(30, lambda task: 0.4 * bias(task), seed=1)
    whole = np.concatenate([correction._shift(*one) for one in zip(tasks, found, strict=True)])
    errors = np.concatenate(
        [t.query_y[:, None] - f.mean for t, f in zip(tasks, found, strict=True)]
    )
    correction.learn(tasks, found)
    best = min(np.linspace(0, 1, 1001), key=lambda share: np.square(errors - share * whole).sum())
    assert 0.2 < best < 0.8
    assert correction.share == pytest.approx(best, abs=1e-3)


def test_before_the_first_task_nothing_is_corrected():
    assert not np.any(Correction().shifts(*forecasts(4, bias)))


def test_what_is_not_finite_teaches_nothing():
    correction = Correction()
    correction.learn(*forecasts(30, bias))
    before = correction.arrays()
    tasks, found = forecasts(3, lambda task: np.full(5, np.nan))
    correction.learn(tasks, found)
    for name, own in correction.arrays().items():
        np.testing.assert_array_equal(own, before[name])


def test_one_typing_error_does_not_move_it_far():
    one, other = Correction(), Correction()
    for seed in range(20):
        for correction in (one, other):
            correction.learn(*forecasts(10, bias, seed))
    other.learn(*forecasts(1, lambda task: np.array([1e9, 0, 0, 0, 0]), 50))
    asked = forecasts(10, bias, seed=99)
    shifts = [np.concatenate(each.shifts(*asked)) for each in (one, other)]
    assert np.abs(shifts[0] - shifts[1]).max() < 0.1


def test_it_goes_on_from_its_arrays():
    one, other = Correction(), Correction()
    one.learn(*forecasts(30, bias))
    other.restore(one.arrays(), width=3)
    for correction in (one, other):
        correction.learn(*forecasts(20, bias, seed=1))
    asked = forecasts(5, bias, seed=2)
    for mine, theirs in zip(one.shifts(*asked), other.shifts(*asked), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    "change",
    [
        {"sums": np.array([np.nan, 0])},
        {"gram": np.zeros((2, 2))},
        {"weights": np.full((10, 1), np.inf)},
        {"rows": np.zeros(3)},
    ],
)
def test_arrays_that_do_not_fit_are_refused(change):
    one = Correction()
    one.learn(*forecasts(30, bias))
    with pytest.raises(ValueError, match=r"."):
        Correction().restore({**one.arrays(), **change}, width=3)


def test_arrays_of_other_inputs_are_refused():
    one = Correction()
    one.learn(*forecasts(30, bias))
    with pytest.raises(ValueError, match="not one of 4 inputs"):
        Correction().restore(one.arrays(), width=4)


def test_a_running_ridge_is_that_of_all_rows_together():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 4)), rng.normal(size=(60, 2))
    ridge = RunningRidge(STRENGTH)
    for start in range(0, 60, 20):
        ridge.learn(x[start : start + 20], y[start : start + 20])
    expected = np.linalg.solve(x.T @ x + STRENGTH * np.eye(4), x.T @ y)
    np.testing.assert_allclose(ridge.weights, expected, rtol=1e-10)


@pytest.mark.usefixtures("quick")
def test_means_and_intervals_are_moved_alike_and_in_units_of_the_table():
    frame = rows()
    learner = TableLearner("task", "y", time="when", inputs=["a", "b"], support=2, batch=4)
    model = learner.fit(frame).model_
    correction, model.correction = model.correction, Correction()
    known, asked = frame[:2].drop("when"), frame[2:6]
    plain = learner.predict(known, asked)
    model.correction = correction
    correction.along, correction.squares = 1.0, 1.0
    moved = learner.predict(known, asked)
    by = moved.mean - plain.mean
    assert np.abs(by).max() > 0
    for mine, theirs in zip(moved.interval(0.9), plain.interval(0.9), strict=True):
        np.testing.assert_allclose(mine - theirs, by, rtol=1e-4, atol=1e-6)
