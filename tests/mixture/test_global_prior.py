import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.mixture.global_prior import candidate, summary

KEY = jax.random.key(0)
PARAMS = {"w": jnp.array([[1.0, 2.0], [4.0, 8.0], [100.0, 100.0]]), "b": jnp.array([3.0, 0.0, 9.0])}
ALIVE = jnp.array([True, True, False])


def test_average_is_over_the_living_whatever_their_size():
    centre = summary(PARAMS, ALIVE, jnp.array([9.0, 1.0, 5.0]), "average", KEY)
    chex.assert_trees_all_close(centre, {"w": jnp.array([2.5, 5.0]), "b": jnp.array(1.5)})


def test_weighted_average_follows_the_sizes():
    centre = summary(PARAMS, ALIVE, jnp.array([2.0, 6.0, 5.0]), "weighted", KEY)
    chex.assert_trees_all_close(centre, {"w": jnp.array([3.25, 6.5]), "b": jnp.array(0.75)})


def test_weighted_average_counts_an_idle_cluster_as_one_task():
    centre = summary(PARAMS, ALIVE, jnp.array([3.0, 0.0, 5.0]), "weighted", KEY)
    chex.assert_trees_all_close(centre["b"], jnp.array(2.25))


@pytest.mark.parametrize("refresh", ["average", "weighted", "density"])
def test_dead_rows_do_not_enter_even_if_not_a_number(refresh):
    broken = jax.tree.map(lambda leaf: leaf.at[2].set(jnp.nan), PARAMS)
    sizes = jnp.array([2.0, 6.0, 5.0])
    chex.assert_trees_all_equal(
        summary(broken, ALIVE, sizes, refresh, KEY), summary(PARAMS, ALIVE, sizes, refresh, KEY)
    )


def test_density_draws_each_living_cluster_in_proportion_to_its_size():
    draws, sizes = 4000, jnp.array([1.0, 3.0, 5.0])
    keys = jax.random.split(KEY, draws)
    drawn = jax.vmap(lambda key: summary(PARAMS, ALIVE, sizes, "density", key)["b"])(keys)
    first = int((drawn == 3.0).sum())
    assert first + int((drawn == 0.0).sum()) == draws
    assert abs(first - draws / 4) < 4 * math.sqrt(draws * 0.25 * 0.75)


def test_candidate_without_noise_is_exactly_the_centre():
    centre = {"w": jnp.array([0.1, 0.2])}
    chex.assert_trees_all_equal(candidate(centre, 0.0, KEY), centre)


def test_candidate_is_spread_around_the_centre_by_the_noise():
    drawn = candidate({"w": jnp.full(10000, 2.0), "b": jnp.full(10000, -1.0)}, 0.5, KEY)
    deviation = np.stack([drawn["w"] - 2, drawn["b"] + 1])
    np.testing.assert_allclose(deviation.mean(axis=1), 0, atol=0.02)
    np.testing.assert_allclose(deviation.std(axis=1), 0.5, atol=0.02)
    assert abs(np.corrcoef(deviation)[0, 1]) < 0.05
