"""What came out of a table: errors beside those of the rivals, regimes, alarms, predictions."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from taskmix.files import explained, inside, replacing, write_json
from taskmix.names import counted, percent

LEAST_COVERAGE = 0.8
"""Share of the targets in 90 % intervals below which a note says that these are too narrow."""


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean over all query rows, and its 95 % interval over tasks."""

    value: float
    low: float
    high: float

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


@dataclasses.dataclass(frozen=True)
class Regime:
    """A kind of task that was told apart; number -1 is the background: tasks like no other."""

    number: int
    tasks: int
    error: float
    first: str
    """Name of its first task."""
    last: str


@dataclasses.dataclass(frozen=True)
class TableAlarm:
    """Tasks that came when the learner said: these fit nothing that I know."""

    tasks: tuple[str, ...]
    rows: tuple[int, ...]
    """Numbers of their rows in the table, from 1."""


@dataclasses.dataclass(frozen=True)
class TableResult:
    """What ``fit_online`` made of a table. Every prediction was made before its task was learned.

    Examples
    --------
    >>> columns = ("kind", "measure", "error", "baselines", "coverage", "regimes", "alarms")
    >>> set(columns) <= {field.name for field in dataclasses.fields(TableResult)}
    True
    """

    kind: str
    """``regression`` or ``classification``."""
    measure: str
    """What ``error`` is."""
    error: Estimate
    """Of taskmix."""
    baselines: Mapping[str, Estimate]
    """The same measure of what a user would try instead."""
    coverage: float | None
    """Share of targets inside their 90 % interval; None for classes."""
    regimes: tuple[Regime, ...]
    """Kinds of tasks that were told apart."""
    alarms: tuple[TableAlarm, ...]
    """When tasks fitted nothing known."""
    births: tuple[str, ...]
    """First task of each batch with which a cluster was opened."""
    tasks: pl.DataFrame
    """A row per task: name, first row, queries, error, regime, novelty, alarm, rivals' errors."""
    predictions: pl.DataFrame
    """A row per query row: its number, task, target, mean (or label), bounds of the interval."""
    left_out: Mapping[str, int]
    """How many rows and tasks nothing was made of, by the reason."""
    chosen: Mapping[str, Any]
    """Settings that were chosen from the size of the data."""
    support: pl.DataFrame
    """A row per known row: its number, task, target."""
    target: str = ""
    """What the column is called that was predicted."""
    labels: tuple[str, ...] | None = None
    """Of classes."""
    full: str | None = None
    """The first task from which on there was no room for a further regime."""

    def __str__(self) -> str:
        return "\n".join(lines_of(self))

    def to_dict(self) -> dict[str, Any]:
        """All but the frames, for JSON and for reports.

        Returns
        -------
        dict
            Numbers, texts, lists and dictionaries.
        """
        return {
            "kind": self.kind,
            "measure": self.measure,
            "error": dataclasses.asdict(self.error),
            "baselines": {name: dataclasses.asdict(one) for name, one in self.baselines.items()},
            "coverage": self.coverage,
            "tasks": self.tasks.height,
            "queries": self.predictions.height,
            "regimes": [dataclasses.asdict(one) for one in self.regimes],
            "alarms": [dataclasses.asdict(one) for one in self.alarms],
            "births": list(self.births),
            "left_out": dict(self.left_out),
            "chosen": dict(self.chosen),
            "target": self.target,
            "labels": None if self.labels is None else list(self.labels),
            "full": self.full,
            "notes": notes_of_table(self),
        }

    def plot(self, path: str | Path) -> Path:
        """Draw errors and regimes over the tasks.

        Parameters
        ----------
        path
            PNG, PDF or SVG file to write.

        Returns
        -------
        Path
            The file.
        """
        from taskmix.tables.plot import draw

        return draw(self, Path(path))

    def report(self, path: str | Path) -> Path:
        """Write a report: one HTML file that needs nothing else.

        Parameters
        ----------
        path
            File to write.

        Returns
        -------
        Path
            The file.
        """
        from taskmix.reporting.report import table_report

        return table_report(self, Path(path))

    def save(self, folder: str | Path) -> Path:
        """Write result.json, tasks.csv, predictions.csv, support.csv and result.png.

        Parameters
        ----------
        folder
            Created if need be.

        Returns
        -------
        Path
            The folder.
        """
        folder = Path(folder)
        with explained(f"create {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
        frames = {"tasks": self.tasks, "predictions": self.predictions, "support": self.support}
        for name, frame in frames.items():
            with replacing(folder / f"{name}.csv") as file:
                frame.write_csv(file)
        self.plot(inside(folder, "result.png"))
        write_json(folder / "result.json", json.loads(json.dumps(self.to_dict())))
        return folder


def lines_of(result: TableResult) -> list[str]:
    """The result as a person reads it."""
    width = max(len(name) for name in ("taskmix", *result.baselines))
    lines = [f"{result.measure}, {result.tasks.height} tasks, 95 % interval over tasks:"]
    lines.append(f"  {'taskmix':<{width}}  {result.error}")
    lines += [f"  {name:<{width}}  {one}" for name, one in result.baselines.items()]
    if result.coverage is not None:
        lines.append(f"90 % intervals held {percent(result.coverage)} of the targets.")
    counts = {
        "regime": sum(regime.number >= 0 for regime in result.regimes),
        "alarm": len(result.alarms),
        "birth": len(result.births),
    }
    lines.append(", ".join(counted(n, what) for what, n in counts.items()))
    for alarm in result.alarms:
        lines.append(
            f"  alarm: {', '.join(alarm.tasks[:3])}{' ...' if len(alarm.tasks) > 3 else ''} "
            f"(rows {min(alarm.rows)} to {max(alarm.rows)})"
        )
    lines += notes_of_table(result)
    return lines


def notes_of_table(result: TableResult) -> list[str]:
    """What has to be said in words, since no number says it."""
    notes = []
    if not np.isfinite(result.error.value):
        notes.append("Diverged: the error is not a finite number.")
    if result.full is not None:
        notes.append(
            f"Full: from task {result.full} on all room for regimes was taken, so no further one "
            f"could be born."
        )
    if result.kind == "regression" and result.coverage is None:
        notes.append("No uncertainty: this learner gives no intervals.")
    elif result.coverage is not None and result.coverage < LEAST_COVERAGE:
        notes.append(
            f"Too narrow: 90 % intervals held only {percent(result.coverage)} of the targets, so "
            f"do not rely on their width."
        )
    best = min(result.baselines, key=lambda name: result.baselines[name].value, default=None)
    if best is not None and result.baselines[best].value < result.error.value:
        notes.append(
            f"Simpler is better here: {best} has the smaller error "
            f"({result.baselines[best].value:.4g} against {result.error.value:.4g})."
        )
    notes += [
        f"Left out: {reason.replace('_', ' ')}: {count:,}."
        for reason, count in result.left_out.items()
        if count
    ]
    return notes


def estimate(sums: np.ndarray, counts: np.ndarray, unit: float = 1.0) -> Estimate:
    """Mean over rows of per-task sums, with the interval of a ratio over independent tasks."""
    total = max(counts.sum(), 1)
    value = sums.sum() / total
    spread = 1.96 * np.sqrt(np.square(sums - value * counts).sum()) / total
    return Estimate(*(float(one / unit) for one in (value, value - spread, value + spread)))
