"""Rivals are what they are called, and know nothing of what is to come."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from taskmix.tables.packing import Sides
from taskmix.tables.result import estimate
from taskmix.tables.rivals import STRENGTH, GlobalRidge, TaskRidge, rivals, with_statistics


def tasks(count, classes=0, seed=0):
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        x = rng.normal(size=(9, 3)).astype(np.float32)
        y = x @ [1.0, -2.0, 0.5] + rng.normal()
        y = (y > 0).astype(float) if classes else y
        made.append(Sides(f"t{number}", x[:4], y[:4], x[4:], y[4:]))
    return made


def test_ridge_per_task_is_that_of_scikit_learn():
    (task,) = tasks(1)
    expected = Ridge(STRENGTH).fit(task.support_x, task.support_y).predict(task.query_x)
    np.testing.assert_allclose(TaskRidge(0).predict([task])[0][:, 0], expected, rtol=1e-5)


def test_global_ridge_is_that_of_scikit_learn_on_the_past():
    past, (new,) = tasks(20), tasks(1, seed=5)
    ridge = GlobalRidge(0)
    ridge.learn(past)
    x = np.concatenate([with_statistics(task, 0) for task in past])
    y = np.concatenate([task.query_y for task in past])
    oracle = Ridge(STRENGTH, fit_intercept=False).fit(x, y)
    expected = oracle.predict(with_statistics(new, 0))
    np.testing.assert_allclose(ridge.predict([new])[0][:, 0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_every_rival_predicts_every_query_row(classes):
    past, new = tasks(12, classes), tasks(3, classes, seed=1)
    for rival in rivals(classes, seed=0):
        for known in (False, True):
            if known:
                rival.learn(past)
            found = rival.predict(new)
            assert [one.shape for one in found] == [(5, max(classes, 1))] * 3, rival.name


def test_the_interval_of_an_error_is_that_of_a_ratio_over_tasks():
    found = estimate(np.array([2.0, 4.0]), np.array([2.0, 2.0]))
    assert found.value == 1.5
    assert found.high - found.value == pytest.approx(1.96 * np.sqrt(2) / 4)
