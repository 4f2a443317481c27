"""Gradients of Bayesian heads, and tasks on which they could fail."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from tests.adaptation.heads import (
    CLASSES,
    HEAD,
    HEADS,
    as_users_do,
    asked,
    random_examples,
    random_params,
)

from taskmix.tasks import Examples


def batch_gradient(head):
    """The gradient of a batch of tasks, as training takes it, in one vector; and the loss."""

    def gradient(params, support, query):
        def mean_loss(params):
            losses, _ = head.losses(params, support, query)
            return jnp.mean(losses)

        loss, gradient = jax.value_and_grad(mean_loss)(params)
        return ravel_pytree(gradient)[0], loss

    return gradient


def three_tasks(head):
    def stacked(count, first):
        tasks = [random_examples(count, head, seed=first + k) for k in range(3)]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *tasks)

    support, query = stacked(5, 0), stacked(10, 10)
    return support, Examples(query.x, query.y, query.mask.at[1, 3:].set(False))


def one_task(head):
    """A batch of the ragged one."""
    return jax.tree.map(lambda leaf: leaf[1:2], three_tasks(head))


@pytest.mark.parametrize(
    "head",
    [HEAD, pytest.param(CLASSES, marks=pytest.mark.slow)],
    ids=["regression", "classes"],
)
def test_compiled_gradient_is_that_of_eager_evaluation_in_float64(head):
    gradient = as_users_do(batch_gradient(head))
    with jax.enable_x64(True):
        params, tasks = random_params(head), one_task(head)
        own = jax.tree.map(lambda leaf: leaf[0], tasks)
        with jax.disable_jit():
            eager = ravel_pytree(jax.grad(lambda params: head.loss(params, *own)[0])(params))[0]
        np.testing.assert_allclose(gradient(params, *tasks)[0], eager, rtol=1e-8, atol=1e-11)
    single, _ = gradient(random_params(head), *one_task(head))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, eager, rtol=1e-3, atol=1e-4 * np.abs(eager).max())


@HEADS
def test_compiled_gradient_is_that_of_finite_differences(head):
    compiled = as_users_do(batch_gradient(head))
    with jax.enable_x64(True):
        params, (support, query) = random_params(head), three_tasks(head)
        flat, unravel = ravel_pytree(params)
        gradient, _ = compiled(params, support, query)
        rng, distance = np.random.default_rng(0), 1e-6
        for _ in range(3):
            direction = rng.normal(size=flat.shape) / math.sqrt(flat.size)
            above, below = (
                compiled(unravel(flat + sign * distance * direction), support, query)[1]
                for sign in (1, -1)
            )
            slope = (above - below) / (2 * distance)
            # The jitter is no part of what is differentiated.
            np.testing.assert_allclose(gradient @ direction, slope, rtol=1e-3, atol=1e-5)
    single, _ = compiled(random_params(head), *three_tasks(head))
    np.testing.assert_allclose(single, gradient, rtol=1e-3, atol=1e-4 * np.abs(gradient).max())


def harsh(case, head):
    support, query = random_examples(20, head), random_examples(6, head, seed=1)
    if case == "repeated inputs":
        return Examples(jnp.ones_like(support.x), support.y, support.mask), query
    if case == "inputs of 1e4":
        return Examples(1e4 * support.x, support.y, support.mask), query
    if case == "targets of 1e3" and not head.classes:
        return Examples(support.x, 1e3 * support.y, support.mask), query
    return support, Examples(1e4 * query.x, query.y, query.mask)


@HEADS
@pytest.mark.parametrize(
    "case", ["repeated inputs", "inputs of 1e4", "targets of 1e3", "query of 1e4"]
)
@pytest.mark.parametrize("log_noise", [-0.5, -20.0])
def test_ill_conditioned_task_stays_finite(head, case, log_noise):
    params = random_params(head)
    params = type(params)(
        params.features, params.location, params.factor, jnp.float32(log_noise), params.log_scale
    )
    found = asked(head, params, *harsh(case, head))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(found))
    assert np.all(found[2].predictive.uncertainty >= 0)
