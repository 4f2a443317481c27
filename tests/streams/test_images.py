"""Images drawn into tasks: what is in them, through which filter, and what cannot be drawn."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.stores import ImageSplit
from taskmix.streams import ImageSet, ImageStream, consecutive
from taskmix.streams.filters import image_filter
from taskmix.streams.images import Look

CLASSES, SIZE = 7, 8
COUNTS = np.array([6, 9, 6, 7, 12, 6, 8], np.int32)


def split(name: str = "train", counts: np.ndarray = COUNTS) -> ImageSplit:
    """Image i of class c is grey: red says the class, green the place within it."""
    first = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int32)
    images = np.zeros((counts.sum(), SIZE, SIZE, 3), np.uint8)
    for c, (start, count) in enumerate(zip(first, counts, strict=True)):
        images[start : start + count, ..., 0] = 10 * c
        images[start : start + count, ..., 1] = np.arange(count)[:, None, None]
    return ImageSplit(name, images, first, counts, tuple(f"class {c}" for c in range(len(counts))))


def stream(filters: tuple[str, ...] = ("plain", "night"), **changes) -> ImageStream:
    settings = {"tasks": 3, "way": 4, "shot": 2, "query": 4, "test_query": 3, **changes}
    training = ImageSet.of(split(), settings["way"], settings["shot"] + settings["query"])
    testing = ImageSet.of(split("test"), settings["way"], settings["shot"] + settings["test_query"])
    return ImageStream(training, testing, consecutive(filters, (5,) * len(filters)), **settings)


def codes(x) -> np.ndarray:
    """Class and place of each image, read off its first pixel."""
    return np.asarray(jnp.round(255 * x[..., 0, 0, :2])).astype(int)


def test_task_has_its_classes_once_and_its_images_once():
    batch = stream().batch(jax.random.key(0), 0)
    both = jnp.concatenate([batch.support.x, batch.query.x], axis=1)
    labels = jnp.concatenate([batch.support.y, batch.query.y], axis=1)
    for images, label in zip(codes(both), np.asarray(labels), strict=True):
        assert len({tuple(code) for code in images}) == len(images), "an image is drawn twice"
        pairs = {(code[0], y) for code, y in zip(images, label, strict=True)}
        assert len(pairs) == 4, "a class has one label, and a label one class"


def test_shapes_and_labels():
    batch = stream().batch(jax.random.key(0), 0)
    assert batch.support.x.shape == (3, 8, SIZE, SIZE, 3)
    assert batch.query.x.shape == (3, 16, SIZE, SIZE, 3)
    np.testing.assert_array_equal(batch.support.y[0], np.repeat(np.arange(4), 2))
    assert batch.support.mask.shape == (3, 8)
    assert bool(batch.query.mask.all())


def test_every_image_of_every_class_is_drawn_about_equally_often():
    images = ImageSet.of(split(), 4, 6)
    drawn = jax.vmap(lambda k: images.draw(k, 4, 6))(jax.random.split(jax.random.key(1), 4000))
    times = np.bincount(np.asarray(drawn).ravel(), minlength=COUNTS.sum())
    expected = np.repeat(4000 * 4 / CLASSES * 6 / COUNTS, COUNTS)
    np.testing.assert_allclose(times, expected, rtol=0.15)


def test_batch_depends_on_key_and_iteration_only():
    one = stream()
    jitted = jax.jit(lambda i: one.batch(jax.random.key(3), i))
    first, again = one.batch(jax.random.key(3), 2), jitted(jnp.asarray(2))
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    other = one.batch(jax.random.key(3), 1)
    assert not np.array_equal(first.support.x, other.support.x)


def test_images_are_seen_through_the_filter_of_the_phase():
    filtered, plain = stream(("night", "plain")), stream(("plain", "night"))
    expected = image_filter("night")(plain.batch(jax.random.key(0), 0).query.x)
    np.testing.assert_allclose(filtered.batch(jax.random.key(0), 0).query.x, expected, atol=1e-6)
    assert filtered.batch(jax.random.key(0), 0).hints.family.tolist() == [0, 0, 0]
    assert filtered.batch(jax.random.key(0), 5).hints.family.tolist() == [1, 1, 1]


def test_test_tasks_of_all_families_are_the_same_episodes():
    one = stream()
    first, second = (one.test_tasks(jax.random.key(0), family, 5) for family in (0, 1))
    np.testing.assert_array_equal(first.query.x, second.query.x)
    loaded = one.load(first)
    assert loaded.query.x.shape == (5, 12, SIZE, SIZE, 3)
    np.testing.assert_allclose(
        one.load(second).query.x, image_filter("night")(loaded.query.x), atol=1e-6
    )


def test_one_task_loads_as_it_does_among_others():
    one = stream()
    drawn = one.test_tasks(jax.random.key(0), 1, 5)
    alone = eqx.tree_at(
        lambda t: (t.support, t.query, t.hints.family),
        drawn,
        jax.tree.map(lambda leaf: leaf[2], (drawn.support, drawn.query, drawn.hints.family)),
    )
    np.testing.assert_array_equal(one.load(alone).support.x, one.load(drawn).support.x[2])


def test_the_images_are_an_argument_of_compiled_code_and_no_part_of_it():
    data, recipe = eqx.partition(stream(), eqx.is_array)
    lowered = jax.jit(lambda d: eqx.combine(d, recipe).batch(jax.random.key(0), 0)).lower(data)
    assert f"{COUNTS.sum()}x{SIZE}x{SIZE}x3xui8" in lowered.as_text().split("\n")[1]


@pytest.mark.parametrize(
    ("way", "images", "message"),
    [(8, 2, "has 7 classes, too few for 8-way"), (4, 9, r"class 0 \(6\)")],
)
def test_split_too_small_for_the_tasks_is_refused(way, images, message):
    with pytest.raises(ValueError, match=message):
        ImageSet.of(split(), way, images)


@pytest.mark.parametrize(
    ("changes", "message"), [({"way": 1}, "way is 1"), ({"tasks": 0}, "tasks is 0")]
)
def test_settings_that_make_no_task_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        stream(**changes)


def test_family_is_drawn_from_its_own_source_and_grey_gets_channels():
    grey = dataclasses.replace(
        split(), images=np.full((COUNTS.sum(), SIZE, SIZE, 1), 200, np.uint8)
    )
    joined = ImageSet.joined([split(), grey], 4, 6)
    assert joined.images.shape[-1] == 3
    schedule = consecutive(("colour", "grey"), (5, 5))
    looks = (Look(0, "plain"), Look(1, "invert"))
    both = ImageStream(joined, joined, schedule, 3, 4, 2, 4, 3, looks=looks)
    first, second = (both.batch(jax.random.key(0), i).query.x for i in (0, 5))
    assert float(first.max()) < 0.5
    np.testing.assert_allclose(second, 1 - 200 / 255, atol=1e-6)


def test_sources_of_two_sizes_are_refused():
    larger = dataclasses.replace(split(), images=np.zeros((COUNTS.sum(), 9, 9, 3), np.uint8))
    with pytest.raises(ValueError, match="need one size"):
        ImageSet.joined([split(), larger], 4, 6)


def test_unknown_filter_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match="pencil"):
        stream(("pencl",))


def sided() -> ImageSet:
    """Images whose left column is white."""
    images = np.zeros((COUNTS.sum(), SIZE, SIZE, 3), np.uint8)
    images[:, :, 0] = 255
    return ImageSet.of(dataclasses.replace(split(), images=images), 4, 6)


def test_half_of_the_training_images_are_mirrored_and_no_test_image():
    schedule = consecutive(("plain",), (5,))
    mirrored = ImageStream(sided(), sided(), schedule, 50, 4, 2, 4, 3, mirrored=True)
    batch = mirrored.batch(jax.random.key(0), 0)
    for examples in (batch.support, batch.query):
        left, right = examples.x[..., 0, 0, 0], examples.x[..., 0, -1, 0]
        np.testing.assert_array_equal(left + right, 1)
        assert 0.4 < float(right.mean()) < 0.6
    test = mirrored.load(mirrored.test_tasks(jax.random.key(0), 0, 3))
    assert (test.query.x[..., 0, 0] == 1).all()


def test_mirror_changes_nothing_else():
    plain = stream(("plain",)).batch(jax.random.key(0), 2)
    mirrored = stream(("plain",), mirrored=True).batch(jax.random.key(0), 2)
    np.testing.assert_array_equal(codes(mirrored.query.x), codes(plain.query.x))
    np.testing.assert_array_equal(mirrored.query.y, plain.query.y)


def placed() -> ImageSet:
    """Black images with a white pixel in the middle."""
    images = np.zeros((COUNTS.sum(), SIZE, SIZE, 3), np.uint8)
    images[:, SIZE // 2, SIZE // 2] = 255
    return ImageSet.of(dataclasses.replace(split(), images=images), 4, 6)


def test_training_images_are_shifted_to_all_sides_and_no_test_image():
    schedule = consecutive(("plain",), (5,))
    shifted = ImageStream(placed(), placed(), schedule, 50, 4, 2, 4, 3, shifted=2)
    batch = shifted.batch(jax.random.key(0), 0)
    for examples in (batch.support, batch.query):
        assert examples.x.shape[2:] == (SIZE, SIZE, 3)
        where = np.argwhere(np.asarray(examples.x)[..., 0] == 1)[:, 2:] - SIZE // 2
        assert len(where) == examples.mask.size
        assert len(np.unique(where, axis=0)) == 25
    test = shifted.load(shifted.test_tasks(jax.random.key(0), 0, 3))
    assert (test.query.x[..., SIZE // 2, SIZE // 2, 0] == 1).all()


def test_edge_of_a_shifted_image_is_continued():
    schedule = consecutive(("plain",), (5,))
    shifted = ImageStream(sided(), sided(), schedule, 20, 4, 2, 4, 3, shifted=2)
    columns = np.asarray(shifted.batch(jax.random.key(0), 0).query.x)[..., 0, :, 0]
    assert set(columns.sum(axis=-1).ravel()) == {0.0, 1.0, 2.0, 3.0}
    np.testing.assert_array_equal(np.sort(columns, axis=-1)[..., ::-1], columns)


@pytest.mark.parametrize("pixels", [-1, SIZE])
def test_shift_out_of_the_image_is_refused(pixels):
    with pytest.raises(ValueError, match=f"shifted is {pixels}"):
        stream(shifted=pixels)
