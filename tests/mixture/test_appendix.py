"""What the appendix of the paper adds to the algorithm, seen in whole steps."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from taskmix.adaptation import BayesianHead, Gradient
from taskmix.mixture import PaperMixture

KEY = jax.random.key(3)


def opening(learner, example):
    """A cluster that predicts nonsense, a global prior that does not, and the warm-up over."""
    state = learner.init(KEY, example)
    params = jax.tree.map(lambda leaf: leaf.at[0].add(3.0), state.clusters.params)
    clusters = dataclasses.replace(state.clusters, params=params)
    return dataclasses.replace(state, clusters=clusters, iteration=jnp.asarray(3))


def drawn_from(learner, state):
    """The candidates of the step with ``KEY``, and what the E-step makes of them."""

    @jax.jit
    def both(state, batch):
        ready = learner._refreshed(state)
        draws = learner._candidates(ready, jax.random.split(KEY)[0])
        return draws, learner._explained(ready, draws, batch).shares[..., -1]

    return lambda batch: both(state, batch)


def build(parts, **settings):
    return PaperMixture(Gradient(**parts), warm_up=2, cool_down=3, **settings)


def test_average_responsibility_of_several_draws_decides(parts, batches):
    """Each draw stands beside the clusters alone, and the mean over draws is what is compared."""
    learner = build(parts, noise=0.5, draws=3)
    state = opening(learner, batches[0])
    _, info = jax.jit(learner.step)(state, batches[0], KEY)
    draws, _ = drawn_from(learner, state)(batches[0])
    rows = jax.tree.map(
        lambda old, new: jnp.concatenate([old[:1], new]), state.clusters.params, draws
    )
    every = jax.jit(jax.vmap(jax.vmap(learner.task_model.evidence, (None, 0)), (0, None)))
    evidence = np.asarray(every(rows, batches[0].support))
    # Nothing was counted yet, which is taken for one task; four tasks are the concentration.
    shares = [
        1 / (1 + np.exp(evidence[0, j] - evidence[1 + s, j] - np.log(4)))
        for s in range(3)
        for j in range(4)
    ]
    np.testing.assert_allclose(info.suspicion, np.mean(shares), rtol=1e-3)


def test_best_of_several_draws_becomes_the_cluster(parts, batches):
    learner = build(parts, noise=0.5, draws=4)
    state = opening(learner, batches[0])
    after, info = jax.jit(learner.step)(state, batches[0], KEY)
    assert info.spawned
    draws, shares = drawn_from(learner, state)(batches[0])
    newborn = jax.tree.map(lambda leaf: leaf[1], after.clusters.params)
    distance = [
        max(
            float(jnp.abs(leaf[s] - new).max())
            for leaf, new in zip(jax.tree.leaves(draws), jax.tree.leaves(newborn), strict=True)
        )
        for s in range(4)
    ]
    # One step of Adam has at most the size of the rate; the other draws are half a unit away.
    assert sorted(distance)[0] <= 1.001e-3
    assert sorted(distance)[1] > 0.1
    assert int(np.argmin(distance)) == int(jnp.argmax(shares.sum(axis=1)))


def test_averaged_gradient_opens_at_the_global_prior(parts, batches):
    """With plain descent of rate 1, the first update is minus the mean gradient at the draws."""
    learner = build(
        parts, noise=0.1, draws=3, averaged="gradients", meta_rate=1.0, meta_optimiser=optax.sgd
    )
    state = opening(learner, batches[0])
    after, info = jax.jit(learner.step)(state, batches[0], KEY)
    assert info.spawned
    draws, shares = drawn_from(learner, state)(batches[0])

    def objective(params, share):
        losses, _ = jax.vmap(learner.task_model.loss, (None, 0, 0))(
            params, batches[0].support, batches[0].query
        )
        return jnp.mean(share * losses)

    each = jax.jit(jax.vmap(jax.grad(objective)))(draws, shares)
    mean = jax.tree.map(lambda leaf: leaf.mean(axis=0), each)
    expected = jax.tree.map(lambda c, g: c - g, state.global_prior.mean(), mean)
    newborn = jax.tree.map(lambda leaf: leaf[1], after.clusters.params)
    chex.assert_trees_all_close(newborn, expected, rtol=1e-3, atol=1e-5)


def test_gradients_around_different_kernels_cannot_be_averaged():
    with pytest.raises(ValueError, match="density"):
        PaperMixture(averaged="gradients", refresh="density")


def test_lifetime_counts_outlive_the_window(parts, batches):
    learner = build(parts, window=2, threshold=3.9)
    state = learner.init(KEY, batches[0])
    step = jax.jit(learner.step)
    for batch in batches[:6]:
        state, _ = step(state, batch, KEY)
    np.testing.assert_allclose(state.sizes.sum(), 24, rtol=1e-5)
    np.testing.assert_allclose(state.counts.counts().sum(), 8, rtol=1e-5)


def test_cluster_with_few_tasks_is_pruned_and_its_row_is_used_again(parts, batches, three_paper):
    settings = {"prune": "few", "prune_every": 101, "prune_share": 0.5}
    idle = dataclasses.replace(
        three_paper,
        recent=jnp.array([400.0, 1.0, 400.0, 0.0]),
        sizes=jnp.array([400.0, 1.0, 400.0, 0.0]),
    )
    closed = build(parts, threshold=3.9, **settings)
    after, info = jax.jit(closed.step)(idle, batches[5], KEY)
    np.testing.assert_array_equal(info.alive, [True, False, True, False])
    assert after.sizes[1] == 0
    np.testing.assert_array_equal(after.counts.window[:, 1], 0)
    nonsense = jax.tree.map(lambda leaf: leaf + 30.0, after.clusters.params)
    lost = dataclasses.replace(after, clusters=dataclasses.replace(after.clusters, params=nonsense))
    _, info = jax.jit(build(parts, **settings).step)(lost, batches[6], KEY)
    assert info.spawned
    np.testing.assert_array_equal(info.alive, [True, True, True, False])


def test_copy_of_a_cluster_is_pruned_by_the_odds_of_validation_tasks(parts, batches, three_paper):
    learner = build(parts, prune="alike", prune_every=1, threshold=3.9, validation=8)
    kept, _ = learner.init(KEY, batches[0]).validation.offer(
        batches[0], jnp.ones(4, dtype=bool), KEY
    )
    params = jax.tree.map(lambda leaf: leaf.at[2].set(leaf[0]), three_paper.clusters.params)
    twins = dataclasses.replace(
        three_paper,
        clusters=dataclasses.replace(three_paper.clusters, params=params),
        validation=kept,
        sizes=jnp.array([10.0, 10.0, 5.0, 0.0]),
        cooling=jnp.asarray(0),
    )
    _, info = jax.jit(learner.step)(twins, batches[5], KEY)
    np.testing.assert_array_equal(info.alive, [True, True, False, False])


def test_growth_keeps_a_window_that_grows_with_the_clusters(parts, batches):
    learner = build(parts, window=20, window_growth=5, capacity=2)
    state = learner.init(KEY, batches[0])
    assert state.counts.window.shape == (25, 2)
    wider = learner.grow(state)
    assert wider.counts.window.shape == (35, 4)
    after, _ = jax.jit(learner.step)(wider, batches[0], KEY)
    np.testing.assert_allclose(after.sizes[0], 4, rtol=1e-5)


@pytest.mark.parametrize("refresh", ["average", "weighted", "density"])
def test_every_prior_runs_with_a_bayesian_head(batches, refresh):
    learner = PaperMixture(
        BayesianHead(), meta_clip=1.0, refresh=refresh, noise=0.1, draws=2, warm_up=1,
        refresh_every=1, refresh_alone=True,
    )  # fmt: skip
    state = learner.init(KEY, batches[0])
    step = jax.jit(learner.step)
    for batch in batches[:4]:
        state, info = step(state, batch, KEY)
    chex.assert_tree_all_finite(state.clusters.params)
    assert jnp.isfinite(info.loss)
