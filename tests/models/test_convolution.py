"""Convolution and pooling: values and derivatives against independent versions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.models.convolution import convolve, kernel_gradient
from taskmix.models.pooling import max_pool


def of_jax(x, kernel):
    return jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def random(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def images_and_kernel(size=3, channels=3):
    return random(6, 5, 7, channels), random(size, size, channels, 2, seed=1)


def curved(convolution):
    """A loss whose second derivatives in images and kernel are all different from zero."""
    return lambda x, kernel: jnp.sum(jnp.sin(convolution(x, kernel)))


def gradient_of_gradient(convolution):
    """Derivative of the step that an inner loop takes, which is what the outer loop needs."""

    def after_a_step(x, kernel):
        in_x, in_kernel = jax.grad(curved(convolution), (0, 1))(x, kernel)
        return curved(convolution)(x - 0.1 * in_x, kernel - 0.1 * in_kernel)

    return jax.jit(jax.grad(after_a_step, (0, 1)))


@pytest.mark.parametrize("channels", [1, 3, 4, 9])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_value_is_that_of_jax(size, channels):
    with jax.enable_x64(True):
        x, kernel = images_and_kernel(size, channels)
        np.testing.assert_allclose(convolve(x, kernel), of_jax(x, kernel), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("size", "channels"), [(1, 4), (3, 3)])
def test_first_and_second_derivatives_are_those_of_jax(size, channels):
    with jax.enable_x64(True):
        x, kernel = images_and_kernel(size, channels)
        for derivative in (lambda c: jax.grad(curved(c), (0, 1)), gradient_of_gradient):
            for ours, theirs in zip(
                derivative(convolve)(x, kernel), derivative(of_jax)(x, kernel), strict=True
            ):
                np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)


def test_derivatives_are_the_same_in_a_loop_over_tasks():
    with jax.enable_x64(True):
        x, kernel = images_and_kernel()
        looped = jax.jit(
            lambda x: jax.lax.map(lambda one: gradient_of_gradient(convolve)(one, kernel), x)
        )
        for several, one in zip(
            looped(jnp.stack([x, 2 * x])), gradient_of_gradient(of_jax)(2 * x, kernel), strict=True
        ):
            np.testing.assert_allclose(several[1], one, rtol=1e-10, atol=1e-10)


def test_kernels_may_differ_between_tasks():
    with jax.enable_x64(True):
        x, kernel = images_and_kernel()
        kernels = jnp.stack([kernel, -kernel])
        batched = jax.vmap(gradient_of_gradient(convolve), (None, 0))(x, kernels)
        for several, one in zip(batched, gradient_of_gradient(of_jax)(x, -kernel), strict=True):
            np.testing.assert_allclose(several[1], one, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize("images", [1, 4, 7, 8])
def test_kernel_gradient_is_that_of_jax_for_any_number_of_images(images, size):
    with jax.enable_x64(True):
        x, upstream = random(images, 4, 5, 3), random(images, 4, 5, 2, seed=1)
        kernel = jnp.zeros((size, size, 3, 2))
        expected = jax.vjp(lambda kernel: of_jax(x, kernel), kernel)[1](upstream)
        np.testing.assert_allclose(kernel_gradient(x, upstream, size), expected[0], rtol=1e-10)


def slow_pool(x):
    """Maximum and the position that won, by a loop over windows."""
    images, height, width, channels = x.shape
    pooled = np.zeros((images, height // 2, width // 2, channels))
    winner = np.zeros_like(x)
    for n, i, j, c in np.ndindex(pooled.shape):
        window = x[n, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2, c]
        row, column = np.unravel_index(np.argmax(window), (2, 2))
        pooled[n, i, j, c] = window[row, column]
        winner[n, 2 * i + row, 2 * j + column, c] = 1
    return pooled, winner


# Whole numbers from 0 to 2 tie in most windows.
@pytest.mark.parametrize("shape", [(2, 4, 6, 3), (1, 5, 4, 2), (2, 7, 5, 1), (1, 2, 3, 1)])
@pytest.mark.parametrize("levels", [3, 1000])
def test_pool_is_that_of_a_loop_over_windows(shape, levels):
    x = np.random.default_rng(0).integers(levels, size=shape).astype(np.float32)
    pooled, winner = slow_pool(x)
    np.testing.assert_array_equal(max_pool(jnp.asarray(x)), pooled)
    np.testing.assert_array_equal(jax.grad(lambda x: max_pool(x).sum())(jnp.asarray(x)), winner)


def test_second_derivative_of_a_pool_passes_through_the_winners():
    with jax.enable_x64(True):
        x = random(1, 5, 4, 2)

        def squares(flat):
            return jnp.sum(max_pool(flat.reshape(x.shape)) ** 2)

        _, winner = slow_pool(np.asarray(x))
        hessian = jax.jit(jax.jacrev(jax.grad(squares)))(x.ravel())
        np.testing.assert_array_equal(hessian, np.diag(2 * winner.ravel()))
