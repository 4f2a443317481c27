"""Collects what is said of every task while a table is gone through."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from taskmix.learner import Info
from taskmix.tables.engine import Forecast
from taskmix.tables.grouping import RowTask
from taskmix.tables.result import Regime, TableAlarm, TableResult, estimate
from taskmix.tables.scaling import Scale

SQUARED = "mean squared error of the standardised target"
WRONG = "share of wrong labels"


@dataclasses.dataclass
class Recorder:
    """Per task and per query row; arrays are joined at the end."""

    labels: tuple[str, ...] | None
    names: list[str] = dataclasses.field(default_factory=list)
    firsts: list[int] = dataclasses.field(default_factory=list)
    counts: list[int] = dataclasses.field(default_factory=list)
    sums: list[float] = dataclasses.field(default_factory=list)
    inside: int = 0
    novelty: list[float] = dataclasses.field(default_factory=list)
    regimes: list[int] = dataclasses.field(default_factory=list)
    alarmed: list[bool] = dataclasses.field(default_factory=list)
    alarms: list[TableAlarm] = dataclasses.field(default_factory=list)
    births: list[str] = dataclasses.field(default_factory=list)
    clusters: int = 1
    rivals: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    said: list[tuple[np.ndarray, ...]] = dataclasses.field(default_factory=list)
    scale: Scale = dataclasses.field(default_factory=lambda: Scale.begin(1))

    def predicted(self, wave: Sequence[RowTask], forecasts: Sequence[Forecast]) -> None:
        said_of_wave = []
        for task, found in zip(wave, forecasts, strict=True):
            y = task.query.y
            self.names.append(task.name)
            self.firsts.append(int(min(task.support.rows.min(), task.query.rows.min())))
            self.counts.append(len(y))
            self.sums.append(float(self._loss(found.mean, y).sum()))
            self.novelty.append(found.novelty)
            said = found.mean.argmax(axis=-1) if self.labels else found.mean[:, 0]
            row = [task.query.rows, np.full(len(y), len(self.names) - 1, np.int32), y, said]
            if found.low is not None and found.high is not None:
                low, high = found.low[:, 0], found.high[:, 0]
                self.inside += int(((low <= y) & (y <= high)).sum())
                row += [low, high]
            elif self.labels:
                row.append(found.mean.max(axis=-1))
            narrow = [leaf.astype(np.float32) for leaf in row[2:]]
            said_of_wave.append((row[0], row[1], *narrow))
        # Joined here, as millions of little arrays would take more memory than what is in them.
        self.said.append(tuple(map(np.concatenate, zip(*said_of_wave, strict=True))))
        y = np.concatenate([side.y for task in wave for side in (task.support, task.query)])
        self.scale = self.scale.observed(y[:, None])

    def rival(self, name: str, wave: Sequence[RowTask], means: Sequence[np.ndarray]) -> None:
        losses = [
            float(self._loss(mean, task.query.y).sum())
            for task, mean in zip(wave, means, strict=True)
        ]
        self.rivals.setdefault(name, []).extend(losses)

    def learned(self, wave: Sequence[RowTask], infos: Sequence[Info]) -> list[str]:
        """What the learner said of each batch; lines about what is new."""
        lines, size = [], infos[0].error.shape[-1]
        for number, info in enumerate(infos):
            tasks = wave[number * size : (number + 1) * size]
            shares = np.asarray(info.responsibilities)[: len(tasks)]
            best = shares.argmax(axis=-1)
            rest = 1 - shares.sum(axis=-1)
            self.regimes += np.where(rest > shares.max(axis=-1), -1, best).tolist()
            self.alarmed += [bool(info.alarm)] * len(tasks)
            self.clusters = int(np.sum(info.alive))
            if info.alarm:
                self.alarms.append(_alarm(tasks))
                lines.append(f"alarm: {tasks[0].name} and what follows fit nothing known")
            if info.spawned:
                self.births.append(tasks[0].name)
                lines.append(f"{tasks[0].name}: a new regime, now {self.clusters}")
        return lines

    @property
    def unit(self) -> float:
        return 1.0 if self.labels else float(self.scale.deviation[0] ** 2)

    def error_so_far(self) -> float:
        return sum(self.sums) / max(sum(self.counts), 1) / self.unit

    def result(self, left_out: Mapping[str, int], chosen: Mapping[str, Any]) -> TableResult:
        counts, sums = np.array(self.counts, float), np.array(self.sums)
        rivals = {name: np.array(own) for name, own in self.rivals.items()}
        coverage = None if self.labels else self.inside / max(counts.sum(), 1)
        return TableResult(
            kind="classification" if self.labels else "regression",
            measure=WRONG if self.labels else SQUARED,
            error=estimate(sums, counts, self.unit),
            baselines={name: estimate(own, counts, self.unit) for name, own in rivals.items()},
            coverage=coverage,
            regimes=self._regimes(),
            alarms=tuple(self.alarms),
            births=tuple(self.births),
            tasks=self._tasks(rivals, sums, counts),
            predictions=self._predictions(),
            left_out=left_out,
            chosen=chosen,
        )

    def _loss(self, mean: np.ndarray, y: np.ndarray) -> np.ndarray:
        if self.labels:
            return (mean.argmax(axis=-1) != y).astype(float)
        return np.square(mean[:, 0] - y)

    def _regimes(self) -> tuple[Regime, ...]:
        every, sums, counts = np.array(self.regimes), np.array(self.sums), np.array(self.counts)
        found = []
        for number in np.unique(every).tolist():
            own = np.flatnonzero(every == number)
            error = float(sums[own].sum() / counts[own].sum() / self.unit)
            names = self.names[own[0]], self.names[own[-1]]
            found.append(Regime(number, len(own), error, *names))
        return tuple(found)

    def _tasks(
        self, rivals: Mapping[str, np.ndarray], sums: np.ndarray, counts: np.ndarray
    ) -> pl.DataFrame:
        return pl.DataFrame(
            {
                "task": self.names,
                "first_row": self.firsts,
                "queries": self.counts,
                "error": sums / counts / self.unit,
                "regime": self.regimes,
                "novelty": self.novelty,
                "alarm": self.alarmed,
                **{f"error of {name}": own / counts / self.unit for name, own in rivals.items()},
            }
        )

    def _predictions(self) -> pl.DataFrame:
        columns = [np.concatenate(leaves) for leaves in zip(*self.said, strict=True)]
        rows, numbers, target, said, *more = columns
        names = pl.Series(self.names, dtype=pl.Categorical)
        frame: dict[str, Any] = {"row": rows, "task": names.gather(numbers)}
        if self.labels:
            texts = pl.Series(self.labels, dtype=pl.Categorical)
            frame |= {
                "target": texts.gather(target.astype(np.int32)),
                "label": texts.gather(said.astype(np.int32)),
                "probability": more[0],
            }
        else:
            frame |= {"target": target, "mean": said}
            frame |= dict(zip(("low", "high"), more, strict=False))
        return pl.DataFrame(frame)


def _alarm(tasks: Sequence[RowTask]) -> TableAlarm:
    sides = [side for task in tasks for side in (task.support, task.query)]
    rows = np.sort(np.concatenate([side.rows for side in sides]))
    return TableAlarm(tuple(task.name for task in tasks), tuple(rows.tolist()))
