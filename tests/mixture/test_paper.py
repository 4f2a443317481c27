"""The letter of the paper: warm-up, global prior, spawn, cool-down."""

import dataclasses
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.adaptation import BayesianHead
from taskmix.adaptation.gradient import Gradient
from taskmix.learner import Told
from taskmix.mixture import PaperMixture
from taskmix.tasks import Hints

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def learner(parts):
    return PaperMixture(
        Gradient(**parts), warm_up=2, cool_down=3, concentration=4.0, refresh_every=4
    )


@pytest.fixture(scope="module")
def traces():
    """The capacity of the state, once for every time that a step is traced."""
    return []


@pytest.fixture(scope="module")
def step(learner, traces):
    def counted(state, batch, key):
        traces.append(state.clusters.capacity)
        return learner.step(state, batch, key)

    return jax.jit(counted)


@pytest.fixture(scope="module")
def ready(learner, batches):
    """A cluster that predicts nonsense, and a global prior that does not."""
    state = learner.init(KEY, batches[0])
    params = jax.tree.map(lambda leaf: leaf.at[0].add(3.0), state.clusters.params)
    clusters = dataclasses.replace(state.clusters, params=params)
    return dataclasses.replace(
        state, clusters=clusters, iteration=jnp.full_like(state.iteration, 3)
    )


@pytest.fixture(scope="module")
def run(step, ready, batches):
    """States and infos from the spawn until after the cool-down."""
    states, infos = [ready], []
    for batch in batches[:6]:
        state, info = step(states[-1], batch, KEY)
        states.append(state)
        infos.append(info)
    return states, infos


def row(state, index):
    return jax.tree.map(lambda leaf: leaf[index], (state.clusters.params, state.clusters.optimiser))


def unchanged(before, after, index) -> bool:
    same = jax.tree.map(lambda a, b: bool((a == b).all()), row(before, index), row(after, index))
    return all(jax.tree.leaves(same))


def test_candidate_that_explains_the_batch_better_is_opened(run):
    _, infos = run
    assert infos[0].spawned
    assert infos[0].clusters == 2
    assert infos[0].suspicion > 0.95 / 2


def test_newborn_takes_its_share_of_its_first_batch(run):
    states, infos = run
    np.testing.assert_allclose(
        infos[0].responsibilities[:, 1].mean(), infos[0].suspicion, rtol=1e-5
    )
    np.testing.assert_allclose(
        states[1].counts.window[0], infos[0].responsibilities.sum(axis=0), rtol=1e-5
    )


def test_newborn_starts_at_the_global_prior_with_a_fresh_optimiser(run):
    states, _ = run
    (params, optimiser), prior = row(states[1], 1), states[1].global_prior.mean()
    assert optimiser[0].count == 1
    moved = jax.tree.map(lambda a, b: jnp.abs(a - b).max(), params, prior)
    # One step of Adam has at most the size of the rate.
    assert max(jax.tree.leaves(moved)) <= 1.001e-3


def test_no_cluster_is_opened_during_the_cool_down(run):
    _, infos = run
    assert not any(info.spawned for info in infos[1:4])


def test_only_the_newest_cluster_learns_during_the_cool_down(run):
    states, _ = run
    for before, after in itertools.pairwise(states[1:5]):
        assert unchanged(before, after, 0)
        assert not unchanged(before, after, 1)


def test_older_cluster_learns_again_after_the_cool_down(run):
    states, _ = run
    assert states[4].cooling == 0
    assert not unchanged(states[4], states[5], 0)


def test_spawn_within_capacity_does_not_compile(run, traces):
    _, infos = run
    assert any(info.spawned for info in infos)
    assert traces.count(4) == 1


def test_growth_compiles_once(run, step, traces, learner, batches):
    state = learner.grow(run[0][-1])
    for batch in batches[:2]:
        state, _ = step(state, batch, KEY)
    assert traces.count(8) == 1


def test_warm_up_ends_with_the_first_cluster_as_the_global_prior(step, learner, batches):
    state = learner.init(KEY, batches[0])
    priors = []
    for batch in batches[:3]:
        before = state
        state, info = step(state, batch, KEY)
        priors.append(state.global_prior.mean())
        assert not info.spawned
    chex.assert_trees_all_equal(priors[1], learner.init(KEY, batches[0]).global_prior.mean())
    chex.assert_trees_all_equal(priors[2], row(before, 0)[0])


def test_global_prior_stays_while_there_is_one_cluster(step, learner, batches):
    state = learner.init(KEY, batches[0])
    for batch in batches[:3]:
        state, _ = step(state, batch, KEY)
    prior = state.global_prior.mean()
    for batch in batches[3:10]:
        state, info = step(state, batch, KEY)
        assert info.clusters == 1
    chex.assert_trees_all_equal(state.global_prior.mean(), prior)


def test_global_prior_is_refreshed_when_there_are_several_clusters(step, run, batches):
    states, _ = run
    several = dataclasses.replace(states[-1], iteration=jnp.full_like(states[-1].iteration, 10))
    after, _ = step(several, batches[7], KEY)
    average = jax.tree.map(lambda leaf: leaf[:2].mean(axis=0), several.clusters.params)
    chex.assert_trees_all_close(after.global_prior.mean(), average, rtol=1e-5, atol=1e-7)


def test_who_is_told_boundaries_opens_clusters_only_from_a_boundary_on(learner, ready, batches):
    told = dataclasses.replace(learner, boundaries=True)
    assert told.told is Told.BOUNDARIES
    closed = dataclasses.replace(ready, cooling=told.init(KEY, batches[0]).cooling)
    step = jax.jit(told.step)

    def hinted(boundary: bool):
        hints = Hints(jnp.zeros(4, dtype=int), jnp.asarray(boundary))
        return dataclasses.replace(batches[0], hints=hints)

    assert not step(closed, hinted(False), KEY)[1].spawned
    opened, info = step(closed, hinted(True), KEY)
    assert info.spawned
    assert not step(opened, hinted(False), KEY)[1].spawned


def test_algorithm_runs_with_exact_evidence(batches):
    """A cluster that expects targets far away loses every task to a candidate that does not."""
    learner = PaperMixture(BayesianHead(), meta_clip=1.0, warm_up=2, cool_down=3, concentration=4.0)
    state = learner.init(KEY, batches[0])
    location = state.clusters.params.location.at[0].set(50.0)
    params = dataclasses.replace(state.clusters.params, location=location)
    clusters = dataclasses.replace(state.clusters, params=params)
    iteration = jnp.full_like(state.iteration, 3)
    state = dataclasses.replace(state, clusters=clusters, iteration=iteration)
    after, info = jax.jit(learner.step)(state, batches[0], KEY)
    assert info.spawned
    np.testing.assert_allclose(info.responsibilities[:, 1], 1, rtol=1e-3)
    chex.assert_tree_all_finite(after.clusters.params)


def test_padding_is_not_counted(step, run, batches):
    """Neither in the window nor in the mean share of a candidate."""
    states, _ = run
    half = jnp.array([True, True, False, False])
    padded = jax.tree.map(
        lambda leaf: leaf & half[:, None] if leaf.dtype == bool else leaf, batches[8]
    )
    after, info = step(states[-1], padded, KEY)
    np.testing.assert_allclose(after.counts.window[0].sum(), 2, rtol=1e-5)
    np.testing.assert_array_equal(jnp.isnan(info.error), ~half)
    np.testing.assert_array_equal(info.responsibilities[2:], 0)
