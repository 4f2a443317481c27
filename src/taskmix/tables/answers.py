"""Predictions of new tasks by a model that is not changed by them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl

from taskmix.names import counted
from taskmix.tables.blocks import Block
from taskmix.tables.distances import Distances
from taskmix.tables.engine import LEVEL, Forecast
from taskmix.tables.grouping import LeftOut, RowTask, Side, grouped, joined
from taskmix.tables.model import TableModel
from taskmix.tables.prepared import Prepared
from taskmix.tables.problems import problem
from taskmix.tables.reading import Table
from taskmix.tables.survey import Survey


@dataclasses.dataclass(frozen=True)
class TablePrediction:
    """What was predicted, in the order of the query's rows.

    Examples
    --------
    >>> number = np.zeros(1)
    >>> bounds = lambda level: (number - 1, number + 1)
    >>> found = TablePrediction(number, number, None, number, number, None, bounds)
    >>> low, high = found.interval(0.9)
    >>> float(low[0]), float(high[0])
    (-1.0, 1.0)
    """

    task: np.ndarray
    """Name of each row's task."""
    mean: np.ndarray
    """The predicted number, or label, of each row."""
    probabilities: np.ndarray | None
    """(rows, classes); None for numbers."""
    regime: np.ndarray
    """The regime that each row's task most likely belongs to; -1: none."""
    novelty: np.ndarray
    """From 0 to 1: how untypical the support set of each row's task is of all regimes."""
    labels: tuple[str, ...] | None
    """Names of the classes; None for numbers."""
    _bounds: Callable[[float], tuple[np.ndarray, np.ndarray]] = dataclasses.field(repr=False)

    def interval(self, level: float = LEVEL) -> tuple[np.ndarray, np.ndarray]:
        """Bounds that should hold a target with a given probability; for numbers only.

        Parameters
        ----------
        level
            The probability.

        Returns
        -------
        tuple of two arrays
            Lower and upper bounds, one per row of the query.
        """
        if not 0 < level < 1:
            raise ValueError(f"level is {level}; it must lie between 0 and 1.")
        if self.labels is not None:
            raise ValueError("Labels have no interval; see probabilities.")
        return self._bounds(level)

    def frame(self, level: float = LEVEL) -> pl.DataFrame:
        """All of it as a frame.

        Parameters
        ----------
        level
            Probability that the intervals should hold a target.

        Returns
        -------
        polars.DataFrame
            One row per row of the query.
        """
        columns: dict[str, Any] = {"task": self.task.tolist(), "mean": self.mean}
        if self.probabilities is None:
            columns["low"], columns["high"] = self.interval(level)
        else:
            columns["label"] = columns.pop("mean").tolist()
            columns["probability"] = self.probabilities.max(axis=1)
        return pl.DataFrame({**columns, "regime": self.regime, "novelty": self.novelty})


def answer(model: TableModel, prepared: Prepared, support: Table, query: Table) -> TablePrediction:
    """Predict every row of ``query`` from the rows of ``support`` with the same task."""
    # New texts must not change what is learned later, and mean the same on both sides.
    prepared = dataclasses.replace(prepared, vocabulary=copy.deepcopy(prepared.vocabulary))
    untimed = dataclasses.replace(prepared.schema, time=None)
    known = _by_task(dataclasses.replace(prepared, schema=untimed), support)
    without = dataclasses.replace(untimed, target=None)
    asked = _by_task(dataclasses.replace(prepared, schema=without), query)
    wave = [_task(name, known, block, query.where) for name, block in asked.items()]
    sides = model.sides(wave)
    found = model.said(wave, sides, model.forecast(sides))
    rows = np.concatenate([task.query.rows for task in wave])
    order = np.argsort(rows, kind="stable")

    def spread(values: Sequence[Any]) -> np.ndarray:
        counts = [len(task.query.rows) for task in wave]
        return np.repeat(np.asarray(values), counts)[order]

    # What the model learns later changes nothing of what it has said.
    distances = Distances(model.distances.newest)

    def bounds(level: float) -> tuple[np.ndarray, np.ndarray]:
        low, high = (
            np.concatenate([getattr(one, side)[:, 0] for one in found])[order]
            for side in ("low", "high")
        )
        half = (high - low) / 2 * (distances.factor(level) / distances.factor(LEVEL))
        return (low + high) / 2 - half, (low + high) / 2 + half

    means = np.concatenate([one.mean for one in found])[order]
    labels = prepared.labels
    return TablePrediction(
        task=spread([task.name for task in wave]),
        mean=means[:, 0] if labels is None else np.array(labels)[means.argmax(axis=1)],
        probabilities=None if labels is None else means,
        regime=spread([_regime(one) for one in found]),
        novelty=spread([one.novelty for one in found]),
        labels=labels,
        _bounds=bounds,
    )


def _regime(found: Forecast) -> int:
    best = int(found.responsibilities.argmax())
    return -1 if found.background > found.responsibilities[best] else best


def _by_task(prepared: Prepared, table: Table) -> dict[str, Block]:
    """The rows of each task, wherever they stand; those without a task are an error."""
    left = LeftOut()
    as_it_stands = Survey(None, None, True, None)
    parts: dict[str, list[Block]] = {}
    for block in grouped(prepared.blocks(table, as_it_stands), left):
        parts.setdefault(str(block.tasks[0]), []).append(block)
    if left.rows_without_task:
        raise problem(table.where, f"Without a task: {counted(left.rows_without_task, 'row')}.")
    if not parts:
        raise problem(table.where, "there are no rows.")
    return {name: joined(blocks) for name, blocks in parts.items()}


def _task(name: str, known: dict[str, Block], asked: Block, where: str) -> RowTask:
    given = known.get(name)
    usable = None if given is None else ~np.isnan(given.y)
    if given is None or usable is None or not usable.any():
        raise problem(
            where,
            f"task {name!r} has no known row; a task needs at least one in the support table.",
            row=int(asked.rows[0]),
        )
    support = Side(given.rows[usable], given.x[usable], given.y[usable])
    return RowTask(name, support, Side(asked.rows, asked.x, np.zeros(len(asked.rows))))
