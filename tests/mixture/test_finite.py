"""The joint surrogate, against a slow version with plain loops and a written-out Adam."""

import dataclasses
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

KEY = jax.random.key(3)
TEMPERATURES = [2.0, math.inf]


def slow_loss(learner, every_cluster, batch):
    """(1/J) sum_j sum_l gamma_jl loss_jl, gamma from the support sets."""
    total = 0.0
    for task in range(batch.support.x.shape[0]):
        fits, losses = [], []
        for params in every_cluster:
            x, y = batch.support.x[task], batch.support.y[task]

            def support_loss(p, x=x, y=y):
                return jnp.mean(jnp.square(learner.model.apply(p, x) - y))

            gradient = jax.grad(support_loss)(params)
            norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(gradient)))
            scale = learner.adaptation.rate * jnp.minimum(1, learner.adaptation.clip / norm)
            adapted = jax.tree.map(lambda p, g, s=scale: p - s * g, params, gradient)
            fits.append(-0.5 * jnp.sum(jnp.square(learner.model.apply(adapted, x) - y)))
            outputs = learner.model.apply(adapted, batch.query.x[task])
            losses.append(jnp.mean(jnp.square(outputs - batch.query.y[task])))
        scores = jnp.exp(jnp.stack(fits) / learner.temperature)
        total += jnp.sum(scores / jnp.sum(scores) * jnp.stack(losses))
    return total / batch.support.x.shape[0]


@pytest.fixture(scope="module", params=TEMPERATURES)
def learner(request, finite):
    return dataclasses.replace(finite, temperature=request.param)


@pytest.fixture(scope="module")
def step(learner):
    return jax.jit(learner.step)


@pytest.fixture(scope="module")
def stepped(step, three_finite, batches):
    return step(three_finite, batches[0], KEY)


def test_step_is_that_of_the_slow_version(learner, stepped, three_finite, batches):
    every_cluster = [jax.tree.map(lambda leaf, i=i: leaf[i], three_finite.params) for i in range(3)]
    slow = jax.jit(jax.value_and_grad(lambda every: slow_loss(learner, every, batches[0])))
    loss, gradients = slow(every_cluster)
    after, info = stepped
    np.testing.assert_allclose(info.loss, loss, rtol=1e-4)
    for index, (params, gradient) in enumerate(zip(every_cluster, gradients, strict=True)):
        found = jax.tree.map(lambda leaf, i=index: leaf[i], after)
        # The first step of Adam has the size of the rate: m and v are unbiased to g and g^2.
        expected = jax.tree.map(
            lambda p, g: p - learner.meta_rate * g / (jnp.abs(g) + 1e-8), params, gradient
        )
        chex.assert_trees_all_close(found.params, expected, rtol=1e-4, atol=1e-6)
        chex.assert_trees_all_close(
            found.optimiser[0].mu, jax.tree.map(lambda g: 0.1 * g, gradient), rtol=1e-3, atol=1e-6
        )


def test_error_is_that_of_the_mixture_mean(learner, stepped, three_finite, batches):
    _, info = stepped
    predict = jax.jit(learner.predict)
    for task in range(4):
        one = jax.tree.map(lambda leaf, t=task: leaf[t], batches[0])
        prediction = predict(three_finite, one.support, one.query.x)
        mean = np.tensordot(prediction.responsibilities, prediction.components, axes=1)
        np.testing.assert_allclose(prediction.mean, mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(
            info.error[task], np.square(mean - one.query.y).mean(), rtol=1e-4
        )


def test_shares_are_equal_if_and_only_if_the_temperature_is_infinite(learner, stepped):
    _, info = stepped
    equal = (np.asarray(info.responsibilities) == np.float32(1 / 3)).all()
    assert equal == math.isinf(learner.temperature)


def test_identical_components_share_every_task_equally(step, three_finite, batches):
    same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), three_finite)
    _, info = step(same, batches[0], KEY)
    np.testing.assert_array_equal(info.responsibilities, np.full((4, 3), np.float32(1 / 3)))


def test_components_start_apart(finite, batches):
    weights = finite.init(KEY, batches[0]).params[0].weight
    assert len(np.unique(weights)) == weights.size
