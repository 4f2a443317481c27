import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from taskmix.mixture.clusters import Clusters, grown

OPTIMISER = optax.adam(0.1)


@pytest.fixture(scope="module")
def clusters():
    params = {"a": jnp.arange(6.0).reshape(3, 2), "b": jnp.array([0.1, 0.2, 0.3])}
    return Clusters.stack(params, OPTIMISER, jnp.array([True, True, False]))


def other(clusters):
    return jax.tree.map(lambda leaf: leaf + 1, (clusters.params, clusters.optimiser))


def test_put_replaces_one_row_and_calls_it_alive(clusters):
    params, optimiser = jax.tree.map(lambda leaf: leaf[0], other(clusters))
    after = clusters.put(jnp.asarray(2), params, optimiser, jnp.asarray(True))
    np.testing.assert_array_equal(after.params["a"], [[0, 1], [2, 3], [1, 2]])
    np.testing.assert_array_equal(after.alive, [True, True, True])
    chex.assert_trees_all_equal(after.take(jnp.asarray(2)), (params, optimiser))


@pytest.mark.parametrize("index", [0, 2, 3])
def test_put_nowhere_changes_no_bit(clusters, index):
    params, optimiser = jax.tree.map(lambda leaf: leaf[0] * jnp.nan, other(clusters))
    optimiser = jax.tree.map(lambda a, b: a.astype(b.dtype), optimiser, clusters.optimiser)
    after = clusters.put(jnp.asarray(index), params, optimiser, jnp.asarray(False))
    chex.assert_trees_all_equal(after, clusters)


def test_put_beyond_the_capacity_changes_no_bit(clusters):
    params, optimiser = jax.tree.map(lambda leaf: leaf[0], other(clusters))
    after = clusters.put(jnp.asarray(3), params, optimiser, jnp.asarray(True))
    chex.assert_trees_all_equal(after, clusters)


def test_replaced_takes_only_the_rows_asked_for(clusters):
    params, optimiser = other(clusters)
    theirs = Clusters(params, optimiser, clusters.alive)
    after = clusters.replaced(theirs, jnp.array([False, True, False]))
    np.testing.assert_array_equal(after.params["a"], [[0, 1], [3, 4], [4, 5]])
    chex.assert_trees_all_equal(clusters.replaced(theirs, jnp.zeros(3, dtype=bool)), clusters)


def test_growth_doubles_the_capacity_with_dead_rows(clusters):
    after = grown(clusters)
    assert after.capacity == 6
    np.testing.assert_array_equal(after.alive, [True, True, False, False, False, False])
    assert after.count() == clusters.count()
    chex.assert_trees_all_equal(jax.tree.map(lambda leaf: leaf[:3], after), clusters)


def test_optimiser_of_each_row_is_its_own(clusters):
    alone = OPTIMISER.init(jax.tree.map(lambda leaf: leaf[1], clusters.params))
    chex.assert_trees_all_equal(clusters.take(jnp.asarray(1))[1], alone)
