"""Families of image streams as people write them, and streams that mix them."""

import jax
import numpy as np
import pytest

from taskmix.experiments import EvolvingImages
from taskmix.experiments.image_families import ImageFamily, image_families, image_family, looks_of
from taskmix.streams import ordered


@pytest.mark.parametrize(
    ("word", "family"),
    [
        ("fog", ImageFamily("fog", "mine", "fog")),
        ("glyphs", ImageFamily("glyphs", "glyphs")),
        ("glyphs+night", ImageFamily("glyphs+night", "glyphs", "night")),
        ("store:a/b", ImageFamily("b", "a/b")),
        ("folder:a/b+rotate", ImageFamily("b+rotate", "a/b", "rotate")),
    ],
)
def test_word_says_images_and_filter(word, family):
    assert image_family(word, "mine") == family


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nigth",), "Did you mean 'night'"),
        (("glyphs+nigth",), "Did you mean 'night'"),
        (("store:",), "has no path"),
        (("store:a/mini", "store:b/mini"), "would both be called mini"),
    ],
)
def test_word_that_makes_no_family_is_refused(words, message):
    with pytest.raises(ValueError, match=message):
        image_families(words, "glyphs")


def test_looks_follow_the_order_of_the_schedule():
    families = image_families(("night", "store:a", "store:a+fog"), "glyphs")
    order = ("a+fog", "night", "a")
    assert looks_of(families, order) == ((1, "fog"), (0, "night"), (1, "plain"))


@pytest.mark.parametrize(
    ("order", "phases"), [("consecutive", 2), ("recurring", 4), ("interleaved", 1), ("gradual", 3)]
)
def test_images_have_every_schedule_of_the_regression(order, phases):
    experiment = EvolvingImages(
        size=16, families=("plain", "invert"), lengths=(6, 6), schedule=order, transition=2
    )
    stream = experiment.stream()
    assert len(stream.phases) == phases
    assert stream.schedule == ordered(order, ("plain", "invert"), (6, 6), 2)


def test_interleaved_families_are_seen_through_their_own_filters():
    settings = {"size": 16, "lengths": (6, 6), "schedule": "interleaved", "tasks": 8, "query": 1}
    mixed = EvolvingImages(families=("plain", "invert"), **settings).stream()
    plain = EvolvingImages(families=("plain", "rotate"), **settings).stream()
    one, other = (stream.batch(jax.random.key(0), 0) for stream in (mixed, plain))
    family = np.asarray(one.hints.family)
    np.testing.assert_array_equal(family, other.hints.family)
    assert 0 < family.sum() < 8
    np.testing.assert_allclose(
        one.query.x[family == 1],
        1 - np.rot90(other.query.x[family == 1], -1, axes=(2, 3)),
        atol=1e-6,
    )


def test_count_of_families_is_that_of_their_names():
    shared = EvolvingImages(families=("plain", "glyphs", "plain"), lengths=(1, 1, 1)).shared()
    assert shared.families == 2
