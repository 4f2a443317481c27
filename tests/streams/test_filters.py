"""Image filters by properties and by numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from taskmix.streams.filters import (
    BLUR,
    FILTERS,
    checked_filter,
    image_filter,
    register_filter,
)

COMPILED = {name: jax.jit(filtered) for name, filtered in FILTERS.items()}
plain, blur, night, pencil = (COMPILED[name] for name in ("plain", "blur", "night", "pencil"))

SHAPES = [(2, 84, 84, 3), (21, 32, 3), (2, 2, 17, 30, 1)]


def images(*shape):
    return jnp.asarray(np.random.default_rng(0).random(shape, np.float32))


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_output_has_the_input_shape_and_type_and_stays_in_range(name, shape):
    x = images(*shape)
    if name == "rotate" and shape[-3] != shape[-2]:
        pytest.skip("a rectangle cannot be turned")
    y = COMPILED[name](x)
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    assert np.all((y >= 0) & (y <= 1))


@pytest.mark.parametrize("name", FILTERS)
def test_every_filter_stays_in_range_on_black_white_and_checks(name):
    checks = np.indices((21, 21)).sum(axis=0) % 2
    for x in (np.zeros((21, 21)), np.ones((21, 21)), checks):
        y = COMPILED[name](jnp.asarray(np.stack([x, x, x], axis=-1), jnp.float32))
        assert np.all((y >= 0) & (y <= 1))


@pytest.mark.parametrize("name", FILTERS)
def test_an_image_is_filtered_the_same_alone_in_a_batch_and_chosen_by_an_index(name):
    x = images(4, 32, 32, 3)
    together = COMPILED[name](x)
    index = jnp.full(4, list(FILTERS).index(name))

    def chosen(index, image):
        return jax.lax.switch(index, list(FILTERS.values()), image)

    for apart in (jax.lax.map(FILTERS[name], x), jax.jit(jax.vmap(chosen))(index, x)):
        np.testing.assert_allclose(apart, together, atol=1e-6)


def test_plain_changes_nothing():
    x = images(21, 21, 3)
    np.testing.assert_array_equal(plain(x), x)


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_blur_keeps_a_constant_image_up_to_its_edges(value):
    x = jnp.full((2, 21, 32, 3), value)
    np.testing.assert_allclose(blur(x), x, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_blur_keeps_the_mean_of_every_channel(shape):
    x = images(*shape)
    np.testing.assert_allclose(blur(x).mean((-3, -2)), x.mean((-3, -2)), atol=1e-6)


@pytest.mark.parametrize("side", [21, 32, 84])
def test_blur_is_the_mirrored_gaussian_of_scipy(side):
    x = np.asarray(images(side, side, 1))
    expected = gaussian_filter(x[..., 0], BLUR * side, mode="reflect", truncate=3.5)
    np.testing.assert_allclose(blur(jnp.asarray(x))[..., 0], expected, atol=5e-3)


def test_blur_looks_the_same_at_every_size():
    """The deviation of a point's image, as a part of the side, is 1/42 at any size.

    The weights fall on whole pixels and end at three deviations: 3 % is what that may cost.
    """
    for side in (42, 84, 126):
        point = jnp.zeros((side, side, 1)).at[side // 2, side // 2].set(1.0)
        profile = np.asarray(blur(point))[..., 0].sum(axis=0)
        spread = np.sqrt(profile @ np.square(np.arange(side) - side // 2))
        assert spread / side == pytest.approx(1 / 42, rel=0.03)


def test_blur_at_32_pixels_takes_away_half_of_the_difference_of_neighbours():
    x = images(8, 32, 32, 1)
    left = np.abs(np.diff(blur(x), axis=-2)).mean() / np.abs(np.diff(x, axis=-2)).mean()
    assert 0.1 < left < 0.5


def test_night_of_white_is_blue():
    np.testing.assert_allclose(night(jnp.ones((4, 4, 3)))[0, 0], [0.45, 0.6, 1.0], rtol=1e-6)


def test_night_of_a_colour_worked_out_by_hand():
    x = jnp.broadcast_to(jnp.array([1.0, 0.0, 0.5]), (4, 4, 3))
    grey = 0.299 + 0.114 / 2
    halfway = [(1 + grey) / 2, grey / 2, (0.5 + grey) / 2]
    expected = [0.45 * halfway[0] ** 2, 0.6 * halfway[1] ** 2, halfway[2] ** 2]
    np.testing.assert_allclose(night(x)[0, 0], expected, rtol=1e-5)


def test_night_is_darker_and_bluer():
    x = images(4, 32, 32, 3)
    y = night(x)
    assert np.all(y.mean((1, 2, 3)) < 0.7 * x.mean((1, 2, 3)))
    before, after = (z.mean((1, 2))[:, 2] / z.mean((1, 2))[:, 0] for z in (x, y))
    assert np.all(after > 1.5 * before)


def test_night_of_a_grey_image_is_darker_and_no_linear_change():
    x = jnp.array([0.0, 0.5, 1.0]).reshape(1, 3, 1)
    dark = np.asarray(night(x)).ravel()
    white = 0.45 * 0.299 + 0.6 * 0.587 + 0.114
    np.testing.assert_allclose(dark, [0, white * 0.5**2, white], rtol=1e-5)
    assert dark[1] < 0.3 * dark[2]


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("channels", [1, 3])
def test_pencil_leaves_paper_white_where_nothing_changes(value, channels):
    drawn = pencil(jnp.full((21, 21, channels), value))
    np.testing.assert_allclose(drawn, 1, atol=1e-5)


def test_pencil_draws_the_same_in_all_channels():
    drawn = pencil(images(2, 32, 32, 3))
    np.testing.assert_array_equal(drawn[..., 0], drawn[..., 1])
    np.testing.assert_array_equal(drawn[..., 0], drawn[..., 2])


def test_pencil_draws_the_dark_side_of_an_edge_only():
    x = jnp.broadcast_to(jnp.where(jnp.arange(32) < 16, 0.2, 0.8)[None, :, None], (32, 32, 3))
    line = np.asarray(pencil(x))[16, :, 0]
    assert line[15] < 0.7
    assert np.all(line[16:] > 0.99)
    assert np.all(line[:6] > 0.99)


@pytest.mark.parametrize("name", ["night", "pencil"])
def test_other_numbers_of_channels_are_refused(name):
    with pytest.raises(ValueError, match=r"1 channel .grey. or 3 .red, green, blue., not 4"):
        FILTERS[name](images(8, 8, 4))


def test_negative_of_the_negative_is_the_image():
    x = images(21, 21, 3)
    np.testing.assert_allclose(COMPILED["invert"](COMPILED["invert"](x)), x, atol=1e-6)


def test_poster_has_four_tones():
    found = np.unique(np.round(COMPILED["posterise"](images(21, 21, 3)), 5))
    np.testing.assert_allclose(found, [0, 1 / 3, 2 / 3, 1], atol=1e-5)


def test_noise_is_another_for_another_image_and_has_its_deviation():
    x = jnp.full((2, 40, 40, 3), 0.5).at[1, 0, 0, 0].set(0.6)
    added = np.asarray(COMPILED["noise"](x) - x)
    assert added.std() == pytest.approx(0.15, rel=0.05)
    assert abs(np.corrcoef(added[0].ravel(), added[1].ravel())[0, 1]) < 0.1


def test_grey_has_three_equal_channels_of_the_luminance():
    x = jnp.broadcast_to(jnp.array([1.0, 0.0, 0.5]), (4, 4, 3))
    np.testing.assert_allclose(COMPILED["grey"](x), 0.299 + 0.114 / 2, rtol=1e-6)


def test_four_quarter_turns_are_none_and_one_moves_the_right_edge_to_the_top():
    x = images(21, 21, 3)
    once = FILTERS["rotate"](x)
    np.testing.assert_array_equal(once[0], x[:, -1])
    np.testing.assert_array_equal(FILTERS["rotate"](FILTERS["rotate"](FILTERS["rotate"](once))), x)
    with pytest.raises(ValueError, match="only squares"):
        FILTERS["rotate"](images(4, 6, 3))


def test_pixelated_image_has_constant_cells_with_the_mean_of_what_was_there():
    x = images(24, 24, 1)
    y = np.asarray(COMPILED["pixelate"](x)).reshape(12, 2, 12, 2)
    np.testing.assert_allclose(y, np.broadcast_to(y[:, :1, :, :1], y.shape), atol=1e-6)
    means = np.asarray(x).reshape(12, 2, 12, 2).mean((1, 3))
    np.testing.assert_allclose(y[:, 0, :, 0], means, atol=1e-6)


def test_fog_is_thickest_above():
    rows = np.asarray(COMPILED["fog"](jnp.zeros((21, 21, 1))))[:, 0, 0]
    np.testing.assert_allclose([rows[0], rows[-1]], [0.85, 0.25], atol=1e-6)
    assert np.all(np.diff(rows) < 0)


def test_filter_of_ones_own_is_found_and_refused_if_it_changes_the_shape():
    register_filter("half-as-bright", lambda images: images / 2)
    register_filter("smaller", lambda images: images[..., ::2, ::2, :])
    try:
        assert checked_filter("half-as-bright", (8, 8, 3))(jnp.ones((8, 8, 3)))[0, 0, 0] == 0.5
        with pytest.raises(ValueError, match=r"'smaller'.*must keep shape and type"):
            checked_filter("smaller", (8, 8, 3))
        with pytest.raises(ValueError, match="no filter"):
            FILTERS.register("nothing", 3)
        with pytest.raises(ValueError, match="already"):
            register_filter("night", lambda images: images)
    finally:
        FILTERS.remove("half-as-bright")
        FILTERS.remove("smaller")


def test_filters_are_found_by_name():
    assert image_filter("pencil") is FILTERS["pencil"]


def test_unknown_filter_error_suggests_the_nearest_name():
    with pytest.raises(ValueError, match=r"no image filter 'nigth'. Did you mean 'night'"):
        image_filter("nigth")
