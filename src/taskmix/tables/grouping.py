"""Tasks out of rows: those of one task together, divided into support and query."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from taskmix.tables.blocks import Block


@dataclasses.dataclass(frozen=True)
class Side:
    """The support set or the query of a task; NaN is missing."""

    rows: np.ndarray
    x: np.ndarray
    y: np.ndarray


@dataclasses.dataclass(frozen=True)
class RowTask:
    """One task of a table."""

    name: str
    support: Side
    query: Side
    begins: Any = None
    """Time of its first row; None where there is no time."""
    ends: Any = None


@dataclasses.dataclass
class LeftOut:
    """Rows and tasks that nothing was made of."""

    rows_without_task: int = 0
    """Rows that name no task, or no time."""
    rows_without_target: int = 0
    tasks_too_small: int = 0
    """Tasks with fewer than two rows, or without a row on one side."""


@dataclasses.dataclass(frozen=True)
class Splitter:
    """Which rows of a task are known before the others are predicted."""

    support: int
    how: str
    """``first``, ``random``, or ``column``: the table says it."""
    seed: int = 0

    def __call__(self, block: Block) -> np.ndarray:
        """True for the rows of one task that are its support set."""
        count = len(block.rows)
        if self.how == "column":
            assert block.known is not None
            return block.known
        number = min(self.support, count - 1)
        order = np.arange(count)
        if self.how == "random":
            order = keyed(self.seed, str(block.tasks[0])).permutation(count)
        known = np.zeros(count, dtype=bool)
        known[order[:number]] = True
        return known


def keyed(seed: int, name: str) -> np.random.Generator:
    """Chance that depends on nothing but a seed and the name of a task."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


def taken(block: Block, where: np.ndarray | slice) -> Block:
    """Some rows of a block."""
    times = None if block.times is None else block.times[where]
    known = None if block.known is None else block.known[where]
    return Block(
        block.rows[where], block.tasks[where], times, block.y[where], known, block.x[where]
    )


def joined(parts: Sequence[Block]) -> Block:
    """The rows of several blocks, one after the other."""
    if len(parts) == 1:
        return parts[0]

    def each(name: str) -> Any:
        leaves = [getattr(part, name) for part in parts]
        return None if leaves[0] is None else np.concatenate(leaves)

    return Block(*(each(field.name) for field in dataclasses.fields(Block)))


def grouped(blocks: Iterable[Block], left: LeftOut) -> Iterator[Block]:
    """The rows of one task after the other; a task ends where another begins."""
    begun: list[Block] = []
    for block in blocks:
        usable = np.array([name is not None for name in block.tasks], dtype=bool)
        if block.times is not None:
            usable &= _given(block.times)
        if not usable.all():
            left.rows_without_task += int((~usable).sum())
            block = taken(block, usable)
        if not len(block.rows):
            continue
        starts = 1 + np.flatnonzero(block.tasks[1:] != block.tasks[:-1])
        for start, stop in zip([0, *starts], [*starts, len(block.rows)], strict=True):
            if begun and begun[0].tasks[0] != block.tasks[start]:
                yield joined(begun)
                begun = []
            begun.append(taken(block, slice(start, stop)))
    if begun:
        yield joined(begun)


def _given(times: np.ndarray) -> np.ndarray:
    """Which times are not missing: NaN among numbers, None among texts."""
    if times.dtype == object:
        return np.array([time is not None for time in times], dtype=bool)
    return ~np.isnan(times)


def tasks_of(blocks: Iterable[Block], split: Splitter, left: LeftOut) -> Iterator[RowTask]:
    """Tasks in order; what cannot be one is counted in ``left``."""
    for rows in grouped(blocks, left):
        begins, ends = None, None
        if rows.times is not None:
            order = np.argsort(rows.times, kind="stable")
            begins, ends = rows.times[order[0]], rows.times[order[-1]]
            if np.any(np.diff(order) < 0):
                rows = taken(rows, order)
        given = ~np.isnan(rows.y)
        if not given.all():
            left.rows_without_target += int((~given).sum())
            rows = taken(rows, given)
        known = split(rows) if len(rows.rows) > 1 else np.zeros(0, dtype=bool)
        if not known.any() or known.all():
            left.tasks_too_small += 1
            continue
        support, query = (
            Side(rows.rows[side], rows.x[side], rows.y[side]) for side in (known, ~known)
        )
        yield RowTask(str(rows.tasks[0]), support, query, begins, ends)


def waves(tasks: Iterable[RowTask], size: int, most: int) -> Iterator[list[RowTask]]:
    """Tasks that are predicted together before any of them is learned from.

    As many as ``size``, and more where they overlap in time, since a task that is still going on
    when another begins must not teach what the other one is asked. Not more than ``most``.
    """
    wave: list[RowTask] = []
    ends: Any = None
    for task in tasks:
        overlaps = ends is not None and task.begins <= ends
        if wave and ((len(wave) >= size and not overlaps) or len(wave) >= most):
            yield wave
            wave, ends = [], None
        wave.append(task)
        if task.ends is not None and (ends is None or ends < task.ends):
            ends = task.ends
    if wave:
        yield wave
