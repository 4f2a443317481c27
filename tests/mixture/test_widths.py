import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from taskmix.mixture.widths import KEPT, PER_TASK, Widths
from taskmix.prediction import LEVELS

OBSERVE, FOUND = jax.jit(Widths.observe), jax.jit(Widths.levels)
MANY = KEPT // PER_TASK
"""Tasks that fill the places."""


def observed(widths: Widths, residuals, where=True, mask=True) -> Widths:
    """Residuals with axes (tasks, parts, query) of one output."""
    residuals = jnp.asarray(residuals)[..., None]
    tasks, parts, query, _ = residuals.shape
    mask = jnp.broadcast_to(jnp.asarray(mask), (tasks, query))
    return OBSERVE(widths, residuals, mask, jnp.broadcast_to(jnp.asarray(where), (tasks, parts)))


def of_part(values) -> Widths:
    """Of one part that has seen these residuals, two per task."""
    values = np.asarray(values, dtype=np.float32).reshape(-1, 1, PER_TASK)
    return observed(Widths.begin(1), values)


@pytest.mark.parametrize(
    "distribution",
    [scipy.stats.expon(), scipy.stats.uniform(), scipy.stats.halfcauchy(), scipy.stats.beta(5, 1)],
    ids=["exponential", "uniform", "cauchy", "beta"],
)
def test_intervals_hold_new_residuals_of_any_distribution_as_often_as_they_say(distribution):
    """The mean coverage of a sample of n is the level to within 1/(n + 1), for each draw of it
    with a deviation of sqrt(level (1 - level) / n); here the probability is known exactly."""
    residuals = distribution.rvs(KEPT, random_state=0)
    covered = distribution.cdf(np.asarray(FOUND(of_part(residuals))[0]))
    levels = np.array(LEVELS)
    deviation = np.sqrt(levels * (1 - levels) / KEPT) + 2 / KEPT
    np.testing.assert_array_less(np.abs(covered - levels) / deviation, 4)


def test_widths_are_normal_while_too_little_is_known():
    expected = scipy.stats.norm.ppf((1 + np.array(LEVELS)) / 2)
    np.testing.assert_allclose(FOUND(of_part(np.full(KEPT - 2, 9.0)))[0], expected, rtol=1e-5)


def test_widths_are_measured_when_the_places_are_full():
    np.testing.assert_allclose(FOUND(of_part(np.full(KEPT, 9.0)))[0], 9)


def test_the_newest_residuals_replace_the_oldest():
    widths = observed(of_part(np.arange(KEPT)), [[[-1.0, -2.0]]])
    assert widths.residuals[0, :4].tolist() == [-1, -2, 2, 3]


def test_a_task_contributes_no_more_than_its_first_queries():
    widths = observed(Widths.begin(1), [[[5.0, 6.0, 7.0, 8.0]]])
    assert widths.seen.tolist() == [PER_TASK]
    assert widths.residuals[0, :3].tolist() == [5, 6, 1]


def test_masked_queries_do_not_contribute():
    mask = jnp.array([[False, True], [True, False]])
    widths = observed(Widths.begin(1), [[[5.0, 6.0]], [[7.0, 8.0]]], mask=mask)
    assert widths.residuals[0, :3].tolist() == [6, 7, 1]


def test_a_part_takes_in_only_its_own_tasks():
    residuals = [[[1.5, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]]
    widths = observed(Widths.begin(2), residuals, where=jnp.array([[True, False], [False, False]]))
    assert widths.residuals[:, :3].tolist() == [[1.5, 2, 1], [1, 1, 1]]
    assert widths.seen.tolist() == [2, 0]


def test_residuals_that_do_not_count_may_be_anything():
    residuals = jnp.array([[[jnp.nan, jnp.inf]]])
    found = observed(of_part(np.arange(KEPT)), residuals, where=False)
    np.testing.assert_array_equal(found.residuals, of_part(np.arange(KEPT)).residuals)


def test_a_part_that_forgets_is_normal_again():
    widths = observed(Widths.begin(2), np.full((MANY, 2, PER_TASK), 9.0))
    found = FOUND(widths.forget(jnp.array([True, False])))
    np.testing.assert_allclose(found[0, 0], scipy.stats.norm.ppf(0.525), rtol=1e-4)
    np.testing.assert_allclose(found[1], 9)


def test_what_is_masked_or_not_asked_for_takes_no_place():
    residuals = [[[-1.0, -2.0]], [[-3.0, -4.0]], [[-5.0, -6.0]]]
    mask = [[True, True], [False, True], [True, True]]
    widths = observed(of_part(np.arange(KEPT)), residuals, [[False], [True], [True]], mask)
    assert widths.residuals[0, :5].tolist() == [-4, -5, -6, 3, 4]


def test_of_more_than_there_is_room_for_the_newest_stay():
    tasks = KEPT // PER_TASK + 3
    values = np.arange(tasks * PER_TASK, dtype=np.float32).reshape(tasks, 1, PER_TASK)
    found = np.asarray(observed(Widths.begin(1), values).residuals[0])
    np.testing.assert_array_equal(np.sort(found), np.arange(values.size - KEPT, values.size))
