"""Before a second cluster exists, every mixture is MAML."""

import math

import chex
import jax
import pytest

from taskmix.adaptation.gradient import Gradient
from taskmix.baselines import MAML, SingleModel
from taskmix.mixture import FiniteMixture, PaperMixture

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
    clusters, infos = run(FiniteMixture(Gradient(**parts), components=1), batches)
    chex.assert_trees_all_equal(first(clusters), maml[0])
    chex.assert_trees_all_equal(infos, maml[1])


def test_components_that_stay_together_are_maml(maml, parts, batches):
    learner = FiniteMixture(Gradient(**parts), components=3, together=len(batches))
    clusters, infos = run(learner, batches)
    chex.assert_trees_all_close(first(clusters), maml[0], rtol=1e-5, atol=1e-7)
    chex.assert_trees_all_close(infos, maml[1], rtol=1e-5)
    assert clusters.count() == 1


def test_paper_mixture_is_maml_before_its_first_spawn(maml, parts, batches):
    """Up to the last bits: it computes more at once, which is compiled to other roundings."""
    state, infos = run(PaperMixture(Gradient(**parts)), batches)
    chex.assert_trees_all_close(first(state.clusters), maml[0], rtol=1e-5, atol=1e-7)
    chex.assert_trees_all_close(infos, maml[1], rtol=1e-5)


def test_single_gradient_model_without_a_reservoir_is_maml(maml, parts, batches):
    learner = SingleModel(Gradient(**parts), meta_rate=1e-3, meta_clip=math.inf)
    state, infos = run(learner, batches)
    chex.assert_trees_all_close((state.params, state.optimiser), maml[0], rtol=1e-5, atol=1e-7)
    chex.assert_trees_all_close(infos, maml[1], rtol=1e-5)
