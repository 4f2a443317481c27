"""Kronecker factors against dense matrices and an independent slow version."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from taskmix.models import MLP, Conv4, ResNet12
from taskmix.models.conv4 import Block
from taskmix.models.convolution import convolve, patches
from taskmix.models.kronecker import (
    Factors,
    checked_tapped,
    fisher_factors,
    log_determinant,
    nearest_sum,
    no_curvature,
    quadratic,
    weight_matrices,
)
from taskmix.models.mlp import Linear

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
NETWORK = MLP(inputs=2, hidden=(3,), outputs=2, init_scale=1.0)
CONV = Conv4(channels=2, size=16, filters=3, outputs=2)
IMAGES = jnp.asarray(RNG.uniform(size=(3, 16, 16, 2)), jnp.float32)
SCORE = jnp.asarray(RNG.normal(size=(3, 2)), jnp.float32)
EVERY = jnp.ones(3, bool)


def moment(size, seed=0):
    root = np.random.default_rng(seed).normal(size=(size, size))
    return jnp.asarray(root @ root.T, jnp.float32)


@functools.partial(jax.jit, static_argnums=0)
def factors_of(model, params, x, mask, score):
    """With a score that does not depend on the outputs."""
    return fisher_factors(model, params, x, mask, lambda _: score)


def dense(factors):
    return np.kron(np.asarray(factors.inputs, np.float64), np.asarray(factors.outputs, np.float64))


def test_factors_of_a_multilayer_perceptron_are_those_of_a_slow_version():
    params = jax.tree.map(lambda leaf: leaf + 0.1, NETWORK.init(KEY))
    x = RNG.normal(size=(3, 2)).astype(np.float32)
    outputs, factors = factors_of(NETWORK, params, x, EVERY, SCORE)

    first, last = jax.tree.map(np.asarray, params)
    before = x @ first.weight + first.bias
    hidden = np.maximum(before, 0)
    score = np.asarray(SCORE)
    at_hidden = score @ last.weight.T * (before > 0)
    expected = [
        ((np.c_[x, np.ones(3)], at_hidden)),
        ((np.c_[hidden, np.ones(3)], score)),
    ]
    np.testing.assert_allclose(outputs, hidden @ last.weight + last.bias, rtol=1e-5)
    for layer, (a, g) in zip(factors, expected, strict=True):
        np.testing.assert_allclose(layer.inputs, a.T @ a / 3, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(layer.outputs, g.T @ g / 3, rtol=1e-5, atol=1e-6)


def test_gradient_through_every_entry_of_the_factors_is_that_of_finite_differences():
    """Each entry has a weight of its own, so that no symmetry of the factors hides a mistake."""
    params = jax.tree.map(lambda leaf: leaf + 0.1, NETWORK.init(KEY))
    x = jnp.asarray(RNG.normal(size=(3, 2)), jnp.float32)

    def weighted(params):
        leaves = jax.tree.leaves(factors_of(NETWORK, params, x, EVERY, SCORE)[1])
        weights = [np.random.default_rng(i).normal(size=a.shape) for i, a in enumerate(leaves)]
        return sum(jnp.sum(a * w) for a, w in zip(leaves, weights, strict=True))

    check_grads(weighted, (params,), order=1, modes=["rev"], rtol=0.02, atol=0.02)


def test_information_of_a_single_example_is_the_square_of_its_gradient():
    params = NETWORK.init(KEY)
    x, score = jnp.array([[0.5, -2.0]]), SCORE[:1]
    _, factors = factors_of(NETWORK, params, x, EVERY[:1], score)
    gradient = jax.grad(lambda p: jnp.sum(score * NETWORK.apply(p, x)))(params)
    for layer, matrix in zip(factors, weight_matrices(gradient), strict=True):
        expected = np.outer(matrix.ravel(), matrix.ravel())
        np.testing.assert_allclose(dense(layer), expected, rtol=1e-4, atol=1e-6)


@jax.jit
def slow_block(maps, shift):
    """Normalise, rectify and pool in MAML's order."""
    mean, variance = maps.mean((0, 1, 2)), maps.var((0, 1, 2))
    maps = jax.nn.relu((maps - mean) / jnp.sqrt(variance + 1e-3) + shift)
    # A maximum over a reshaped axis would look for its winner by equality, in vain once fused.
    window = (1, 2, 2, 1)
    return jax.lax.reduce_window(maps, -jnp.inf, jax.lax.max, window, window, "VALID")


def slow_convolution(x, kernel):
    """The maps, and every neighbourhood as a row."""
    _, height, width, _ = x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    rows = np.concatenate(taps, axis=-1)
    return rows @ np.asarray(kernel).reshape(rows.shape[-1], -1), rows


@functools.partial(jax.jit, static_argnums=2)
@functools.partial(jax.grad, argnums=1)
def slow_gradient(params, maps, depth):
    """From the maps of one convolution to the gradient of the score."""
    for block, following in zip(
        params.blocks[depth:], [*params.blocks[depth + 1 :], None], strict=True
    ):
        x = slow_block(maps, block.shift)
        if following is not None:
            maps = jax.lax.conv_general_dilated(
                x, following.kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
    return jnp.sum(SCORE * (x.reshape(3, -1) @ params.head.weight + params.head.bias))


@pytest.fixture(scope="module")
def conv_params():
    return jax.tree.map(lambda leaf: leaf + 0.05, CONV.init(KEY))


@pytest.fixture(scope="module")
def conv_factors(conv_params):
    return factors_of(CONV, conv_params, IMAGES, EVERY, SCORE)


def test_factors_of_convolutions_sum_inputs_and_average_gradients_over_pixels(
    conv_params, conv_factors
):
    x = np.asarray(IMAGES)
    for depth, block in enumerate(conv_params.blocks):
        maps, rows = slow_convolution(x, block.kernel)
        gradient = np.asarray(slow_gradient(conv_params, jnp.asarray(maps), depth))
        pixels = maps.shape[1] * maps.shape[2]
        rows, gradient = rows.reshape(3 * pixels, -1), gradient.reshape(3 * pixels, -1)
        layer = conv_factors[1][depth]
        np.testing.assert_allclose(layer.inputs, rows.T @ rows / 3, rtol=1e-4, atol=1e-4)
        expected = gradient.T @ gradient / (3 * pixels)
        np.testing.assert_allclose(layer.outputs, expected, atol=1e-3 * expected.max())
        x = np.asarray(slow_block(jnp.asarray(maps), block.shift))


def test_tap_changes_no_output(conv_params, conv_factors):
    np.testing.assert_allclose(conv_factors[0], CONV.apply(conv_params, IMAGES), rtol=1e-5)


def test_weights_of_a_convolution_are_ordered_as_its_patches(conv_params):
    kernel = conv_params.blocks[0].kernel
    (matrix,) = weight_matrices(Block(kernel, jnp.zeros(3), jnp.zeros(3)))
    maps = (patches(IMAGES, 3).T @ matrix).reshape(3, 16, 16, 3)
    np.testing.assert_allclose(maps, convolve(IMAGES, kernel), rtol=1e-4, atol=1e-5)


def test_every_layer_has_factors_of_its_size_but_biases_and_shifts_of_blocks_have_none():
    factors = no_curvature(CONV.init(KEY))
    sizes = [(len(layer.inputs), len(layer.outputs)) for layer in factors]
    assert sizes == [(18, 3), (27, 3), (27, 3), (27, 3), (4, 2)]


def test_example_that_is_padding_is_left_out(conv_params):
    mask = jnp.array([True, True, False])
    _, padded = factors_of(CONV, conv_params, IMAGES, mask, SCORE)
    _, short = factors_of(CONV, conv_params, IMAGES[:2], EVERY[:2], SCORE[:2])
    for one, other in zip(padded, short, strict=True):
        np.testing.assert_allclose(one.inputs, other.inputs, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(one.outputs, other.outputs, rtol=1e-3, atol=1e-6)


def test_log_determinant_is_that_of_the_dense_matrices():
    layers = (Factors(moment(3), moment(2, seed=1)), Factors(moment(2, seed=2), moment(4, seed=3)))
    damped = [
        Factors(f.inputs + 0.1 * jnp.eye(len(f.inputs)), f.outputs + 0.1 * jnp.eye(len(f.outputs)))
        for f in layers
    ]
    expected = sum(np.linalg.slogdet(dense(layer))[1] for layer in damped)
    np.testing.assert_allclose(log_determinant(layers, damping=0.01), expected, rtol=1e-5)


def test_log_determinant_of_no_curvature_is_that_of_the_damping():
    # sqrt(e^-4) = e^-2 on the diagonals: 9 weights and biases, each (e^-2)^2.
    layers = no_curvature((Linear(jnp.zeros((2, 3)), jnp.zeros(3)),))
    np.testing.assert_allclose(log_determinant(layers, damping=np.exp(-4)), -36, rtol=1e-5)


def test_quadratic_form_is_that_of_the_dense_matrix():
    layer = Linear(jnp.asarray(RNG.normal(size=(2, 3))), jnp.asarray(RNG.normal(size=3)))
    factors = Factors(moment(3), moment(3, seed=1))
    weights = np.concatenate([np.ravel(layer.weight), layer.bias])
    expected = weights @ dense(factors) @ weights
    np.testing.assert_allclose(quadratic((factors,), (layer,)), expected, rtol=1e-5)


def test_nearest_sum_is_the_best_of_all_kronecker_products():
    one, other = Factors(moment(3), moment(2, 1)), Factors(moment(3, 2), moment(2, 3))
    # Rows of the rearranged matrix are blocks, so that a Kronecker product has rank one.
    total = dense(one) + dense(other)
    blocks = total.reshape(3, 2, 3, 2).transpose(0, 2, 1, 3).reshape(9, 4)
    u, s, v = np.linalg.svd(blocks)
    expected = s[0] * np.kron(u[:, 0].reshape(3, 3), v[0].reshape(2, 2))
    found = nearest_sum(one, other)
    np.testing.assert_allclose(dense(found), expected, rtol=1e-3, atol=1e-4)
    assert (np.linalg.eigvalsh(dense(found)) > 0).all()


def test_nearest_sum_with_nothing_is_the_rest():
    factors, nothing = (
        Factors(moment(3), moment(2, 1)),
        Factors(jnp.zeros((3, 3)), jnp.zeros((2, 2))),
    )
    for total in (nearest_sum(factors, nothing), nearest_sum(nothing, factors)):
        np.testing.assert_allclose(dense(total), dense(factors), rtol=1e-5)
    np.testing.assert_array_equal(dense(nearest_sum(nothing, nothing)), 0)


def test_nearest_sum_of_proportional_products_is_exact():
    factors = Factors(moment(3), moment(2, 1))
    total = nearest_sum(factors, Factors(2 * factors.inputs, 3 * factors.outputs))
    np.testing.assert_allclose(dense(total), 7 * dense(factors), rtol=1e-5)


def test_model_whose_layers_cannot_be_seen_is_refused():
    assert checked_tapped(CONV) is CONV
    with pytest.raises(ValueError, match=r"^model is ResNet12.*MLP or Conv4"):
        checked_tapped(ResNet12())
