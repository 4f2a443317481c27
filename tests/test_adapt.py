"""Adaptation: hand-computed steps, and meta-gradients against finite differences."""

import dataclasses
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from taskmix.adapt import Adaptation, task_loss
from taskmix.likelihood import Gaussian
from taskmix.models import MLP
from taskmix.models.mlp import Linear
from taskmix.tasks import Examples

LINE, LIKELIHOOD = MLP(hidden=()), Gaussian()
SLOPE_2 = (Linear(jnp.array([[2.0]]), jnp.zeros(1)),)
# y = 0 at x = 1: the loss is 4 and its gradient (4, 4), of norm sqrt(32).
POINT = Examples.full(jnp.ones((1, 1)), jnp.zeros((1, 1)))


def adapted(adaptation: Adaptation, support: Examples = POINT) -> list[float]:
    (layer,) = adaptation(LINE, LIKELIHOOD, SLOPE_2, support)
    return [layer.weight.item(), layer.bias.item()]


def test_one_step_follows_the_gradient():
    np.testing.assert_allclose(adapted(Adaptation(steps=1, rate=0.1)), [1.6, -0.4], rtol=1e-6)


def test_second_step_follows_the_gradient_where_the_first_ended():
    # The residual is now 1.2, so the gradient is (2.4, 2.4).
    np.testing.assert_allclose(adapted(Adaptation(steps=2, rate=0.1)), [1.36, -0.64], rtol=1e-5)


def test_long_gradient_is_cut_to_the_norm():
    step = 0.1 * 2 / math.sqrt(2)
    np.testing.assert_allclose(
        adapted(Adaptation(steps=1, rate=0.1, clip=2.0)), [2 - step, -step], rtol=1e-6
    )


def test_no_step_changes_nothing():
    assert adapted(Adaptation(steps=0)) == [2.0, 0.0]


def test_infinite_clip_cuts_nothing():
    np.testing.assert_allclose(
        adapted(Adaptation(steps=1, rate=0.1, clip=math.inf)), [1.6, -0.4], rtol=1e-6
    )


def test_empty_support_set_changes_nothing():
    nothing = Examples(POINT.x, POINT.y, jnp.zeros(1, dtype=bool))
    assert adapted(Adaptation(steps=3), nothing) == [2.0, 0.0]


def test_gradient_is_finite_where_a_task_is_fitted_exactly():
    fitted = Examples.full(jnp.ones((1, 1)), jnp.full((1, 1), 2.0))

    def loss(params):
        return task_loss(LINE, LIKELIHOOD, Adaptation()(LINE, LIKELIHOOD, params, fitted), POINT)

    chex.assert_tree_all_finite(jax.grad(loss)(SLOPE_2))


MODEL = MLP(hidden=(6,), init_scale=0.7)


def meta_loss(adaptation: Adaptation, flat, unravel, support, query):
    params = adaptation(MODEL, LIKELIHOOD, unravel(flat), support)
    return task_loss(MODEL, LIKELIHOOD, params, query)


def task():
    """Parameters and one task, in the precision that is in force."""
    x = jnp.linspace(-2.1, 2.3, 9)[:, None]
    y = 3 * jnp.sin(x)
    flat, unravel = ravel_pytree(MODEL.init(jax.random.key(1)))
    return flat, unravel, Examples.full(x[::2], y[::2]), Examples.full(x[1::2], y[1::2])


@pytest.mark.parametrize("steps", [1, 3, 5])
@pytest.mark.parametrize("clip", [0.5, 1e3], ids=["clipped", "unclipped"])
def test_jitted_second_order_gradient_is_that_of_finite_differences(steps, clip):
    with jax.enable_x64(True):
        flat, unravel, support, query = task()
        adaptation = Adaptation(steps=steps, rate=0.05, clip=clip)
        gradient = jax.jit(
            jax.grad(lambda flat: meta_loss(adaptation, flat, unravel, support, query))
        )(flat)
        assert gradient.dtype == jnp.float64
        # Eager on purpose, all points at once: nothing here is shared with the compiled code.
        points = flat + 1e-6 * jnp.concatenate([jnp.eye(flat.size), -jnp.eye(flat.size)])
        ahead, behind = jax.vmap(lambda flat: meta_loss(adaptation, flat, unravel, support, query))(
            points
        ).reshape(2, -1)
        differences = np.asarray((ahead - behind) / 2e-6)
    np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-7)


def test_first_order_gradient_is_that_at_the_adapted_parameters():
    flat, unravel, support, query = task()
    second = Adaptation(steps=3, rate=0.05)
    first = dataclasses.replace(second, first_order=True)
    gradient = jax.grad(lambda flat: meta_loss(first, flat, unravel, support, query))(flat)
    end = ravel_pytree(first(MODEL, LIKELIHOOD, unravel(flat), support))[0]
    expected = jax.grad(lambda flat: task_loss(MODEL, LIKELIHOOD, unravel(flat), query))(end)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)
    other = jax.grad(lambda flat: meta_loss(second, flat, unravel, support, query))(flat)
    assert not np.allclose(other, gradient, rtol=1e-2)
