"""A task without examples changes nothing, whichever method learns from the batch it is in.

tests/contracts ask the same of every registered method with regression; those are slow here.
"""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix import baselines
from taskmix.adaptation import Adaptation, BayesianHead
from taskmix.adaptation.calibrated import CalibratedGradient
from taskmix.adaptation.gradient import Gradient
from taskmix.likelihood import Categorical
from taskmix.mixture import FiniteMixture, PaperMixture
from taskmix.models import MLP, Conv4
from taskmix.tasks import Examples, Hints, TaskBatch

KEY = jax.random.key(0)
PARTS = {"model": MLP(hidden=(6,)), "adaptation": Adaptation(steps=1, rate=0.05)}
IMAGES = {"model": Conv4(1, 16, 2, 3), "likelihood": Categorical()}
GRADIENT, CALIBRATED = Gradient(**PARTS), CalibratedGradient(**PARTS)
HEAD = BayesianHead(MLP(hidden=(6,), outputs=4, activation="tanh", init_scale=0.0), width=4)

LEARNERS = {
    "maml": baselines.MAML(**PARTS),
    "fomaml": baselines.FirstOrderMAML(**PARTS),
    "mt-net": baselines.MTNet(**PARTS),
    "platipus": baselines.PLATIPUS(**PARTS, samples=2),
    "mmaml": baselines.MMAML(**PARTS),
    "versa": baselines.Versa(PARTS["model"], samples=2),
    "versa of classes": baselines.Versa(**IMAGES, samples=2),
    "prototypical": baselines.Prototypical(**IMAGES),
    "matching": baselines.Matching(**IMAGES, full_context=True),
    "meta-lstm": baselines.MetaLSTM(PARTS["model"], updates=2),
    "llama": baselines.LLAMA(**PARTS),
    "laplace": baselines.OnlineLaplace(**PARTS),
    "ewc": baselines.EWC(**PARTS),
    "si": baselines.SI(**PARTS),
    "vcl": baselines.VCL(**PARTS),
    "c-maml": baselines.CMAML(**PARTS),
    "replay": baselines.SingleModel(GRADIENT, reservoir=4),
    "alpaca": baselines.SingleModel(HEAD, updates=2),
    "calibrated": baselines.SingleModel(CALIBRATED),
    "per family": baselines.PerFamily(HEAD, reservoir=4, families=2),
    "finite": FiniteMixture(GRADIENT),
    "detached": FiniteMixture(GRADIENT, detached=True),
    "sampled": FiniteMixture(HEAD, sampled=True),
    "alone": FiniteMixture(CALIBRATED, components=1),
    "paper": PaperMixture(HEAD),
}
UNREGISTERED = {
    *("versa of classes", "prototypical", "matching"),
    *("calibrated", "detached", "sampled", "alone"),
}
"""Of classes, or with settings that no registered method has."""
CASES = [
    pytest.param(name, marks=() if name in UNREGISTERED else pytest.mark.slow) for name in LEARNERS
]
# The gradient of a loss in one task, of which the padded batch has more, is rounded differently.
CLOSE = {"rtol": 2e-4, "atol": 2e-6}


@functools.cache
def batch_of(images: bool) -> TaskBatch:
    """Two tasks of two families, without padding."""
    key = jax.random.key(1)
    if images:
        x = jax.random.normal(key, (2, 9, 16, 16, 1))
        y = jnp.tile(jnp.arange(3), (2, 3))
    else:
        x = jax.random.normal(key, (2, 9, 1))
        y = jnp.sin(x)
    axes = 3 if images else 1
    return TaskBatch(
        Examples.full(x[:, :3], y[:, :3], axes),
        Examples.full(x[:, 3:], y[:, 3:], axes),
        Hints(jnp.arange(2), jnp.asarray(False)),
    )


padded = jax.jit(functools.partial(TaskBatch.padded, tasks=4))


@jax.jit
def spoiled(batch: TaskBatch) -> TaskBatch:
    """Numbers of the last two tasks are not any."""
    return jax.tree.map(
        lambda leaf: leaf.at[2:].set(jnp.nan) if leaf.dtype == float else leaf, batch
    )


@pytest.fixture(scope="module", params=CASES)
def case(request):
    learner = LEARNERS[request.param]
    batch = batch_of(isinstance(learner.likelihood, Categorical))
    state = jax.jit(learner.init)(KEY, batch)
    return learner, batch, state, jax.jit(learner.step)


def test_padding_changes_nothing_but_roundings(case):
    learner, batch, state, step = case
    expected, expected_info = step(state, batch, KEY)
    after, info = step(state, padded(batch), KEY)
    if hasattr(learner, "reservoir"):
        # Which place a task comes to is drawn for all tasks of a batch together.
        expected, after = (dataclasses.replace(one, reservoir=None) for one in (expected, after))
    chex.assert_tree_all_finite(after)
    drawn = getattr(learner, "sampled", False)
    if not drawn:
        chex.assert_trees_all_close(after, expected, **CLOSE)
        np.testing.assert_allclose(info.loss, expected_info.loss, rtol=1e-4)
    np.testing.assert_allclose(info.error[:2], expected_info.error, rtol=1e-3, atol=1e-5)


def test_padding_is_told_as_such(case):
    _, batch, state, step = case
    _, info = step(state, padded(batch), KEY)
    np.testing.assert_array_equal(np.isnan(info.error), [False, False, True, True])
    np.testing.assert_array_equal(info.responsibilities[2:], 0)
    np.testing.assert_allclose(info.responsibilities[:2].sum(axis=1), 1, rtol=1e-5)


def test_content_of_padding_changes_no_bit(case):
    _, batch, state, step = case
    clean = padded(batch)
    chex.assert_trees_all_equal(step(state, spoiled(clean), KEY), step(state, clean, KEY))
