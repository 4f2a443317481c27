"""The description of images by random convolutions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.streams import image_features
from taskmix.streams.image_features import FLOOR, _kernel

features = jax.jit(image_features)


def images(*shape):
    return np.random.default_rng(0).random(shape, np.float32)


def slow_layer(x, kernel):
    """A rectified convolution in plain numpy."""
    height, width, _ = x.shape
    padded = np.pad(x, ((1, 1), (1, 1), (0, 0)))
    maps = sum(
        padded[i : i + height, j : j + width] @ kernel[i, j] for i in range(3) for j in range(3)
    )
    return np.maximum(maps, 0)


def test_features_are_those_of_a_slow_version():
    x = images(9, 8, 3)
    first = slow_layer(x - 0.5, _kernel(0, 3))
    halved = first[:8].reshape(4, 2, 4, 2, -1).mean((1, 3))
    second = slow_layer(halved, _kernel(1, 32))
    expected = [
        part
        for maps in (first, second)
        for part in (maps.mean((0, 1)), 0.5 * np.log(maps.var((0, 1)) + FLOOR**2))
    ]
    np.testing.assert_allclose(features(x[None])[0], np.concatenate(expected), atol=1e-5)


def test_an_image_is_described_alike_alone_and_among_others():
    x = images(2, 3, 16, 16, 3)
    together = features(x)
    assert together.shape == (2, 3, 128)
    np.testing.assert_allclose(features(x[1, 2][None])[0], together[1, 2], atol=1e-5)


def test_one_grey_channel_is_three_equal_ones():
    x = images(2, 12, 12, 1)
    np.testing.assert_allclose(features(x), features(np.repeat(x, 3, axis=-1)), atol=1e-6)


def test_black_and_white_images_have_finite_features():
    for value in (0.0, 1.0):
        assert np.isfinite(features(jnp.full((1, 4, 4, 3), value))).all()


def test_weights_are_the_same_for_ever():
    """Saved models rest on them."""
    np.testing.assert_allclose(
        _kernel(0, 3)[0, 0, 0, :3], [0.480114, 0.108909, 0.266379], rtol=1e-5
    )


def test_images_of_three_pixels_are_refused():
    with pytest.raises(ValueError, match="4 x 4 pixels or more"):
        image_features(jnp.zeros((1, 3, 3, 3)))
