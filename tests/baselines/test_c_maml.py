import dataclasses
import functools
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.adaptation import Adaptation, meta_gradient
from taskmix.baselines import CMAML, MAML
from taskmix.baselines.maml import MAMLState
from taskmix.models import MLP
from taskmix.tasks import Examples, TaskBatch

KEY = jax.random.key(0)
PARTS = {"model": MLP(hidden=(6,)), "adaptation": Adaptation(steps=1, rate=0.05)}
LEARNER = CMAML(**PARTS, fast_rate=0.02, threshold=0.1, modulation=0.5)


def batch_of(seed: int) -> TaskBatch:
    x = jax.random.normal(jax.random.key(seed), (3, 8, 1))
    y = jnp.sin(x + seed)
    return TaskBatch(Examples.full(x[:, :4], y[:, :4]), Examples.full(x[:, 4:], y[:, 4:]))


@jax.jit
def gradient_at(params, batch):
    gradient, result = meta_gradient(
        LEARNER.model, LEARNER.likelihood, LEARNER.adaptation, params, batch
    )
    return gradient, result.loss.mean()


@pytest.fixture(scope="module")
def step():
    return jax.jit(LEARNER.step)


@pytest.fixture(scope="module")
def state(step):
    state = LEARNER.init(KEY, batch_of(0))
    for seed in range(3):
        state, _ = step(state, batch_of(seed), KEY)
    return state


def test_fast_weights_given_up_at_every_batch_and_full_updates_are_maml():
    ours, maml = CMAML(**PARTS, threshold=-1.0, modulation=math.inf), MAML(**PARTS)
    step, expected_step = jax.jit(ours.step), jax.jit(maml.step)
    state, expected = ours.init(KEY, batch_of(0)), maml.init(KEY, batch_of(0))
    for seed in range(4):
        state, info = step(state, batch_of(seed), KEY)
        expected, expected_info = expected_step(expected, batch_of(seed), KEY)
        chex.assert_trees_all_close(state.params, expected.params, rtol=1e-5, atol=1e-7)
        chex.assert_trees_all_close(info, expected_info, rtol=1e-5)


def test_fast_weights_follow_the_gradient_while_nothing_changes(step, state):
    batch = batch_of(2)
    gradient, fast_loss = gradient_at(state.params, batch)
    assert fast_loss <= 1.1 * gradient_at(state.slow, batch)[1]
    after, _ = step(state, batch, KEY)
    expected = jax.tree.map(lambda p, g: p - 0.02 * g, state.params, gradient)
    chex.assert_trees_all_close(after.params, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("broken", [5.0, math.nan])
def test_fast_weights_start_again_from_the_slow_ones_at_a_change(step, state, broken):
    lost = jax.tree.map(lambda leaf: leaf + broken, state.params)
    after, _ = step(dataclasses.replace(state, params=lost), batch_of(2), KEY)
    chex.assert_trees_all_equal(after.params, after.slow)
    chex.assert_tree_all_finite(after)


@jax.jit
@functools.partial(jax.vmap, in_axes=(None, 0, None))
def loss_of_shifted(params, shift, batch):
    shifted = jax.tree.map(lambda leaf: leaf + shift, params)
    return gradient_at(shifted, batch)[1]


def test_threshold_is_a_fraction_of_the_loss_of_the_slow_weights(step, state):
    batch, shifts = batch_of(2), np.linspace(0.0, 1.0, 401, dtype=np.float32)
    losses = loss_of_shifted(state.params, shifts, batch)
    ratios = np.asarray(losses / gradient_at(state.slow, batch)[1])
    just_worse = np.flatnonzero(ratios > 1.1)[0]
    assert 1.05 < ratios[just_worse - 1] <= 1.1
    for index, again in ((just_worse - 1, False), (just_worse, True)):
        shifted = jax.tree.map(lambda leaf, s=shifts[index]: leaf + s, state.params)
        after, _ = step(dataclasses.replace(state, params=shifted), batch, KEY)
        same = jax.tree.map(np.array_equal, after.params, after.slow)
        assert all(jax.tree.leaves(same)) == again


def test_slow_weights_move_as_maml_does_in_proportion_to_what_is_unknown(step, state):
    batch = batch_of(2)
    after, _ = step(state, batch, KEY)
    maml, _ = jax.jit(MAML(**PARTS).step)(MAMLState(state.slow, state.optimiser), batch, KEY)
    share = 1 - math.exp(-0.5 * gradient_at(state.slow, batch)[1])
    assert 0 < share < 0.9
    expected = jax.tree.map(lambda old, new: old + share * (new - old), state.slow, maml.params)
    chex.assert_trees_all_close(after.slow, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("field", "value"),
    [("fast_rate", -0.1), ("threshold", -2.0), ("threshold", math.nan), ("modulation", 0.0)],
)
def test_bad_hyperparameter_is_refused_by_name_and_value(field, value):
    with pytest.raises(ValueError, match=rf"^{field} is {value};"):
        CMAML(**{field: value})
