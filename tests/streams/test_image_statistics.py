"""Statistics of images by hand-computed numbers and invariances."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.ndimage import zoom

from taskmix.streams.filters import FILTERS
from taskmix.streams.image_statistics import DARK, GREY, STATISTICS, image_statistics

statistics = jax.jit(image_statistics)
BRIGHTNESS, CONTRAST, BLUE_OVER_RED, SATURATION, SHARPNESS, STRUCTURE = range(len(STATISTICS))


def landscapes(count, side=32):
    """Smooth random images with some noise, as photographs are."""
    random = np.random.default_rng(0)
    coarse = random.random((count, 5, 5, 3))
    large = zoom(coarse, (1, side / 5, side / 5, 1), order=1, mode="nearest", grid_mode=True)
    tint = random.uniform(0.8, 1.0, (count, 1, 1, 3))
    noise = 0.06 * random.normal(size=large.shape)
    return jnp.asarray(np.clip(tint * large + noise, 0, 1), jnp.float32)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("value", [0.0, 0.4, 1.0])
def test_constant_images_have_finite_statistics(value, channels):
    assert np.all(np.isfinite(statistics(jnp.full((2, 21, 21, channels), value))))


def test_leading_axes_are_kept():
    x = landscapes(6).reshape(2, 3, 32, 32, 3)
    assert statistics(x).shape == (2, 3, len(STATISTICS))


def test_permuted_images_have_permuted_statistics():
    x = landscapes(3)
    order = np.array([2, 0, 1])
    np.testing.assert_allclose(statistics(x[order]), statistics(x)[order], rtol=1e-5)


@pytest.mark.parametrize("turn", [lambda x: x[:, ::-1], lambda x: x[:, :, ::-1]])
def test_a_mirrored_image_has_the_same_statistics(turn):
    x = landscapes(3)
    np.testing.assert_allclose(statistics(turn(x)), statistics(x), atol=1e-4)


def test_stripes_worked_out_by_hand():
    """Columns 0.2 0.2 0.6 0.6 ...: mean 0.4, deviation 0.2, and the 2 x 2 means are the stripes.

    Adjacent columns differ by 0.4 in 15 of 31 pairs, those of the halved image always, and
    rows never; root mean squares are over both directions.
    """
    columns = jnp.tile(jnp.array([0.2, 0.2, 0.6, 0.6]), 8)
    x = jnp.broadcast_to(columns[None, None, :, None], (3, 32, 32, 1))
    fine, coarse = (0.4 * math.sqrt(part / 2) for part in (15 / 31, 1.0))
    expected = [
        math.log(0.4 / 0.6),
        math.log(0.2 / math.sqrt(0.24)),
        0,
        0,
        math.log(fine / coarse),
        math.log(coarse / 0.2),
    ]
    np.testing.assert_allclose(statistics(x)[0], expected, atol=0.01)


def test_colour_worked_out_by_hand():
    """One half is (0.2, 0.4, 0.2), the other (0.6, 0.4, 0.2)."""
    x = jnp.full((1, 8, 8, 3), 0.2).at[..., 1].set(0.4).at[:, 4:, :, 0].set(0.6)
    blue_over_red = math.log((0.2 + DARK) / (0.4 + DARK))
    scaled = np.array([[0.25 / 0.45, 1, 1], [0.65 / 0.45, 1, 1]])
    saturation = math.log(math.sqrt(scaled.var(axis=1).mean()) + GREY)
    found = statistics(x)[0]
    np.testing.assert_allclose(found[BLUE_OVER_RED], blue_over_red, rtol=1e-5)
    np.testing.assert_allclose(found[SATURATION], saturation, rtol=1e-5)


def test_grey_images_have_no_colour():
    grey = landscapes(3).mean(axis=-1, keepdims=True)
    single = statistics(grey)
    triple = statistics(jnp.broadcast_to(grey, (3, 32, 32, 3)))
    assert np.all(single[:, [BLUE_OVER_RED, SATURATION]] == 0)
    np.testing.assert_allclose(triple[:, BLUE_OVER_RED], 0, atol=1e-5)
    np.testing.assert_allclose(triple[:, SATURATION], math.log(GREY), atol=1e-3)
    rest = np.array([BRIGHTNESS, CONTRAST, SHARPNESS, STRUCTURE])
    np.testing.assert_allclose(triple[:, rest], single[:, rest], atol=1e-3)


def seen_through(name):
    return jax.jit(lambda x: image_statistics(FILTERS[name](x)))


@pytest.mark.parametrize("side", [21, 32])
def test_each_filter_moves_every_image_the_way_it_should(side):
    x = landscapes(16, side)
    of = {name: np.asarray(seen_through(name)(x)) for name in FILTERS}
    moved = {name: values - of["plain"] for name, values in of.items()}
    assert np.all(moved["blur"][:, SHARPNESS] < -0.1)
    assert np.all(np.abs(moved["blur"][:, [BRIGHTNESS, BLUE_OVER_RED]]) < 0.01)
    assert np.all(moved["night"][:, BRIGHTNESS] < -0.5)
    assert np.all(moved["night"][:, BLUE_OVER_RED] > 0.3)
    assert np.all(moved["pencil"][:, BRIGHTNESS] > 0.5)
    assert np.all(moved["pencil"][:, SATURATION] < -0.5)


def test_images_too_small_to_halve_are_refused():
    with pytest.raises(ValueError, match=r"4 x 4 pixels or more, but have \(3, 8\)"):
        statistics(jnp.zeros((1, 3, 8, 3)))
