"""MAML on lines, where adaptation and its meta-gradient are known in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.adaptation import Adaptation
from taskmix.baselines import MAML
from taskmix.learner import Growing, Learner
from taskmix.models import MLP
from taskmix.tasks import Examples, TaskBatch

RATE = 0.05
LEARNER = MAML(model=MLP(hidden=()), adaptation=Adaptation(steps=1, rate=RATE, clip=1e6))
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def batch():
    x = jax.random.normal(KEY, (3, 8, 1))
    y = jnp.array([1.0, -2.0, 3.0])[:, None, None] * x + 0.5
    return TaskBatch(Examples.full(x[:, :4], y[:, :4]), Examples.full(x[:, 4:], y[:, 4:]))


@pytest.fixture(scope="module")
def state(batch):
    return LEARNER.init(KEY, batch)


def design(examples, task):
    x = np.asarray(examples.x[task, :, 0], np.float64)
    return np.stack([x, np.ones_like(x)], axis=1), np.asarray(examples.y[task, :, 0], np.float64)


def closed_form(state, batch):
    """Query loss of every task, and the mean meta-gradient in (slope, offset).

    One step on a line is affine: theta' = theta - (2 rate / n) A'(A theta - b), so its
    derivative is I - (2 rate / n) A'A.
    """
    (layer,) = state.params
    theta = np.array([layer.weight.item(), layer.bias.item()])
    losses, gradients = [], []
    for task in range(3):
        a, b = design(batch.support, task)
        q, r = design(batch.query, task)
        jacobian = np.eye(2) - 2 * RATE / len(b) * a.T @ a
        residual = q @ (jacobian @ theta + 2 * RATE / len(b) * a.T @ b) - r
        losses.append(np.mean(residual**2))
        gradients.append(jacobian.T @ (2 / len(r) * q.T @ residual))
    return np.array(losses), np.mean(gradients, axis=0)


def test_error_and_loss_are_those_before_the_step(state, batch):
    _, info = jax.jit(LEARNER.step)(state, batch, KEY)
    losses, _ = closed_form(state, batch)
    np.testing.assert_allclose(info.error, losses, rtol=1e-4)
    np.testing.assert_allclose(info.loss, losses.mean(), rtol=1e-4)


def test_step_moves_along_the_second_order_gradient(state, batch):
    after, _ = jax.jit(LEARNER.step)(state, batch, KEY)
    _, gradient = closed_form(state, batch)
    (mu,) = after.optimiser[0].mu
    # Adam keeps a tenth of the first gradient, and its first step has the size of the rate.
    np.testing.assert_allclose([mu.weight.item(), mu.bias.item()], 0.1 * gradient, rtol=1e-4)
    moved = after.params[0].weight.item() - state.params[0].weight.item()
    np.testing.assert_allclose(moved, -LEARNER.meta_rate * np.sign(gradient[0]), rtol=1e-3)


def test_prediction_is_that_of_the_adapted_line(state, batch):
    one = jax.tree.map(lambda leaf: leaf[0], batch)
    prediction = jax.jit(LEARNER.predict)(state, one.support, one.query.x)
    losses, _ = closed_form(state, batch)
    np.testing.assert_allclose(
        np.square(prediction.mean - one.query.y).mean(), losses[0], rtol=1e-4
    )
    np.testing.assert_array_equal(prediction.components[0], prediction.mean)


def test_learner_without_clusters_has_nothing_to_grow():
    assert isinstance(LEARNER, Learner)
    assert not isinstance(LEARNER, Growing)
