"""The residual network: its size, an independent slow version, padding and meta-gradients."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from tests.compiling import AS_USERS

from taskmix.adaptation import Adaptation, meta_gradient
from taskmix.likelihood import Categorical
from taskmix.models.model import Model, parameter_count
from taskmix.models.resnet12 import ResNet12
from taskmix.tasks import Examples, TaskBatch

KEY = jax.random.key(0)

# The code that users get: a gradient may be right in one kind of code and wrong in another.
as_users_do = functools.partial(jax.jit, compiler_options=AS_USERS)
# Odd on the way: 6, 3, 1.
SMALL = ResNet12(channels=2, size=6, outputs=2, widths=(3, 2))


def images(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).uniform(size=(*shape, 6, 6, 2)))


def shifted(params):
    """Parameters none of which is zero, so that each takes part."""
    return jax.tree.map(lambda leaf: leaf + 0.1, params)


def slow_unit(unit, x):
    """Convolution and normalisation in plain numpy."""
    kernel = np.asarray(unit.kernel)
    size, (_, height, width, _) = len(kernel), x.shape
    edge = (size // 2, size // 2)
    padded = np.pad(x, ((0, 0), edge, edge, (0, 0)))
    x = sum(
        padded[:, i : i + height, j : j + width] @ kernel[i, j]
        for i in range(size)
        for j in range(size)
    )
    x = (x - x.mean((0, 1, 2))) / np.sqrt(x.var((0, 1, 2)) + 1e-5)
    return x * np.asarray(unit.scale) + np.asarray(unit.shift)


def slow_resnet(params, x):
    for block in params.blocks:
        first, second, third = block.units
        inside = slow_unit(first, x)
        inside = slow_unit(second, np.where(inside > 0, inside, 0.1 * inside))
        inside = slow_unit(third, np.where(inside > 0, inside, 0.1 * inside))
        x = inside + slow_unit(block.shortcut, x)
        x = np.where(x > 0, x, 0.1 * x)
        rows, columns = x.shape[1] // 2, x.shape[2] // 2
        x = x[:, : 2 * rows, : 2 * columns].reshape(len(x), rows, 2, columns, 2, -1).max((2, 4))
    return x.mean((1, 2)) @ np.asarray(params.head.weight) + np.asarray(params.head.bias)


def test_number_of_parameters_is_that_of_the_arithmetic():
    def block(channels, filters):
        kernels = 9 * channels * filters + 2 * 9 * filters**2 + channels * filters
        scales_and_shifts = 4 * 2 * filters
        return kernels + scales_and_shifts

    blocks = block(3, 64) + block(64, 128) + block(128, 256) + block(256, 512)
    assert parameter_count(ResNet12()) == blocks + 512 * 5 + 5 == 7_999_365


def test_is_a_model():
    assert isinstance(SMALL, Model)


def test_output_is_that_of_a_slow_version():
    with jax.enable_x64(True):
        params, x = shifted(SMALL.init(KEY)), images(3)
        np.testing.assert_allclose(
            jax.jit(SMALL.apply)(params, x), slow_resnet(params, np.asarray(x)), rtol=1e-9
        )


def test_inner_loop_adapts_kernels_and_the_linear_layer():
    params = SMALL.init(KEY)
    adaptable = SMALL.adaptable(params)
    assert jax.tree.structure(adaptable) == jax.tree.structure(params)
    for block in adaptable.blocks:
        for unit in (*block.units, block.shortcut):
            assert (unit.kernel, unit.scale, unit.shift) == (True, False, False)
    assert adaptable.head.weight
    assert adaptable.head.bias


def test_what_padding_holds_changes_no_bit():
    params, x = shifted(SMALL.init(KEY)), images(4).astype(jnp.float32)
    mask = jnp.array([True, False, True, True])
    other = jnp.where(mask[:, None, None, None], x, jnp.nan)
    apply = jax.jit(SMALL.apply)
    np.testing.assert_array_equal(apply(params, x, mask)[mask], apply(params, other, mask)[mask])


def test_compiled_meta_gradient_is_that_of_finite_differences():
    # One block has every operation of the network, and compiles in half the time.
    model = dataclasses.replace(SMALL, widths=(3,))
    with jax.enable_x64(True):
        flat, unravel = ravel_pytree(shifted(model.init(KEY)))

        def examples(count, seed):
            y = jnp.tile(jnp.arange(count) % 2, (2, 1))
            mask = jnp.ones((2, count), bool).at[1, 0].set(False)
            return Examples(images(2, count, seed=seed), y, mask)

        batch = TaskBatch(examples(2, seed=1), examples(3, seed=2))

        @as_users_do
        def gradient_and_loss(flat):
            gradient, result = meta_gradient(
                model, Categorical(), Adaptation(1, rate=0.1), unravel(flat), batch
            )
            return ravel_pytree(gradient)[0], jnp.mean(result.loss)

        gradient, _ = gradient_and_loss(flat)
        rng, distance = np.random.default_rng(0), 1e-6
        for _ in range(4):
            direction = rng.normal(size=flat.shape)
            direction /= np.linalg.norm(direction)
            _, above = gradient_and_loss(flat + distance * direction)
            _, below = gradient_and_loss(flat - distance * direction)
            np.testing.assert_allclose(
                gradient @ direction, (above - below) / (2 * distance), rtol=1e-5, atol=1e-8
            )


def test_image_that_poolings_shrink_to_nothing_is_refused():
    with pytest.raises(ValueError, match="must be at least 16 pixels"):
        ResNet12(size=15)


@pytest.mark.parametrize("widths", [(), (4, 0)])
def test_width_below_one_is_refused(widths):
    with pytest.raises(ValueError, match="at least 1"):
        ResNet12(widths=widths)
