"""One quick pass over a table before anything is learned: its size, order and labels.

It decides what cannot be decided later: how much there is to learn from, whether rows have to be
sorted, and which labels there are. No value of an input or of a numeric target goes further.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import polars as pl

from taskmix.tables.kinds import as_text
from taskmix.tables.problems import problem
from taskmix.tables.reading import Table
from taskmix.tables.schema import TARGET, TASK, TIME, Schema

MOST_LABELS = 100
"""Different labels that a target may have."""


@dataclasses.dataclass(frozen=True)
class Survey:
    """What one pass over task, time and target found; sizes are None where rows come live."""

    rows: int | None
    tasks: int | None
    sorted: bool
    """Whether rows of a task stand together, and all in order of time."""
    labels: tuple[str, ...] | None
    """Of a target that may be one of classes: texts, or no more than two numbers."""


def survey(table: Table, schema: Schema) -> Survey:
    """Read task, time and target of all rows once; of live rows nothing."""
    slim = dataclasses.replace(schema, inputs=(), known=None)
    rows, runs, last_task, last_time, in_order = 0, 0, None, None, True
    seen: list[np.ndarray] = []
    labels: set[str] = set()
    for frame in slim.frames(table):
        frame = frame.filter(pl.col(TASK).is_not_null())
        if schema.time is not None:
            frame = frame.filter(pl.col(TIME).is_not_null())
        if not frame.height:
            continue
        rows += frame.height
        labels = few(labels, frame[TARGET])
        begins = frame[TASK] != frame[TASK].shift(1)
        begins[0] = last_task != frame[TASK][0]
        seen.append(frame[TASK].filter(begins).hash().to_numpy())
        runs += int(begins.sum())
        last_task = frame[TASK][-1]
        if schema.time is not None and in_order:
            times = frame[TIME]
            in_order = times.is_sorted() and (last_time is None or bool(last_time <= times[0]))
            last_time = times[-1]
    if not rows:
        names = " / ".join(one.name for one in schema.task)
        raise problem(table.where, "no row has a task, or none has a time.", names)
    tasks = len(np.unique(np.concatenate(seen)))
    return Survey(rows, tasks, in_order and tasks == runs, _sorted(labels))


def of_live(frame: pl.DataFrame) -> Survey:
    """What the first rows of a live table say; they are taken to come in order."""
    return Survey(None, None, True, _sorted(few(set(), frame[TARGET])))


def few(labels: set[str], values: pl.Series) -> set[str]:
    """The labels so far and those of more rows, until they are too many."""
    if len(labels) > MOST_LABELS:
        return labels
    return labels | set(as_text(values.drop_nulls().unique()).to_list())


def _sorted(labels: set[str]) -> tuple[str, ...] | None:
    if len(labels) > MOST_LABELS:
        return None
    try:
        return tuple(sorted(labels, key=float))
    except ValueError:
        return tuple(sorted(labels))


def in_order(table: Table, schema: Schema, found: Survey) -> Iterator[pl.DataFrame]:
    """Rows with those of a task together, tasks in order of their first time.

    A table that is not in this order is held in memory, its used columns only, to be sorted.
    """
    if found.sorted:
        yield from schema.frames(table)
        return
    whole = pl.concat(list(schema.frames(table)))
    whole = whole.filter(pl.col(TASK).is_not_null())
    if schema.time is None:
        begins = pl.col("row").min().over(TASK)
        yield from whole.sort(begins, "row").iter_slices(1 << 16)
        return
    whole = whole.filter(pl.col(TIME).is_not_null())
    begins = pl.col(TIME).min().over(TASK)
    whole = whole.sort(begins, TASK, TIME, "row")
    yield from whole.iter_slices(1 << 16)
