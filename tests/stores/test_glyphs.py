"""The built-in images: the same each time, disjoint, legible and not too easy."""

import unicodedata

import numpy as np
import pytest

from taskmix.stores.glyphs import CHARACTERS, FONTS, IMAGES, _font, _shape, glyph_split

LEAST_CLASSES = {"train": 100, "val": 30, "test": 40}


@pytest.fixture(scope="module")
def glyphs():
    return glyph_split("test")


def correlations(characters, stem):
    """Of the shapes of all pairs of the characters that the font has."""
    font = _font(stem, 32)
    shapes = [shape for c in characters if (shape := _shape(font, c)) is not None]
    pixels = np.stack([np.asarray(shape.resize((16, 16)), float).ravel() for shape in shapes])
    return np.corrcoef(pixels)[np.triu_indices(len(shapes), 1)]


def nearest_prototype(split, episodes):
    """Accuracy of the nearest of five single images, by distance of raw pixels."""
    random = np.random.default_rng(0)
    pixels = split.images.reshape(len(split.images), -1) / 255.0
    right = []
    for _ in range(episodes):
        chosen = random.choice(len(split.classes), 5, replace=False)
        shown = np.stack([split.first[c] + random.permutation(split.count[c])[:6] for c in chosen])
        support, query = pixels[shown[:, 0]], pixels[shown[:, 1:]]
        distances = np.square(query[:, :, None] - support).sum(axis=-1)
        right.append(np.mean(distances.argmin(axis=-1) == np.arange(5)[:, None]))
    return np.mean(right)


@pytest.mark.parametrize("name", CHARACTERS)
def test_a_split_has_enough_classes_and_none_twice(name):
    assert len(set(CHARACTERS[name])) == len(CHARACTERS[name]) >= LEAST_CLASSES[name]


def test_splits_share_no_class():
    everything = "".join(CHARACTERS.values())
    assert len(set(everything)) == len(everything)


def test_images_of_a_class_are_a_run_of_the_array(glyphs):
    classes = len(CHARACTERS["test"])
    assert glyphs.images.shape == (classes * IMAGES, 32, 32, 3)
    assert glyphs.images.dtype == np.uint8
    assert (glyphs.first.dtype, glyphs.count.dtype) == (np.int32, np.int32)
    np.testing.assert_array_equal(glyphs.first, np.arange(classes) * IMAGES)
    np.testing.assert_array_equal(glyphs.count, IMAGES)
    assert glyphs.classes[0] == unicodedata.name(CHARACTERS["test"][0]).lower()


def test_every_call_draws_the_same_images():
    np.testing.assert_array_equal(glyph_split("val", 8).images, glyph_split("val", 8).images)


def test_no_two_images_are_the_same(glyphs):
    assert len(np.unique(glyphs.images, axis=0)) == len(glyphs.images)


def test_another_size_shows_the_same_scenes(glyphs):
    """Means of 2 x 2 pixels are about the pixels of the image drawn at half the size."""
    halved = glyphs.images.reshape(-1, 16, 2, 16, 2, 3).mean(axis=(2, 4))
    pairs = zip(halved, glyph_split("test", 16).images, strict=True)
    alike = [np.corrcoef(one.ravel(), other.ravel())[0, 1] for one, other in pairs]
    assert np.mean(alike) > 0.9


@pytest.mark.parametrize("stem", FONTS)
def test_no_two_characters_look_alike_in_a_font(stem):
    assert correlations("".join(CHARACTERS.values()), stem).max() < 0.85


def test_the_measure_of_looking_alike_finds_latin_greek_and_cyrillic_a():
    assert correlations("A\u0391\u0410", "DejaVuSans").min() > 0.99


def test_every_character_is_in_several_fonts():
    fonts = [_font(stem, 8) for stem in FONTS]
    for character in "".join(CHARACTERS.values()):
        assert sum(_shape(font, character) is not None for font in fonts) >= 5


def test_a_character_that_a_font_lacks_has_no_shape():
    assert _shape(_font("DejaVuSans", 16), "\u4e00") is None


def test_characters_are_darker_than_their_background(glyphs):
    """The median against the darkest fiftieth of the pixels: a person sees the difference."""
    grey = glyphs.images.mean(axis=-1).reshape(len(glyphs.images), -1) / 255
    contrast = np.median(grey, axis=1) - np.quantile(grey, 0.02, axis=1)
    assert contrast.min() > 0.15
    assert np.median(contrast) > 0.4


def test_raw_pixels_say_something_about_the_class_but_not_enough(glyphs):
    assert 0.25 < nearest_prototype(glyphs, episodes=200) < 0.6


def test_unknown_split_error_suggests_the_nearest_name():
    with pytest.raises(ValueError, match=r"no split 'tset'. Did you mean 'test'"):
        glyph_split("tset")


def test_images_too_small_to_read_are_refused():
    with pytest.raises(ValueError, match=r"8 x 8 pixels or more, not 7"):
        glyph_split("val", 7)
