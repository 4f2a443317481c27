import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from taskmix.mixture.clusters import Clusters
from taskmix.mixture.update import query_losses, update_each, update_one, weighted

SGD = optax.sgd(1.0)
ALIVE = jnp.array([True, True, True, False])
PARAMS = jnp.array([1.0, 2.0, 3.0, 4.0])


def losses(param):
    """Two tasks whose gradients are the parameter and ten times the parameter."""
    return jnp.stack([param**2 / 2, 10 * param**2 / 2])


@pytest.fixture(scope="module")
def clusters():
    return Clusters.stack(PARAMS, SGD, ALIVE)


def test_each_cluster_follows_the_tasks_it_answers_for(clusters):
    weights = jnp.array([[1.0, 0.0, 0.5, 0.0], [0.0, 1.0, 0.5, 0.0]])
    after = update_each(clusters, losses, weights, SGD, jnp.ones(4, dtype=bool))
    # Half of: 1 * 1, then 10 * 2, then (1 + 10) / 2 * 3.
    np.testing.assert_allclose(after.params, [1 - 0.5, 2 - 10, 3 - 8.25, 4], rtol=1e-6)


def test_responsibilities_are_held_fixed():
    def moved(param):
        rows = Clusters.stack(param[None], SGD, jnp.ones(1, dtype=bool))
        shares = jnp.stack([param, 1 - param])[:, None]
        return update_each(rows, losses, shares, SGD, jnp.ones(1, dtype=bool)).params[0]

    # theta - (g theta + 10 (1 - g) theta) / 2 with g fixed at 0.25.
    np.testing.assert_allclose(moved(jnp.asarray(0.25)), 0.25 - (0.0625 + 1.875) / 2, rtol=1e-6)


def test_clusters_not_chosen_or_dead_keep_parameters_and_optimiser_bit_for_bit():
    adam = optax.adam(0.1)
    before = Clusters.stack(PARAMS, adam, ALIVE)
    chosen = jnp.array([False, True, False, True])
    after = update_each(before, losses, jnp.full((2, 4), 0.5), adam, chosen)
    kept = jnp.array([0, 2, 3])
    chex.assert_trees_all_equal(
        *(jax.tree.map(lambda leaf: leaf[kept], c) for c in (after, before))
    )
    assert after.params[1] != before.params[1]


def test_weight_of_zero_silences_a_diverged_task_in_the_gradient_too(clusters):
    def diverging(param):
        return jnp.stack([param**2 / 2, jnp.log(-jnp.abs(param))])

    weights = jnp.array([[1.0] * 4, [0.0] * 4])
    after = update_each(clusters, diverging, weights, SGD, ALIVE)
    np.testing.assert_allclose(after.params[:3], PARAMS[:3] / 2)


@pytest.mark.parametrize("size", [1.0, 0.5])
def test_one_cluster_moves_by_the_size_asked_for(clusters, size):
    after = update_one(
        clusters, jnp.asarray(1), jnp.asarray(5.0), SGD, jnp.asarray(size), jnp.asarray(True)
    )
    np.testing.assert_allclose(after.params, [1, 2 - size * 5, 3, 4])


def test_update_nowhere_changes_no_bit(clusters):
    after = update_one(
        clusters, jnp.asarray(1), jnp.asarray(jnp.nan), SGD, jnp.asarray(1.0), jnp.asarray(False)
    )
    chex.assert_trees_all_equal(after, clusters)


def test_weight_of_zero_silences_a_loss_that_is_not_finite():
    found = weighted(jnp.array([0.5, 0.0, 0.0]), jnp.array([3.0, jnp.nan, jnp.inf]))
    np.testing.assert_array_equal(found, [1.5, 0, 0])


def test_query_losses_are_those_of_each_task_alone(finite, three_finite, batches):
    params = jax.tree.map(lambda leaf: leaf[0], three_finite.params)
    found = query_losses(finite.model, finite.likelihood, finite.adaptation, batches[0])(params)
    for task in range(4):
        one = jax.tree.map(lambda leaf, t=task: leaf[t], batches[0])
        adapted = finite.adaptation(finite.model, finite.likelihood, params, one.support)
        predicted = finite.model.apply(adapted, one.query.x)
        np.testing.assert_allclose(
            found[task], np.square(predicted - one.query.y).mean(), rtol=1e-4
        )
