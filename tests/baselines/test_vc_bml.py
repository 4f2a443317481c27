"""Stick-breaking weights by hand, and what a phase leaves behind."""

import dataclasses
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.adaptation import Adaptation
from taskmix.baselines import VCBML
from taskmix.baselines.vc_bml import broken_sticks, log_weights
from taskmix.models import MLP
from taskmix.streams import FunctionStream, consecutive
from taskmix.tasks import Hints

KEY = jax.random.key(0)
STREAM = FunctionStream(consecutive(("linear", "sinusoid"), (10, 10)), tasks=3, support=4, query=5)
LEARNER = VCBML(
    MLP(hidden=(6,)), adaptation=Adaptation(steps=1, rate=0.05), components=3, samples=1,
    test_samples=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def batch():
    return jax.jit(STREAM.batch)(KEY, 0)


@pytest.fixture(scope="module")
def step():
    return jax.jit(LEARNER.step)


def hinted(batch, boundary: bool):
    return dataclasses.replace(batch, hints=Hints(boundary=jnp.asarray(boundary)))


def test_weights_of_uniform_sticks_are_those_computed_by_hand():
    """E[log v] = psi(1) - psi(2) = -1 for a uniform share, and so is E[log(1 - v)]."""
    np.testing.assert_allclose(log_weights(jnp.ones((2, 2))), [-1, -2, -2], rtol=1e-5)


def test_weights_agree_with_draws_of_the_sticks():
    sticks = np.array([[3.0, 1.0], [2.0, 5.0]])
    drawn = np.random.default_rng(0).beta(sticks[0], sticks[1], size=(100_000, 2))
    logs = np.log([drawn[:, 0], (1 - drawn[:, 0]) * drawn[:, 1], (1 - drawn).prod(axis=1)])
    np.testing.assert_allclose(log_weights(jnp.array(sticks)), logs.mean(axis=1), atol=0.02)


def test_sticks_count_the_tasks_of_a_component_and_of_all_later_ones():
    found = broken_sticks(jnp.ones((2, 2)), jnp.array([5.0, 3.0, 2.0]))
    np.testing.assert_allclose(found, [[6, 4], [6, 3]])


def test_responsibilities_of_equal_components_are_their_weights(batch):
    state = LEARNER.init(KEY, batch)
    same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), state.params)
    state = dataclasses.replace(state, params=same)
    support, query = jax.tree.map(lambda leaf: leaf[0], (batch.support, batch.query))
    shares = LEARNER.predict(state, support, query.x).responsibilities
    weights = np.exp([-1, -2, -2])
    np.testing.assert_allclose(shares, weights / weights.sum(), rtol=1e-4)


def test_end_of_a_phase_makes_the_posterior_the_next_prior(step, batch):
    first, _ = step(LEARNER.init(KEY, batch), hinted(batch, True), KEY)
    chex.assert_trees_all_equal(first.prior, LEARNER.init(KEY, batch).prior)
    within, _ = step(first, hinted(batch, False), KEY)
    chex.assert_trees_all_equal(within.prior, first.prior)
    after, _ = step(within, hinted(batch, True), KEY)
    chex.assert_trees_all_equal(after.prior, within.params)
    np.testing.assert_array_equal(after.prior_sticks, within.sticks)


def test_divergence_alone_moves_a_component_that_takes_no_task(batch):
    """Towards N(0, 1): means shrink and log-variances grow, with plain descent by the gradient."""
    state = LEARNER.init(KEY, batch)
    gradient, _ = jax.jit(LEARNER._gradients)(
        state.params,
        state.prior,
        batch.without_hints(),
        jnp.zeros((3, 3)).at[:, 0].set(1.0),
        jnp.ones(3),
        KEY,
    )
    idle = jax.tree.map(lambda leaf: leaf[1], gradient)
    mean = jax.tree.map(lambda leaf: leaf[1] / LEARNER.phase_tasks, state.params.mean)
    chex.assert_trees_all_close(idle.mean, mean, rtol=1e-4, atol=1e-8)
    spread = (math.exp(LEARNER.initial_log_variance) - 1) / 2 / LEARNER.phase_tasks
    np.testing.assert_allclose(jax.tree.leaves(idle.log_variance)[0], spread, rtol=1e-4)


@pytest.mark.parametrize(
    ("field", "value"),
    [("components", 1), ("concentration", 0.0), ("samples", 0), ("phase_tasks", 0)],
)
def test_bad_setting_is_refused_by_name_and_value(field, value):
    with pytest.raises(ValueError, match=f"{field} is {value}"):
        VCBML(**{field: value})
