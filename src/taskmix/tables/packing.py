"""Ragged tasks in arrays of few shapes, so that nothing is compiled twice."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from taskmix.tables.grouping import keyed
from taskmix.tasks import Examples, TaskBatch


@dataclasses.dataclass(frozen=True)
class Sides:
    """A task as the learner sees it: encoded inputs, scaled targets or class numbers."""

    name: str
    support_x: np.ndarray
    support_y: np.ndarray
    query_x: np.ndarray
    query_y: np.ndarray


@dataclasses.dataclass(frozen=True)
class BatchShape:
    """Of every batch that is learned from; what is larger is learned from in part."""

    tasks: int
    support: int
    query: int


LARGEST_SUPPORT = 256
"""Support rows that a prediction is made from: a factor of all of them is computed."""


def bucket(count: int, least: int) -> int:
    """The next of ``least``, twice that and so on: few shapes for all sizes."""
    size = least
    while size < min(count, LARGEST_SUPPORT):
        size *= 2
    return size


def batches(tasks: Sequence[Sides], shape: BatchShape, classes: bool) -> Iterator[TaskBatch]:
    """To learn from: every batch of one shape, the last filled up with padding."""
    for start in range(0, len(tasks), shape.tasks):
        some = [_fitting(task, shape) for task in tasks[start : start + shape.tasks]]
        sides = [[(task.support_x, task.support_y) for task in some]]
        sides.append([(task.query_x, task.query_y) for task in some])
        support, query = (
            stacked(side, shape.tasks, rows, classes)
            for side, rows in zip(sides, (shape.support, shape.query), strict=True)
        )
        yield TaskBatch(support, query)


def _fitting(task: Sides, shape: BatchShape) -> Sides:
    """No more rows than there is room for, drawn by the name of the task.

    Query rows come in an order of chance: the learner measures the width of its intervals on
    the first of them, and in a table those are the nearest to what is known.
    """
    support = _some(len(task.support_x), shape.support, task.name)
    query = keyed(1, task.name).permutation(len(task.query_x))[: shape.query]
    return Sides(
        task.name,
        task.support_x[support],
        task.support_y[support],
        task.query_x[query],
        task.query_y[query],
    )


def _some(count: int, most: int, name: str) -> np.ndarray | slice:
    if count <= most:
        return slice(None)
    return np.sort(keyed(0, name).permutation(count)[:most])


@dataclasses.dataclass(frozen=True)
class Question:
    """Pieces of tasks to be predicted at once."""

    support: Examples
    query_x: Array
    query_mask: Array
    places: list[tuple[int, int, int]]
    """Of each piece: the task, its first query row and how many follow."""


def questions(
    tasks: Sequence[Sides], shape: BatchShape, width: int, classes: bool
) -> Iterator[Question]:
    """To predict: long queries in several pieces, support sets by their bucket of size."""
    pieces: dict[int, list[tuple[int, int, int]]] = {}
    for number, task in enumerate(tasks):
        size = bucket(len(task.support_x), shape.support)
        for start in range(0, len(task.query_x), shape.query):
            count = min(shape.query, len(task.query_x) - start)
            pieces.setdefault(size, []).append((number, start, count))
    for size, places in sorted(pieces.items()):
        for begin in range(0, len(places), shape.tasks):
            some = places[begin : begin + shape.tasks]
            known = [_known(tasks[number], size) for number, _, _ in some]
            x = np.zeros((shape.tasks, shape.query, width), np.float32)
            mask = np.zeros((shape.tasks, shape.query), bool)
            for place, (number, start, count) in enumerate(some):
                x[place, :count] = tasks[number].query_x[start : start + count]
                mask[place, :count] = True
            support = stacked(known, shape.tasks, size, classes)
            yield Question(support, jnp.asarray(x), jnp.asarray(mask), some)


def _known(task: Sides, most: int) -> tuple[np.ndarray, np.ndarray]:
    some = _some(len(task.support_x), most, task.name)
    return task.support_x[some], task.support_y[some]


def stacked(
    sides: Sequence[tuple[np.ndarray, np.ndarray]], tasks: int, rows: int, classes: bool
) -> Examples:
    """Arrays of one shape; whatever has no row is padding."""
    width = sides[0][0].shape[1]
    x = np.zeros((tasks, rows, width), np.float32)
    y = np.zeros((tasks, rows), np.int32) if classes else np.zeros((tasks, rows, 1), np.float32)
    mask = np.zeros((tasks, rows), bool)
    for place, (own_x, own_y) in enumerate(sides):
        x[place, : len(own_x)] = own_x
        y[place, : len(own_y)] = own_y if classes else own_y[:, None]
        mask[place, : len(own_x)] = True
    return Examples(jnp.asarray(x), jnp.asarray(y), jnp.asarray(mask))
