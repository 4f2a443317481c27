"""What came out of a table: errors beside those of the rivals, regimes, alarms, predictions."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from taskmix.files import explained, write_json


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
    """What `fit_online` made of a table. Every prediction was made before its task was learned."""

    kind: str
    """``regression`` or ``classification``."""
    measure: str
    """What ``error`` is."""
    error: Estimate
    baselines: Mapping[str, Estimate]
    """The same measure of what a user would try instead."""
    coverage: float | None
    """Share of targets inside their 90 % interval; None for classes."""
    regimes: tuple[Regime, ...]
    alarms: tuple[TableAlarm, ...]
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

    def __str__(self) -> str:
        return "\n".join(lines_of(self))

    def to_dict(self) -> dict[str, Any]:
        """All but the two frames, for JSON and for reports."""
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
        }

    def plot(self, path: str | Path) -> Path:
        """Draw errors and regimes over the tasks into a PNG, PDF or SVG file."""
        from taskmix.tables.plot import draw

        return draw(self, Path(path))

    def save(self, folder: str | Path) -> Path:
        """Write result.json, tasks.csv, predictions.csv and result.png into a folder."""
        folder = Path(folder)
        with explained(f"create {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "result.json", json.loads(json.dumps(self.to_dict())))
        self.tasks.write_csv(folder / "tasks.csv")
        self.predictions.write_csv(folder / "predictions.csv")
        self.plot(folder / "result.png")
        return folder


def lines_of(result: TableResult) -> list[str]:
    """The result as a person reads it."""
    width = max(len(name) for name in ("taskmix", *result.baselines))
    lines = [f"{result.measure}, {result.tasks.height} tasks, 95 % interval over tasks:"]
    lines.append(f"  {'taskmix':<{width}}  {result.error}")
    lines += [f"  {name:<{width}}  {one}" for name, one in result.baselines.items()]
    if result.coverage is not None:
        lines.append(f"90 % intervals held {result.coverage:.1%} of the targets.")
    kinds = sum(regime.number >= 0 for regime in result.regimes)
    lines.append(f"{kinds} regime(s), {len(result.alarms)} alarm(s), {len(result.births)} birth(s)")
    for alarm in result.alarms:
        lines.append(
            f"  alarm: {', '.join(alarm.tasks[:3])}{' ...' if len(alarm.tasks) > 3 else ''} "
            f"(rows {min(alarm.rows)} to {max(alarm.rows)})"
        )
    for reason, count in result.left_out.items():
        if count:
            lines.append(f"left out: {count} {reason.replace('_', ' ')}")
    return lines


def estimate(sums: np.ndarray, counts: np.ndarray, unit: float = 1.0) -> Estimate:
    """Mean over rows of per-task sums, with the interval of a ratio over independent tasks."""
    total = max(counts.sum(), 1)
    value = sums.sum() / total
    spread = 1.96 * np.sqrt(np.square(sums - value * counts).sum()) / total
    return Estimate(*(float(one / unit) for one in (value, value - spread, value + spread)))
