"""MAML's network: an independent slow version, padding, and meta-gradients in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from tests.compiling import AS_USERS

from taskmix.adaptation import Adaptation, meta_gradient
from taskmix.likelihood import Categorical
from taskmix.models.conv4 import Conv4
from taskmix.models.model import Model, parameter_count
from taskmix.tasks import Examples, TaskBatch

KEY = jax.random.key(0)
SMALL = Conv4(channels=2, size=16, filters=3, outputs=2)
apply = jax.jit(SMALL.apply)

# The code that users get: a gradient may be right in one kind of code and wrong in another.
as_users_do = functools.partial(jax.jit, compiler_options=AS_USERS)


def images(count, model=SMALL, seed=0):
    shape = (count, model.size, model.size, model.channels)
    return jnp.asarray(np.random.default_rng(seed).uniform(size=shape))


def shifted(params):
    """Parameters none of which is zero, so that each takes part."""
    return jax.tree.map(lambda leaf: leaf + 0.1, params)


def slow_conv4(params, x):
    """Convolve, normalise, rectify and pool in MAML's order, in plain numpy."""
    for block in params.blocks:
        kernel = np.asarray(block.kernel)
        _, height, width, _ = x.shape
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        x = np.asarray(block.bias) + sum(
            padded[:, i : i + height, j : j + width] @ kernel[i, j]
            for i in range(3)
            for j in range(3)
        )
        x = (x - x.mean((0, 1, 2))) / np.sqrt(x.var((0, 1, 2)) + 1e-3)
        x = np.maximum(x + np.asarray(block.shift), 0)
        x = x[:, : height // 2 * 2, : width // 2 * 2]
        x = x.reshape(len(x), height // 2, 2, width // 2, 2, -1).max((2, 4))
    return x.reshape(len(x), -1) @ np.asarray(params.head.weight) + np.asarray(params.head.bias)


def test_network_of_maml_has_32773_parameters():
    assert parameter_count(Conv4()) == 32_773
    assert isinstance(Conv4(), Model)


@pytest.mark.parametrize(("size", "features"), [(84, 800), (32, 128), (28, 32), (16, 32)])
def test_number_of_features_follows_from_the_size(size, features):
    params = jax.eval_shape(Conv4(size=size).init, KEY)
    assert params.head.weight.shape == (features, 5)


@pytest.mark.parametrize("size", [16, 21])
def test_output_is_that_of_a_slow_version_in_the_order_of_maml(size):
    model = Conv4(channels=2, size=size, filters=3, outputs=2)
    with jax.enable_x64(True):
        params = shifted(model.init(KEY))
        x = images(4, model)
        np.testing.assert_allclose(
            jax.jit(model.apply)(params, x), slow_conv4(params, np.asarray(x)), rtol=1e-10
        )


def test_weights_start_in_the_range_of_glorot_and_the_rest_at_zero():
    params = Conv4(size=32).init(KEY)
    for block in params.blocks:
        limit = np.sqrt(6 / (9 * sum(block.kernel.shape[2:])))
        assert 0.95 * limit < np.abs(block.kernel).max() <= limit
        assert not block.bias.any()
        assert not block.shift.any()
    assert np.abs(params.head.weight).max() <= np.sqrt(6 / sum(params.head.weight.shape))
    assert not params.head.bias.any()


def test_inner_loop_adapts_all_but_the_shifts():
    params = SMALL.init(KEY)
    adaptable = SMALL.adaptable(params)
    assert jax.tree.structure(adaptable) == jax.tree.structure(params)
    assert not any(block.shift for block in adaptable.blocks)
    assert all(block.kernel and block.bias for block in adaptable.blocks)
    assert adaptable.head.weight
    assert adaptable.head.bias


def test_output_depends_on_the_other_examples():
    params, x = SMALL.init(KEY), images(4)
    together, alone = apply(params, x)[:2], apply(params, x[:2])
    assert not np.allclose(together, alone, atol=1e-3)


def test_order_of_examples_does_not_matter():
    params, x = SMALL.init(KEY), images(4)
    np.testing.assert_allclose(apply(params, x[::-1]), apply(params, x)[::-1], atol=1e-5)


@functools.cache
def outputs_and_gradient():
    def task_loss(params, x, mask):
        outputs = SMALL.apply(params, x, mask)
        return jnp.sum(jnp.where(mask[:, None], jnp.sin(outputs), 0)), outputs

    return jax.jit(jax.grad(task_loss, has_aux=True))


@pytest.mark.parametrize("padding", [1e30, jnp.nan])
def test_what_padding_holds_changes_no_bit(padding):
    mask = jnp.array([True, False, True, True, False])
    x = images(5).astype(jnp.float32)
    other = jnp.where(mask[:, None, None, None], x, padding)
    params = shifted(SMALL.init(KEY))
    gradient, outputs = outputs_and_gradient()(params, x, mask)
    same_gradient, same_outputs = outputs_and_gradient()(params, other, mask)
    np.testing.assert_array_equal(outputs[mask], same_outputs[mask])
    for one, another in zip(jax.tree.leaves(gradient), jax.tree.leaves(same_gradient), strict=True):
        np.testing.assert_array_equal(one, another)


def test_padded_call_is_the_call_without_padding():
    params, x = shifted(SMALL.init(KEY)), images(5)
    mask = jnp.array([True, False, True, True, False])
    np.testing.assert_allclose(
        apply(params, x, mask)[mask], apply(params, x[mask]), rtol=1e-5, atol=1e-6
    )


def test_call_with_nothing_but_padding_is_finite():
    assert np.isfinite(apply(SMALL.init(KEY), images(2), jnp.zeros(2, bool))).all()


def test_too_small_an_image_is_refused():
    with pytest.raises(ValueError, match="must be at least 16 pixels"):
        Conv4(size=15)


def test_no_filter_is_refused():
    with pytest.raises(ValueError, match="all must be at least 1"):
        Conv4(filters=0)


def test_images_of_another_size_are_refused():
    with pytest.raises(ValueError, match=r"\(8, 8, 2\); the network expects \(16, 16, 2\)"):
        SMALL.apply(SMALL.init(KEY), jnp.zeros((1, 8, 8, 2)))


class MetaProblem:
    """The loss after adaptation of two tasks, one of them padded, in float64."""

    def __init__(self, size: int, steps: int):
        self.model = Conv4(channels=1, size=size, filters=2, outputs=2)
        self.adaptation = Adaptation(steps, rate=0.5)
        self.flat, self.unravel = ravel_pytree(shifted(self.model.init(KEY)))
        self.batch = TaskBatch(self.examples(2, seed=1), self.examples(3, seed=2))

    def examples(self, count: int, seed: int) -> Examples:
        x = images(2 * count, self.model, seed)
        mask = jnp.ones((2, count), bool).at[1, 0].set(False)
        y = jnp.tile(jnp.arange(count) % 2, (2, 1))
        return Examples(x.reshape(2, count, *x.shape[1:]), y, mask)

    def __call__(self, flat):
        """Gradient and loss, in the loop over tasks that training uses."""
        gradient, result = meta_gradient(
            self.model, Categorical(), self.adaptation, self.unravel(flat), self.batch
        )
        return ravel_pytree(gradient)[0], jnp.mean(result.loss)


# 21 is odd at once (21, 10, 5, 2) and 28 on the way (28, 14, 7, 3); 16 never is.
@pytest.mark.parametrize("size", [pytest.param(16, marks=pytest.mark.slow), 21, 28])
def test_compiled_meta_gradient_is_that_of_finite_differences(size):
    with jax.enable_x64(True):
        problem = MetaProblem(size, steps=1)
        compiled = as_users_do(problem)
        gradient, _ = compiled(problem.flat)
        rng, distance = np.random.default_rng(0), 1e-6
        for _ in range(4):
            direction = rng.normal(size=problem.flat.shape)
            direction /= np.linalg.norm(direction)
            _, above = compiled(problem.flat + distance * direction)
            _, below = compiled(problem.flat - distance * direction)
            np.testing.assert_allclose(
                gradient @ direction, (above - below) / (2 * distance), rtol=1e-5, atol=1e-8
            )


@pytest.mark.slow
@pytest.mark.parametrize("size", [16, 21, 28])
def test_compiled_meta_gradient_is_that_of_eager_evaluation(size):
    with jax.enable_x64(True):
        problem = MetaProblem(size, steps=2)
        compiled, _ = as_users_do(problem)(problem.flat)
        with jax.disable_jit():
            eager, _ = problem(problem.flat)
        np.testing.assert_allclose(compiled, eager, rtol=1e-8, atol=1e-12)
