"""Before a second cluster exists, every mixture is MAML."""

from functools import partial

import chex
import jax
import pytest

from taskmix.baselines import MAML
from taskmix.mixture import FiniteMixture, OnlineMixture, PaperMixture

KEY = jax.random.key(0)


def run(learner, batches):
    step = jax.jit(learner.step)
    state, infos = learner.init(KEY, batches[0]), []
    for batch in batches:
        state, info = step(state, batch, KEY)
        infos.append((info.loss, info.error))
    return state, infos


def first(clusters):
    return jax.tree.map(lambda leaf: leaf[0], (clusters.params, clusters.optimiser))


@pytest.fixture(scope="module")
def maml(parts, batches):
    state, infos = run(MAML(**parts), batches)
    return (state.params, state.optimiser), infos


def test_mixture_of_one_is_maml_bit_for_bit(maml, parts, batches):
    clusters, infos = run(FiniteMixture(**parts, components=1), batches)
    chex.assert_trees_all_equal(first(clusters), maml[0])
    chex.assert_trees_all_equal(infos, maml[1])


def test_components_that_stay_together_are_maml(maml, parts, batches):
    learner = FiniteMixture(**parts, components=3, together=len(batches))
    clusters, infos = run(learner, batches)
    chex.assert_trees_all_close(first(clusters), maml[0], rtol=1e-5, atol=1e-7)
    chex.assert_trees_all_close(infos, maml[1], rtol=1e-5)
    assert clusters.count() == 1


@pytest.mark.parametrize(
    "build",
    [PaperMixture, partial(OnlineMixture, averaging_rate=1.0)],
    ids=["paper", "online without averaging"],
)
def test_growing_mixture_is_maml_before_its_first_spawn(build, maml, parts, batches):
    """Up to the last bits: it computes more at once, which is compiled to other roundings."""
    state, infos = run(build(**parts), batches)
    chex.assert_trees_all_close(first(state.clusters), maml[0], rtol=1e-5, atol=1e-7)
    chex.assert_trees_all_close(infos, maml[1], rtol=1e-5)


def test_online_mixture_trains_as_maml_does_whatever_it_averages(maml, parts, batches):
    state, _ = run(OnlineMixture(**parts), batches)
    chex.assert_trees_all_close(first(state.clusters), maml[0], rtol=1e-5, atol=1e-7)
