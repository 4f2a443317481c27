import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from taskmix.mixture.clusters import Clusters
from taskmix.mixture.responsibilities import assessments
from taskmix.mixture.update import (
    gradient_of_drawn,
    query_losses,
    update_each,
    update_one,
    weighted,
)
from taskmix.models import MLP

SGD = optax.sgd(1.0)
# Nothing of it is used here but that its clusters are updated all at once.
MODEL = MLP()
ALIVE = jnp.array([True, True, True, False])
BOTH = jnp.ones(2, dtype=bool)
PARAMS = jnp.array([1.0, 2.0, 3.0, 4.0])


def losses(param):
    """Two tasks whose gradients are the parameter and ten times the parameter."""
    return jnp.stack([param**2 / 2, 10 * param**2 / 2])


@pytest.fixture(scope="module")
def clusters():
    return Clusters.stack(PARAMS, SGD, ALIVE)


def test_each_cluster_follows_the_tasks_it_answers_for(clusters):
    weights = jnp.array([[1.0, 0.0, 0.5, 0.0], [0.0, 1.0, 0.5, 0.0]])
    after = update_each(MODEL, clusters, losses, weights, BOTH, SGD, jnp.ones(4, dtype=bool))
    # Half of: 1 * 1, then 10 * 2, then (1 + 10) / 2 * 3.
    np.testing.assert_allclose(after.params, [1 - 0.5, 2 - 10, 3 - 8.25, 4], rtol=1e-6)


def test_padding_takes_no_part_in_the_mean(clusters):
    real = jnp.array([True, False])
    after = update_each(MODEL, clusters, losses, jnp.ones((2, 4)), real, SGD, ALIVE)
    np.testing.assert_allclose(after.params, [0, 0, 0, 4], atol=1e-6)


def test_responsibilities_are_held_fixed():
    def moved(param):
        rows = Clusters.stack(param[None], SGD, jnp.ones(1, dtype=bool))
        shares = jnp.stack([param, 1 - param])[:, None]
        return update_each(MODEL, rows, losses, shares, BOTH, SGD, jnp.ones(1, dtype=bool)).params[
            0
        ]

    # theta - (g theta + 10 (1 - g) theta) / 2 with g fixed at 0.25.
    np.testing.assert_allclose(moved(jnp.asarray(0.25)), 0.25 - (0.0625 + 1.875) / 2, rtol=1e-6)


def test_clusters_not_chosen_or_dead_keep_parameters_and_optimiser_bit_for_bit():
    adam = optax.adam(0.1)
    before = Clusters.stack(PARAMS, adam, ALIVE)
    chosen = jnp.array([False, True, False, True])
    after = update_each(MODEL, before, losses, jnp.full((2, 4), 0.5), BOTH, adam, chosen)
    kept = jnp.array([0, 2, 3])
    chex.assert_trees_all_equal(
        *(jax.tree.map(lambda leaf: leaf[kept], c) for c in (after, before))
    )
    assert after.params[1] != before.params[1]


def test_weight_of_zero_silences_a_diverged_task_in_the_gradient_too(clusters):
    def diverging(param):
        return jnp.stack([param**2 / 2, jnp.log(-jnp.abs(param))])

    weights = jnp.array([[1.0] * 4, [0.0] * 4])
    after = update_each(MODEL, clusters, diverging, weights, BOTH, SGD, ALIVE)
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
    found = jax.jit(query_losses(finite.task_model, batches[0]))(params)
    adapt = jax.jit(finite.task_model.adapt)
    for task in range(4):
        one = jax.tree.map(lambda leaf, t=task: leaf[t], batches[0])
        predicted = finite.task_model.model.apply(adapt(params, one.support), one.query.x)
        np.testing.assert_allclose(
            found[task], np.square(predicted - one.query.y).mean(), rtol=1e-4
        )


@pytest.fixture(scope="module")
def gradient_of(finite, three_finite, batches):
    """The gradient of what was drawn, for the tasks of the first batch."""
    return jax.jit(
        lambda drawn: gradient_of_drawn(finite.task_model, three_finite.params, batches[0], drawn)[
            0
        ]
    )


@pytest.fixture(scope="module")
def dense(finite, three_finite, batches):
    """The gradient of (1/J) sum_j sum_l gamma_jl loss_jl, with gamma held fixed."""
    alive = three_finite.alive

    def objective(params, shares):
        found = assessments(finite.task_model, params, batches[0], alive)
        return jnp.mean(jnp.sum(shares * found.loss, axis=1))

    return jax.jit(lambda shares: jax.grad(objective)(three_finite.params, shares))


DRAWN = jnp.array([2, 0, 2, 2])


def test_gradient_of_what_was_drawn_is_the_dense_one_where_each_task_belongs_to_one(
    gradient_of, dense
):
    expected = dense(jax.nn.one_hot(DRAWN, 3))
    chex.assert_trees_all_close(gradient_of(DRAWN), expected, rtol=1e-4, atol=1e-6)


def test_component_that_was_not_drawn_has_no_gradient(gradient_of):
    for leaf in jax.tree.leaves(gradient_of(DRAWN)):
        assert not leaf[1].any()
        assert leaf[2].any()


def test_gradient_of_what_was_drawn_is_without_bias(gradient_of, dense):
    """Its expectation, over all 3^4 draws of components by their shares, is the dense one."""
    shares = jax.random.dirichlet(jax.random.key(5), jnp.ones(3), (4,))
    draws = jnp.stack(jnp.meshgrid(*[jnp.arange(3)] * 4, indexing="ij"), -1).reshape(-1, 4)
    chances = jnp.prod(shares[jnp.arange(4), draws], axis=1)
    each = jax.vmap(gradient_of)(draws)
    mean = jax.tree.map(lambda leaf: jnp.tensordot(chances, leaf, axes=1), each)
    chex.assert_trees_all_close(mean, dense(shares), rtol=1e-4, atol=1e-5)
