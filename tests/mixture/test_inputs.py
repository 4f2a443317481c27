import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from taskmix.mixture.inputs import (
    BREADTH,
    LEAST_FREEDOM,
    MEMORY,
    PRIOR_TASKS,
    PRIOR_VARIANCE,
    SUPPORT,
    WHOLE,
    Inputs,
)

KEY = jax.random.key(0)
observe = jax.jit(Inputs.observe)


def known() -> Inputs:
    """Two rows and that of all tasks, each of which has seen something."""
    mean = jnp.array([[0.0, 1.0], [2.0, -1.0], [1.0, 0.0]])
    scatter = jnp.array([[[1.0, 0.2], [0.2, 0.5]], [[2.0, 0], [0, 0.1]], [[3.0, 0.3], [0.3, 1.0]]])
    count = jnp.array([30.0, 50.0, 80.0])
    return Inputs(
        jnp.stack([mean, mean + 1], axis=1), jnp.stack([scatter, scatter / 2], axis=1), count
    )


def covariance(scatter, count):
    """Shrunk towards independent statistics by two, the number of statistics, over all tasks."""
    told, kept = count / (count + PRIOR_TASKS), count / (count + 2)
    variance = told * np.diag(scatter) + (1 - told) * PRIOR_VARIANCE
    return np.where(np.eye(2), np.diag(variance + 1e-2 * PRIOR_VARIANCE), kept * scatter)


def student(statistics, mean, spread, count):
    freedom = LEAST_FREEDOM + count
    shape = spread * (freedom - 2) / freedom
    return scipy.stats.multivariate_t(mean, shape, df=freedom).logpdf(statistics)


@pytest.mark.parametrize("view", [SUPPORT, WHOLE])
def test_density_is_a_t_with_the_pooled_covariance_and_a_mean_known_from_so_many_tasks(view):
    inputs, statistics = known(), np.array([0.3, -0.7])
    scatter = np.asarray(inputs.scatter[:, view], np.float64)
    pooled = covariance((30 * scatter[0] + 50 * scatter[1]) / 80, 80)
    found = inputs.log_density(jnp.asarray(statistics), view)
    for row, count in ((0, 30), (1, 50)):
        expected = student(statistics, inputs.mean[row, view], (1 + 1 / count) * pooled, 80)
        np.testing.assert_allclose(found[row], expected, rtol=1e-5)
    blank = BREADTH * covariance(scatter[2], 80)
    expected = student(statistics, inputs.mean[2, view], blank, 80)
    np.testing.assert_allclose(found[2], expected, rtol=1e-5)


def test_before_anything_is_seen_nothing_is_said():
    assert not Inputs.begin(3, 2).log_density(jnp.array([5.0, -9.0]), WHOLE).any()


def test_a_row_that_has_seen_nothing_is_as_the_background():
    statistics = jnp.array([[0.0, 1.0], [1.0, 1.0]])
    inputs = Inputs.begin(3, 2).observe(statistics, statistics, jnp.array([[1.0, 0, 1]] * 2))
    found = inputs.log_density(jnp.array([0.2, 0.4]), SUPPORT)
    assert found[1] == found[2]
    assert found[0] != found[2]


def test_without_statistics_every_row_says_nothing():
    nothing = jnp.zeros((4, 0))
    inputs = Inputs.begin(3, 0).observe(nothing, nothing, jnp.ones((4, 3)))
    assert not inputs.log_density(nothing, SUPPORT).any()


def test_a_row_without_tasks_stays_as_it_is():
    before, far = known(), jnp.full((2, 2), 7.0)
    after = observe(before, far, far, jnp.array([[0.0, 1.0, 1.0], [0.3, 1.0, 1.0]]))
    for name in ("mean", "scatter", "count"):
        np.testing.assert_array_equal(getattr(after, name)[0], getattr(before, name)[0])
        assert np.any(getattr(after, name)[1] != getattr(before, name)[1])


def test_moments_are_those_of_all_tasks_together_whatever_the_batches():
    drawn = np.random.default_rng(0).normal(size=(60, 3)) * [1, 2, 3] + [5, 0, 0]
    inputs, halves = Inputs.begin(1, 3), drawn / 2
    for first in range(0, 60, 5):
        some = slice(first, first + 5)
        inputs = observe(inputs, jnp.asarray(drawn[some]), halves[some], jnp.ones((5, 1)))
    np.testing.assert_allclose(inputs.mean[0, SUPPORT], drawn.mean(axis=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        inputs.scatter[0, SUPPORT], np.cov(drawn.T, bias=True), rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(inputs.mean[0, WHOLE], halves.mean(axis=0), rtol=1e-4, atol=1e-5)
    assert inputs.count[0] == 60


def test_old_tasks_are_forgotten_after_as_many_as_are_remembered():
    inputs = Inputs.begin(1, 1)
    for level in (0.0, 3.0):
        for _ in range(3):
            tasks = jnp.full((1000, 1), level)
            inputs = observe(inputs, tasks, tasks, jnp.ones((1000, 1)))
    assert inputs.count[0] == MEMORY
    np.testing.assert_allclose(inputs.mean[0], 3.0, rtol=1e-4)


def test_far_more_statistics_than_tasks_still_tell_two_kinds_apart():
    """The first batches have fewer tasks than statistics; the covariance is then singular."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(100, 100)) / 10
    kinds = np.array([np.zeros(100), np.tile([1.0, -1.0], 50)])

    def tasks(kind, count):
        return jnp.asarray(kinds[kind] + rng.normal(size=(count, 100)) @ mixing)

    inputs = Inputs.begin(3, 100)
    for kind in (0, 1):
        some = tasks(kind, 6)
        weights = jnp.zeros((6, 3)).at[:, kind].set(1).at[:, 2].set(1)
        inputs = observe(inputs, some, some, weights)
    for kind in (0, 1):
        found = inputs.log_density(tasks(kind, 50), SUPPORT)
        assert np.isfinite(found).all()
        assert np.mean(np.argmax(found[:, :2], axis=1) == kind) > 0.95
