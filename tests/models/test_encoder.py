"""The encoder of images: an independent slow version, scales of either sign, and padding."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.models import Encoder
from taskmix.models.block import Statistics
from taskmix.models.encoder import EncoderBlock

KEY = jax.random.key(0)
SMALL = Encoder(channels=2, size=5, filters=4, blocks=2)
RNG = np.random.default_rng(0)


def random_like(tree, low):
    return jax.tree.map(lambda leaf: jnp.asarray(RNG.uniform(low, 1, leaf.shape)), tree)


@pytest.fixture(scope="module")
def problem():
    """Parameters with scales of either sign, images, and statistics, in float64."""
    with jax.enable_x64(True):
        params = random_like(SMALL.init(KEY), -1)
        x = jnp.asarray(RNG.normal(size=(5, 5, 5, 2)))
        statistics = random_like(SMALL.init_statistics(), 0.1)
        assert any((block.scale < 0).any() for block in params)
        assert any((block.scale > 0).any() for block in params)
        return params, x, statistics


def larger(a, b):
    """A maximum whose gradient does not ask what equals it, which a fused one may not know."""
    return jnp.where(a > b, a, b)


def slow_encoder(params, x, statistics=None):
    """Convolve, add the bias, normalise, scale, rectify and pool, in this order.

    A bias is added to given means too, as a running mean would have followed it.
    """
    seen = []
    for number, block in enumerate(params):
        _, height, width, _ = x.shape
        padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        x = block.bias + sum(
            padded[:, i : i + height, j : j + width] @ block.kernel[i, j]
            for i in range(3)
            for j in range(3)
        )
        if statistics is None:
            mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
        else:
            given = statistics[number]
            mean, variance = given.mean + block.bias, given.variance
        seen.append(Statistics(mean - block.bias, variance))
        x = (x - mean) / jnp.sqrt(variance + 1e-5) * block.scale + block.shift
        x = larger(x, jnp.zeros_like(x))[:, : height // 2 * 2, : width // 2 * 2]
        x = larger(x[:, ::2], x[:, 1::2])
        x = larger(x[:, :, ::2], x[:, :, 1::2])
    return x.reshape(len(x), -1), tuple(seen)


def with_gradient(encode):
    def task_loss(params, x, statistics):
        embedded, seen = encode(params, x, statistics)
        return jnp.sum(jnp.sin(embedded)), (embedded, seen)

    return jax.jit(jax.grad(task_loss, has_aux=True))


@pytest.mark.parametrize("given", [False, True], ids=["of the batch", "given"])
def test_embedding_statistics_and_gradient_are_those_of_a_slow_version(problem, given):
    params, x, statistics = problem
    with jax.enable_x64(True):
        given = statistics if given else None
        fast = with_gradient(lambda p, x, s: SMALL.apply(p, x, None, s))(params, x, given)
        slow = with_gradient(slow_encoder)(params, x, given)
        for one, another in zip(jax.tree.leaves(fast), jax.tree.leaves(slow), strict=True):
            np.testing.assert_allclose(one, another, rtol=1e-7, atol=1e-9)


def test_what_padding_holds_changes_no_bit_and_it_counts_for_nothing(problem):
    params, x, _ = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), problem)
    mask = jnp.array([True, False, True, True, False])
    apply = jax.jit(SMALL.apply)
    expected = apply(params, x, mask)
    found = apply(params, jnp.where(mask[:, None, None, None], x, jnp.nan), mask)
    chex.assert_trees_all_equal(found, expected)
    alone, _ = jax.jit(slow_encoder)(params, x[mask])
    np.testing.assert_allclose(found[0][mask], alone, rtol=1e-3, atol=1e-4)


def count(encoder):
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(encoder.init, KEY)))


def test_encoder_of_prototypical_networks_has_113088_parameters():
    assert count(Encoder(filters=64)) == 113_088


def test_without_scale_and_bias_kernels_and_shifts_are_left():
    assert count(Encoder(filters=64, blocks=5, affine=False)) == 149_184 + 320


def test_embedding_is_as_long_as_it_says():
    encoder = dataclasses.replace(SMALL, size=9, blocks=3)
    x = jnp.zeros((2, 9, 9, 2))
    embedded, _ = jax.eval_shape(lambda: encoder.apply(encoder.init(KEY), x))
    assert embedded.shape == (2, encoder.features) == (2, 4)


def test_a_block_begins_as_plain_normalisation():
    block: EncoderBlock = SMALL.init(KEY)[0]
    assert (block.scale == 1).all()
    assert not block.shift.any()
    assert not block.bias.any()


@pytest.mark.parametrize("field", ["channels", "filters", "blocks"])
def test_nothing_is_refused_by_name(field):
    with pytest.raises(ValueError, match=f"^{field} is 0;"):
        Encoder(**{field: 0})


def test_too_small_an_image_is_refused():
    with pytest.raises(ValueError, match="size is 31; 5 poolings"):
        Encoder(size=31, blocks=5)
