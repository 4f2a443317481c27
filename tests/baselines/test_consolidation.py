import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.baselines.consolidation import Quadratic, begins_phase
from taskmix.tasks import Examples, TaskBatch

FIRST = Quadratic({"a": jnp.array([1.0, 0.0, 3.0])}, {"a": jnp.array([2.0, 5.0, -1.0])})
SECOND = Quadratic({"a": jnp.array([3.0, 0.0, 0.0])}, {"a": jnp.array([6.0, 7.0, 4.0])})


def test_gradient_pulls_back_to_the_centre_by_importance():
    gradient = FIRST.gradient({"a": jnp.array([4.0, 4.0, 0.0])})
    np.testing.assert_array_equal(gradient["a"], [2, 0, 3])


def test_sum_pulls_as_both_do():
    params = {"a": jnp.array([0.5, -2.0, 8.0])}
    apart = FIRST.gradient(params)["a"] + SECOND.gradient(params)["a"]
    np.testing.assert_allclose(FIRST.plus(SECOND).gradient(params)["a"], apart, rtol=1e-6)


def test_sum_has_the_mean_of_the_centres_weighted_by_importance():
    both = FIRST.plus(SECOND)
    np.testing.assert_array_equal(both.importance["a"], [4, 0, 3])
    # (1 * 2 + 3 * 6) / 4; the second is guarded by neither, the third by the first alone.
    np.testing.assert_allclose(both.centre["a"], [5, 5, -1])


def test_learner_that_is_not_told_says_what_it_needs():
    examples = Examples.full(jnp.zeros((1, 2, 1)), jnp.zeros((1, 2, 1)))
    with pytest.raises(ValueError, match="told where a phase begins"):
        begins_phase(TaskBatch(examples, examples))
