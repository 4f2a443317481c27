"""PLATIPUS on lines, where every gradient is known, and MAML as its limit without variance."""

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.adaptation import Adaptation
from taskmix.baselines import MAML, PLATIPUS
from taskmix.baselines.normal import DiagonalNormal
from taskmix.likelihood import Categorical
from taskmix.models import MLP, Conv4
from taskmix.models.mlp import Linear
from taskmix.tasks import Examples, TaskBatch

KEY = jax.random.key(0)
RATE = 0.05
LINE = MLP(hidden=())
ADAPTATION = Adaptation(steps=1, rate=RATE, clip=1e6)
LEARNER = PLATIPUS(LINE, adaptation=ADAPTATION, kl_weight=0.3, samples=3)


@pytest.fixture(scope="module")
def batch():
    x = jax.random.normal(KEY, (3, 8, 1))
    y = jnp.array([1.0, -2.0, 3.0])[:, None, None] * x + 0.5
    return TaskBatch(Examples.full(x[:, :4], y[:, :4]), Examples.full(x[:, 4:], y[:, 4:]))


@pytest.fixture(scope="module")
def state(batch):
    """Different variances and rates, so that none can be taken for another."""
    state = LEARNER.init(KEY, batch)
    return eqx.tree_at(
        lambda s: (
            s.params.prior.log_variance,
            s.params.posterior_log_variance,
            s.params.prior_rate,
            s.params.posterior_rate,
        ),
        state,
        (
            (Linear(jnp.full((1, 1), -2.0), jnp.full(1, -1.0)),),
            (Linear(jnp.full((1, 1), -3.0), jnp.full(1, -1.5)),),
            jnp.asarray(0.1),
            jnp.asarray(0.2),
        ),
    )


@pytest.fixture(scope="module")
def step():
    return jax.jit(LEARNER.step)


def test_network_for_small_images_learns_so_many_numbers(batch):
    learner = PLATIPUS(Conv4(), Categorical())
    state = jax.eval_shape(lambda key: learner.init(key, batch), KEY)
    assert learner.published_parameters(state) == 65_546 == 2 * 32_773
    assert learner.parameters(state) == 98_321 == 3 * 32_773 + 2


def vector(tree):
    (layer,) = tree
    return np.array([layer.weight.item(), layer.bias.item()])


def noise(key):
    nothing = (Linear(jnp.zeros((1, 1)), jnp.zeros(1)),)
    return vector(DiagonalNormal(nothing, nothing).sample(key))


def points(examples, task):
    x = np.asarray(examples.x[task, :, 0], np.float64)
    return np.stack([x, np.ones_like(x)], axis=1), np.asarray(examples.y[task, :, 0], np.float64)


def moved(theta, rate, examples):
    """One gradient step of the mean squared error of a line."""
    a, b = examples
    return theta - rate * 2 / len(b) * a.T @ (a @ theta - b)


def test_loss_is_that_of_a_slow_version(step, state, batch):
    params = state.params
    mu, v = vector(params.prior.mean), np.exp(vector(params.posterior_log_variance))
    w = np.exp(vector(params.prior.log_variance))
    losses = []
    for task, key in enumerate(jax.random.split(KEY, 3)):
        support, query = points(batch.support, task), points(batch.query, task)
        p, q = moved(mu, 0.1, support), moved(mu, 0.2, query)
        phi = moved(q + np.sqrt(v) * noise(key), RATE, support)
        divergence = np.sum(np.log(w / v) + (v + (q - p) ** 2) / w - 1) / 2
        losses.append(np.mean((query[0] @ phi - query[1]) ** 2) + 2 * 0.3 * divergence / 4)
    np.testing.assert_allclose(step(state, batch, KEY)[1].loss, np.mean(losses), rtol=1e-4)


def test_prediction_is_the_mean_of_samples_that_have_seen_the_support_set_only(state, batch):
    support, query = points(batch.support, 0), points(batch.query, 0)
    p = moved(vector(state.params.prior.mean), 0.1, support)
    deviation = np.exp(vector(state.params.prior.log_variance) / 2)
    each = [
        query[0] @ moved(p + deviation * noise(key), RATE, support)
        for key in jax.random.split(jax.random.key(0), 3)
    ]
    one = jax.tree.map(lambda leaf: leaf[0], batch)
    prediction = jax.jit(LEARNER.predict)(state, one.support, one.query.x)
    np.testing.assert_allclose(prediction.mean[:, 0], np.mean(each, axis=0), rtol=1e-4)
    np.testing.assert_allclose(prediction.variance[:, 0], np.var(each, axis=0), rtol=1e-3)


def test_step_learns_means_variances_and_rates(step, state, batch):
    after, _ = step(state, batch, KEY)
    for old, new in zip(jax.tree.leaves(state.params), jax.tree.leaves(after.params), strict=True):
        assert (old != new).all()


def test_without_variance_rates_and_divergence_it_is_maml(batch):
    model = MLP(hidden=(4,), init_scale=0.5)
    # exp(-80 / 2) is too little to change any parameter, and its square no zero yet.
    learner = PLATIPUS(
        model,
        adaptation=ADAPTATION,
        kl_weight=0.0,
        initial_log_variance=-80.0,
        initial_rate=0.0,
        samples=1,
    )
    maml = MAML(model, adaptation=ADAPTATION)
    step, maml_step = jax.jit(learner.step), jax.jit(maml.step)
    state, maml_state = learner.init(KEY, batch), maml.init(KEY, batch)
    for _ in range(3):
        state, info = step(state, batch, KEY)
        maml_state, maml_info = maml_step(maml_state, batch, KEY)
        chex.assert_trees_all_close(info, maml_info, rtol=1e-4)
        # The rates are learned, even from zero.
        rates = (jnp.zeros(()), jnp.zeros(()))
        state = eqx.tree_at(lambda s: (s.params.prior_rate, s.params.posterior_rate), state, rates)
    chex.assert_trees_all_close(state.params.prior.mean, maml_state.params, rtol=1e-4, atol=1e-6)
