"""Few-shot tasks drawn from sets of images, seen through filters that change with time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, UInt8

from taskmix.stores import ImageSplit
from taskmix.streams.filters import checked_filter
from taskmix.streams.schedule import Schedule
from taskmix.streams.stream import Phase
from taskmix.tasks import Examples, Hints, TaskBatch

# Folded into the caller's key first, so that no iteration can give a test task.
_TRAINING, _TESTING = 0, 1


class Look(NamedTuple):
    """What the tasks of a family are drawn from, and through which filter they are seen."""

    source: int
    """Number of the source within an ``ImageSet``."""
    filter: str


class ImageSet(eqx.Module):
    """The images of a split on the device, class after class, from one source or several."""

    images: UInt8[Array, "images height width channels"]
    first: Int[Array, " classes"]
    """Where the images of each class begin."""
    count: Int[Array, " classes"]
    """How many there are."""
    source: Int[Array, " classes"]
    """Number of the source that each class is from."""
    most: int = eqx.field(static=True)
    """The largest count."""

    @staticmethod
    def of(split: ImageSplit, way: int, images_a_class: int) -> ImageSet:
        """A split, if tasks of ``way`` classes with that many images each can be drawn."""
        return ImageSet.joined([split], way, images_a_class)

    @staticmethod
    def joined(splits: Sequence[ImageSplit], way: int, images_a_class: int) -> ImageSet:
        """The same of several sources; grey ones get three channels where others have colours."""
        for split in splits:
            _check_split(split, way, images_a_class)
        if len({split.images.shape[1:3] for split in splits}) > 1:
            sizes = ", ".join(f"{one.name} {one.images.shape[1:3]}" for one in splits)
            raise ValueError(f"Images of one stream need one size, but there are {sizes}.")
        channels = max(split.images.shape[-1] for split in splits)
        pixels = [_with_channels(split.images, channels) for split in splits]
        before = np.cumsum([0, *map(len, pixels)])
        first = [split.first + start for split, start in zip(splits, before, strict=False)]
        count = np.concatenate([split.count for split in splits])
        return ImageSet(
            jnp.asarray(np.concatenate(pixels) if len(pixels) > 1 else pixels[0]),
            jnp.asarray(np.concatenate(first)),
            jnp.asarray(count),
            jnp.asarray(np.repeat(np.arange(len(splits)), [len(one.classes) for one in splits])),
            int(count.max()),
        )

    def draw(
        self,
        key: Key[Array, ""],
        way: int,
        images_a_class: int,
        source: Int[Array, ""] | int = 0,
    ) -> Int[Array, "way images_a_class"]:
        """Indices of distinct images of distinct classes of a source, all equally likely."""
        class_key, image_key = jax.random.split(key)
        # The places of the largest of random numbers are a random choice without repeats.
        luck = jax.random.uniform(class_key, self.first.shape)
        _, chosen = jax.lax.top_k(jnp.where(self.source == source, luck, -1), way)
        luck = jax.random.uniform(image_key, (way, self.most))
        exists = jnp.arange(self.most) < self.count[chosen, None]
        _, places = jax.lax.top_k(jnp.where(exists, luck, -1), images_a_class)
        return self.first[chosen, None] + places


def _with_channels(images: np.ndarray, channels: int) -> np.ndarray:
    return images if images.shape[-1] == channels else np.repeat(images, channels, axis=-1)


def _check_split(split: ImageSplit, way: int, images_a_class: int) -> None:
    if len(split.classes) < way:
        raise ValueError(
            f"The {split.name} split has {len(split.classes)} classes, too few for "
            f"{way}-way tasks; lower way or add classes."
        )
    short = [
        f"{name} ({count})"
        for name, count in zip(split.classes, split.count, strict=True)
        if count < images_a_class
    ]
    if short:
        raise ValueError(
            f"A task needs {images_a_class} images of a class, but {len(short)} classes of "
            f"the {split.name} split have fewer: {', '.join(short[:3])}; lower shot or "
            f"query."
        )


class ImageStream(eqx.Module):
    """Tasks of ``way`` classes; a family is a source of images, seen through a filter.

    A task is drawn as indices of images, which ``load`` turns into pixels: test tasks by
    the hundred fit into memory as indices only.

    Examples
    --------
    >>> import taskmix as tm
    >>> stream = tm.FewShot(size=16, tasks=2).stream()
    >>> stream.batch(jax.random.key(0), 0).support.x.shape
    (2, 5, 16, 16, 3)
    """

    training: ImageSet
    """Images to train on, by class."""
    testing: ImageSet
    """Images of other classes, for test tasks."""
    schedule: Schedule = eqx.field(static=True)
    """Which filters are active when."""
    tasks: int = eqx.field(static=True, default=4)
    """Per batch."""
    way: int = eqx.field(static=True, default=5)
    """Classes per task."""
    shot: int = eqx.field(static=True, default=1)
    """Support images of each class."""
    query: int = eqx.field(static=True, default=15)
    """Query images of each class."""
    test_query: int = eqx.field(static=True, default=15)
    """The same in test tasks."""
    mirrored: bool = eqx.field(static=True, default=False)
    """Whether every other training image, at random, is seen in a mirror."""
    shifted: int = eqx.field(static=True, default=0)
    """Pixels by which training images, at random, are shifted at most on either axis."""
    looks: tuple[Look, ...] = eqx.field(static=True, default=())
    """Of each of the schedule's families, in the order of ``families``; none: each family is the
    filter of its name, on the first source."""

    def __check_init__(self) -> None:
        for name, least in (("tasks", 1), ("way", 2), ("shot", 1), ("query", 1), ("test_query", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be {least} or more.")
        side = self.training.images.shape[1]
        if not 0 <= self.shifted < side:
            raise ValueError(f"shifted is {self.shifted}; it must be 0 to {side - 1} pixels.")
        if self.looks and len(self.looks) != len(self.families):
            raise ValueError(
                f"There are {len(self.looks)} looks but {len(self.families)} families; give one "
                f"look for each."
            )
        shape = self.training.images.shape[1:]
        for look in self._looks():
            checked_filter(look.filter, shape)

    def _looks(self) -> tuple[Look, ...]:
        return self.looks or tuple(Look(0, name) for name in self.families)

    @property
    def families(self) -> tuple[str, ...]:
        return self.schedule.families

    @property
    def phases(self) -> tuple[Phase, ...]:
        return self.schedule.phases

    def batch(self, key: Key[Array, ""], iteration: Int[Array, ""] | int) -> TaskBatch:
        key = jax.random.fold_in(jax.random.fold_in(key, _TRAINING), iteration)
        family_key, task_key = jax.random.split(key)
        families = self.schedule.draw(family_key, iteration, self.tasks)
        hints = Hints(families, self.schedule.boundary(iteration))
        drawn = self._tasks(task_key, self.training, self.query, hints)
        batch = self.load(drawn, testing=False)
        if self.mirrored:
            batch = _changed(jax.random.fold_in(task_key, 1), batch, _some_mirrored)
        if self.shifted:
            shift = partial(_shifted, pixels=self.shifted)
            batch = _changed(jax.random.fold_in(task_key, 2), batch, shift)
        return batch

    def labelled_images(
        self, key: Key[Array, ""], count: int
    ) -> tuple[Float[Array, "count height width channels"], Int[Array, " count"]]:
        """Training images of any class with the number of it, mirrored and shifted as in tasks.

        Each is seen through the filter of one of the families of its source.
        """
        drawn_key, look_key, *change_keys = jax.random.split(key, 4)
        source = self.training
        label = jax.random.randint(drawn_key, (count,), 0, source.first.shape[0])
        place = jax.random.uniform(jax.random.fold_in(drawn_key, 1), (count,)) * source.count[label]
        index = source.first[label] + place.astype(int)
        looks = self._looks()
        own = jnp.asarray([look.source for look in looks]) == source.source[label][:, None]
        family = jax.random.categorical(look_key, jnp.where(own, 0.0, -jnp.inf))
        shape = source.images.shape[1:]
        filters = [checked_filter(look.filter, shape) for look in looks]

        def seen(one: tuple[Int[Array, ""], Int[Array, ""]]) -> Float[Array, ...]:
            return jax.lax.switch(one[0], filters, source.images[one[1]] / jnp.float32(255))

        if len(filters) == 1:
            images = filters[0](source.images[index] / jnp.float32(255))
        else:
            images = jax.lax.map(seen, (family, index))
        if self.mirrored:
            images = _some_mirrored(change_keys[0], images)
        if self.shifted:
            images = _shifted(change_keys[1], images, self.shifted)
        return images, label

    def test_tasks(self, key: Key[Array, ""], family: int, tasks: int) -> TaskBatch:
        """The same episodes for every family of a source, to compare filters on equal terms."""
        if not 0 <= family < len(self.families):
            raise ValueError(
                f"family is {family}; it must be an index into {', '.join(self.families)}."
            )
        hints = Hints(jnp.full(tasks, family), jnp.asarray(False))
        key = jax.random.fold_in(key, _TESTING)
        return self._tasks(key, self.testing, self.test_query, hints)

    def load(self, drawn: TaskBatch, testing: bool = True) -> TaskBatch:
        """Images in place of their indices, through the filter of each task's family."""
        families = drawn.hints.family if drawn.hints is not None else None
        assert families is not None, "this stream knows its families"
        source = self.testing if testing else self.training
        shape = source.images.shape[1:]
        filters = [checked_filter(look.filter, shape) for look in self._looks()]

        def pixels(
            task: tuple[Int[Array, ""], Int[Array, " images"]],
        ) -> Float[Array, "images height width channels"]:
            family, index = task
            return jax.lax.switch(family, filters, source.images[index] / jnp.float32(255))

        def loaded(examples: Examples) -> Examples:
            # One task after the other: all at once would go through every filter.
            index = examples.x.reshape(-1, examples.x.shape[-1])
            family = jnp.broadcast_to(families, examples.x.shape[:-1]).reshape(-1)
            images = jax.lax.map(pixels, (family, index))
            x = images.reshape(*examples.x.shape, *images.shape[2:])
            return Examples(x, examples.y, examples.mask)

        return dataclasses.replace(drawn, support=loaded(drawn.support), query=loaded(drawn.query))

    def _tasks(self, key: Key[Array, ""], source: ImageSet, query: int, hints: Hints) -> TaskBatch:
        assert hints.family is not None, "this stream knows its families"
        tasks = hints.family.shape[0]
        keys = jax.random.split(key, tasks)
        sources = jnp.asarray([look.source for look in self._looks()])[hints.family]
        draw = jax.vmap(lambda k, s: source.draw(k, self.way, self.shot + query, s))
        index = draw(keys, sources)
        label = jnp.broadcast_to(jnp.arange(self.way)[:, None], index.shape)

        def examples(part: slice) -> Examples:
            x = index[:, :, part].reshape(tasks, -1)
            y = label[:, :, part].reshape(tasks, -1)
            return Examples.full(x, y, input_axes=0)

        return TaskBatch(examples(slice(self.shot)), examples(slice(self.shot, None)), hints)


Change = Callable[[Key[Array, ""], Float[Array, "*images height width channels"]], Array]


def _changed(key: Key[Array, ""], batch: TaskBatch, change: Change) -> TaskBatch:
    """Supports and queries with other inputs."""
    support_key, query_key = jax.random.split(key)
    return TaskBatch(
        dataclasses.replace(batch.support, x=change(support_key, batch.support.x)),
        dataclasses.replace(batch.query, x=change(query_key, batch.query.x)),
        batch.hints,
    )


def _some_mirrored(
    key: Key[Array, ""], images: Float[Array, "*images height width channels"]
) -> Float[Array, "*images height width channels"]:
    """Each image left to right with probability one half."""
    mirror = jax.random.bernoulli(key, shape=images.shape[:-3])[..., None, None, None]
    return jnp.where(mirror, images[..., ::-1, :], images)


def _shifted(
    key: Key[Array, ""], images: Float[Array, "*images height width channels"], pixels: int
) -> Float[Array, "*images height width channels"]:
    """Each image by its own number of pixels up or down and left or right; edges are continued."""
    flat = images.reshape(-1, *images.shape[-3:])
    margin = (pixels, pixels)
    padded = jnp.pad(flat, ((0, 0), margin, margin, (0, 0)), mode="edge")
    corners = jax.random.randint(key, (len(flat), 2), 0, 2 * pixels + 1)

    def part(image: Array, corner: Int[Array, " 2"]) -> Array:
        return jax.lax.dynamic_slice(image, (corner[0], corner[1], 0), flat.shape[1:])

    return jax.vmap(part)(padded, corners).reshape(images.shape)
