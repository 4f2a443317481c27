"""Adaptation: hand-computed steps, and meta-gradients against finite differences."""

import dataclasses
import functools
import math

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from tests.adaptation.lines import LIKELIHOOD, LINE, MODEL, SLOPE_2, task
from tests.compiling import AS_USERS

from taskmix.adaptation import (
    Adaptation,
    annealed_optimiser,
    mean_gradient,
    meta_gradient,
    task_loss,
)
from taskmix.models import MLP
from taskmix.tasks import Examples, TaskBatch

# y = 0 at x = 1: the loss is 4 and its gradient (4, 4), of norm sqrt(32).
POINT = Examples.full(jnp.ones((1, 1)), jnp.zeros((1, 1)))

# The code that users get: a gradient may be right in one kind of code and wrong in another.
as_users_do = functools.partial(jax.jit, compiler_options=AS_USERS)


class FixedBias(MLP):
    """A network whose first bias only the outer loop may change."""

    def adaptable(self, params):
        everything = super().adaptable(params)
        return eqx.tree_at(lambda layers: layers[0].bias, everything, False)


def adapted(adaptation: Adaptation, support: Examples = POINT, line: MLP = LINE) -> list[float]:
    (layer,) = adaptation(line, LIKELIHOOD, SLOPE_2, support)
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


def test_what_is_not_adaptable_stays_and_does_not_lengthen_the_gradient():
    # The gradient is 4 for the slope alone: a clip of 4 leaves it whole, one of 2 halves it.
    line = FixedBias(hidden=())
    assert adapted(Adaptation(steps=1, rate=0.125, clip=4.0), line=line) == [1.5, 0.0]
    assert adapted(Adaptation(steps=1, rate=0.125, clip=2.0), line=line) == [1.75, 0.0]


def test_empty_support_set_changes_nothing():
    nothing = Examples(POINT.x, POINT.y, jnp.zeros(1, dtype=bool))
    assert adapted(Adaptation(steps=3), nothing) == [2.0, 0.0]


def test_gradient_is_finite_where_a_task_is_fitted_exactly():
    fitted = Examples.full(jnp.ones((1, 1)), jnp.full((1, 1), 2.0))

    def loss(params):
        return task_loss(LINE, LIKELIHOOD, Adaptation()(LINE, LIKELIHOOD, params, fitted), POINT)

    chex.assert_tree_all_finite(jax.grad(loss)(SLOPE_2))


FIXED_BIAS = FixedBias(hidden=(6,), init_scale=0.7)


def meta_loss(adaptation: Adaptation, flat, unravel, support, query, model=MODEL):
    params = adaptation(model, LIKELIHOOD, unravel(flat), support)
    return task_loss(model, LIKELIHOOD, params, query)


@pytest.mark.parametrize("steps", [1, 3, 5])
@pytest.mark.parametrize("clip", [0.5, 1e3], ids=["clipped", "unclipped"])
def test_jitted_second_order_gradient_is_that_of_finite_differences(steps, clip):
    assert_gradient_is_that_of_finite_differences(
        Adaptation(steps=steps, rate=0.05, clip=clip), MODEL
    )


@pytest.mark.parametrize("clip", [0.5, 1e3], ids=["clipped", "unclipped"])
def test_gradient_is_that_of_finite_differences_also_for_what_is_not_adapted(clip):
    assert_gradient_is_that_of_finite_differences(
        Adaptation(steps=3, rate=0.05, clip=clip), FIXED_BIAS
    )


def assert_gradient_is_that_of_finite_differences(adaptation: Adaptation, model: MLP) -> None:
    with jax.enable_x64(True):
        flat, unravel, support, query = task()

        def loss(flat):
            return meta_loss(adaptation, flat, unravel, support, query, model)

        gradient = as_users_do(jax.grad(loss))(flat)
        assert gradient.dtype == jnp.float64
        assert gradient.all()
        # Eager on purpose, all points at once: nothing here is shared with the compiled code.
        points = flat + 1e-6 * jnp.concatenate([jnp.eye(flat.size), -jnp.eye(flat.size)])
        ahead, behind = jax.vmap(loss)(points).reshape(2, -1)
        differences = np.asarray((ahead - behind) / 2e-6)
    np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-7)


def test_what_is_not_adaptable_stays_bit_for_bit_and_the_rest_moves():
    flat, unravel, support, _ = task()
    before = unravel(flat)
    after = Adaptation(steps=3, rate=0.05)(FIXED_BIAS, LIKELIHOOD, before, support)
    same = jax.tree.map(lambda a, b: bool((a == b).all()), after, before)
    assert jax.tree.leaves(same) == [False, True, False, False]


def test_first_order_gradient_is_that_at_the_adapted_parameters():
    flat, unravel, support, query = task()
    second = Adaptation(steps=3, rate=0.05)
    first = dataclasses.replace(second, first_order=True)

    def gradient_by(adaptation):
        loss = functools.partial(
            meta_loss, adaptation, unravel=unravel, support=support, query=query
        )
        return jax.jit(jax.grad(loss))(flat)

    gradient = gradient_by(first)
    adapt = jax.jit(functools.partial(first, MODEL, LIKELIHOOD))
    end = ravel_pytree(adapt(unravel(flat), support))[0]
    expected = jax.grad(lambda flat: task_loss(MODEL, LIKELIHOOD, unravel(flat), query))(end)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)
    assert not np.allclose(gradient_by(second), gradient, rtol=1e-2)


def test_meta_gradient_is_the_mean_of_the_tasks_and_tells_how_each_did():
    adaptation = Adaptation(steps=2, rate=0.05)
    flat, unravel, support, query = task()
    flipped = [Examples.full(-examples.x, examples.y) for examples in (support, query)]
    tasks = [(support, query), tuple(flipped)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *tasks)
    compiled = jax.jit(functools.partial(meta_gradient, MODEL, LIKELIHOOD, adaptation))
    gradient, result = compiled(unravel(flat), TaskBatch(*stacked))
    losses, gradients = zip(
        *(
            jax.jit(jax.value_and_grad(lambda f, t=t: meta_loss(adaptation, f, unravel, *t)))(flat)
            for t in tasks
        ),
        strict=True,
    )
    np.testing.assert_allclose(
        ravel_pytree(gradient)[0], (gradients[0] + gradients[1]) / 2, rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(result.loss, losses, rtol=1e-5)
    np.testing.assert_allclose(
        np.square(result.predicted - stacked[1].y).mean(axis=(1, 2)), losses, rtol=1e-5
    )


def test_annealed_rate_falls_along_a_cosine_to_nothing():
    """Adam's first steps along a constant gradient are as long as its rate."""
    optimiser = annealed_optimiser(0.1, anneal_over=4)
    params = jnp.zeros(1)
    state, steps = optimiser.init(params), []
    for _ in range(6):
        update, state = optimiser.update(jnp.ones(1), state)
        steps.append(float(-update[0]))
    expected = [0.05 * (1 + math.cos(math.pi * min(k, 4) / 4)) for k in range(6)]
    np.testing.assert_allclose(steps, expected, atol=1e-6)


def test_rate_without_an_end_stays():
    update, _ = annealed_optimiser(0.1).update(
        jnp.ones(1), annealed_optimiser(0.1).init(jnp.zeros(1))
    )
    np.testing.assert_allclose(update, -0.1, rtol=1e-5)


def test_negative_length_of_annealing_is_refused():
    with pytest.raises(ValueError, match="anneal_over is -1"):
        annealed_optimiser(0.1, -1)


def test_clipped_optimiser_cuts_the_norm_of_all_gradients_together():
    """Adam's second moment after one step is a thousandth of the squared gradient it saw."""
    optimiser = annealed_optimiser(0.1, clip=1.0)
    gradient = (jnp.array([3.0]), jnp.array([4.0]))
    _, state = optimiser.update(gradient, optimiser.init(gradient))
    seen = jnp.sqrt(1000 * jnp.concatenate(state[1][0].nu))
    np.testing.assert_allclose(seen, [0.6, 0.8], rtol=1e-4)


@pytest.mark.parametrize("in_turn", [False, True])
def test_mean_gradient_weighs_the_tasks(in_turn):
    """Of w p with slopes 1, 5, and one without weight that is not a number: (1 + 2.5) / 1.5."""

    class Paced:
        one_at_a_time = in_turn

    slopes, weights = jnp.array([1.0, 5.0, jnp.nan]), jnp.array([1.0, 0.5, 0.0])

    def task_loss(params, slope):
        # A gradient turns 0 * NaN into NaN, so that callers make padding of such a task.
        return params * jnp.where(jnp.isnan(slope), 0, slope), slope

    gradient, seen = mean_gradient(Paced(), task_loss, jnp.asarray(2.0), slopes, weights=weights)
    np.testing.assert_allclose(gradient, 3.5 / 1.5, rtol=1e-6)
    np.testing.assert_array_equal(seen, slopes)
