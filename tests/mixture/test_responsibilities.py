import functools
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from taskmix.mixture.responsibilities import assessments, mix, responsibilities, spread

ALL = jnp.ones(3, dtype=bool)
any_scores = st_numpy.arrays(
    np.float32, (2, 4), elements=st.floats(-1e6, 1e6, width=32) | st.just(math.nan)
)


def test_responsibilities_are_the_softmax_of_scores_over_temperature():
    scores = jnp.log(jnp.array([[1.0, 4.0, 9.0]]))
    np.testing.assert_allclose(responsibilities(scores, ALL), [[1 / 14, 4 / 14, 9 / 14]], rtol=1e-6)
    np.testing.assert_allclose(
        responsibilities(scores, ALL, 2.0), [[1 / 6, 2 / 6, 3 / 6]], rtol=1e-6
    )


@given(scores=any_scores, alive=st_numpy.arrays(bool, 4))
def test_responsibilities_sum_to_one_over_the_living(scores, alive):
    alive[0] = True
    shares = responsibilities(jnp.asarray(scores), jnp.asarray(alive))
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-6)
    assert not shares[:, ~alive].any()


def test_infinite_temperature_gives_exactly_equal_shares():
    scores = jnp.array([[-1e30, 0.0, 1e30], [5.0, -2.0, 0.1]])
    np.testing.assert_array_equal(
        responsibilities(scores, ALL, math.inf), np.full((2, 3), np.float32(1) / np.float32(3))
    )


def test_identical_components_get_exactly_equal_shares():
    shares = responsibilities(jnp.full((2, 3), -1.2345), ALL)
    np.testing.assert_array_equal(shares, np.full((2, 3), np.float32(1) / np.float32(3)))


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_diverged_cluster_takes_nothing(broken):
    shares = responsibilities(jnp.array([0.0, broken, 0.0]), ALL)
    np.testing.assert_array_equal(shares, [0.5, 0, 0.5])


def test_task_under_which_all_diverge_is_shared_equally_by_the_living():
    alive = jnp.array([True, True, False])
    shares = responsibilities(jnp.array([math.nan, math.inf, 0.0]), alive)
    np.testing.assert_array_equal(shares, [0.5, 0.5, 0])


@pytest.mark.parametrize("dead", [math.nan, math.inf, -math.inf, 1e38])
def test_gradient_does_not_see_the_dead(dead):
    alive = jnp.array([True, True, False])

    def first_share(scores):
        return responsibilities(scores, alive)[0]

    gradient = jax.grad(first_share)(jnp.array([1.0, 1.0, dead]))
    np.testing.assert_allclose(gradient, [0.25, -0.25, 0])


def test_judgement_is_that_of_every_pair_of_task_and_cluster(finite, three_finite, batches):
    batch = batches[0]
    found = jax.jit(functools.partial(assessments, finite.task_model))(
        three_finite.params, batch, ALL
    )
    adapt, model = jax.jit(finite.task_model.adapt), finite.task_model.model
    for task in range(4):
        support, query = jax.tree.map(lambda leaf, t=task: leaf[t], (batch.support, batch.query))
        for cluster in range(3):
            params = jax.tree.map(lambda leaf, c=cluster: leaf[c], three_finite.params)
            adapted = adapt(params, support)
            fit = np.square(model.apply(adapted, support.x) - support.y).sum()
            predicted = model.apply(adapted, query.x)
            one = jax.tree.map(lambda leaf, t=task, c=cluster: leaf[t, c], found)
            np.testing.assert_allclose(one.evidence, -fit / 2, rtol=1e-4)
            np.testing.assert_allclose(one.predicted, predicted, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(one.loss, np.square(predicted - query.y).mean(), rtol=1e-4)


PREDICTED = jnp.array([1.0, 3.0, math.nan]).reshape(3, 1, 1)


def test_mixture_mean_leaves_out_what_carries_no_weight():
    np.testing.assert_allclose(mix(jnp.array([0.25, 0.75, 0.0]), PREDICTED), [[2.5]])


def test_spread_is_noise_within_plus_disagreement_between():
    # E of the noise is 0.25 * 1 + 0.75 * 2; the means 1 and 3 vary by 0.25 * 0.75 * 2^2.
    spreads = spread(
        jnp.array([0.25, 0.75, 0.0]), PREDICTED, jnp.array([1.0, 2.0, math.nan])[:, None, None]
    )
    np.testing.assert_allclose(spreads, [[1.75 + 0.75]])


def test_spread_of_one_cluster_is_its_noise():
    chex.assert_trees_all_close(
        spread(jnp.ones(1), PREDICTED[:1], jnp.array([[[0.3]]])), jnp.array([[0.3]])
    )
