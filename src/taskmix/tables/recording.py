"""Collects what is said of every task while a table is gone through."""

from __future__ import annotations

import dataclasses
import json
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
LISTS: dict[str, Any] = {
    "firsts": np.int64,
    "counts": np.int64,
    "sums": np.float64,
    "novelty": np.float64,
    "regimes": np.int64,
    "alarmed": np.bool_,
}
"""What is recorded of every task, and its type in a checkpoint."""


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
    known: list[tuple[np.ndarray, ...]] = dataclasses.field(default_factory=list)
    scale: Scale = dataclasses.field(default_factory=lambda: Scale.begin(1))
    target: str = ""
    full: str | None = None
    """The first task with which there was no room for another regime."""

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
        first = len(self.names) - len(wave)
        self.known.append(
            (
                np.concatenate([task.support.rows for task in wave]),
                np.repeat(
                    np.arange(first, len(self.names), dtype=np.int32),
                    [len(task.support.y) for task in wave],
                ),
                np.concatenate([task.support.y for task in wave]).astype(np.float32),
            )
        )
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
            if self.clusters == np.asarray(info.alive).size and self.full is None:
                self.full = tasks[0].name
                lines.append(f"{tasks[0].name}: no room for further regimes from here on")
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
            support=self._support(),
            target=self.target,
            labels=self.labels,
            full=self.full,
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it, for a checkpoint."""
        self.said, self.known = (
            [tuple(map(np.concatenate, zip(*pieces, strict=True)))]
            for pieces in (self.said, self.known)
        )
        texts = {
            "names": self.names,
            "full": self.full,
            "births": self.births,
            "alarms": [[alarm.tasks, alarm.rows] for alarm in self.alarms],
        }
        lists = {name: np.array(getattr(self, name), dtype) for name, dtype in LISTS.items()}
        return {
            "texts": np.frombuffer(json.dumps(texts).encode(), np.uint8),
            "totals": np.array([self.inside, self.clusters]),
            **lists,
            **{f"rivals {name}": np.array(own) for name, own in self.rivals.items()},
            **{f"said {place}": column for place, column in enumerate(self.said[0])},
            **{f"known {place}": column for place, column in enumerate(self.known[0])},
            **{f"scale {name}": leaf for name, leaf in vars(self.scale).items()},
        }

    @staticmethod
    def restored(
        labels: tuple[str, ...] | None, target: str, arrays: Mapping[str, np.ndarray]
    ) -> Recorder:
        """What ``arrays`` took apart; a ``ValueError`` if the parts do not fit together."""
        texts = json.loads(arrays["texts"].tobytes())
        named = {name: _own(arrays, name) for name in ("rivals ", "said ", "known ", "scale ")}
        inside, clusters = arrays["totals"].tolist()
        found = Recorder(
            labels,
            names=[str(name) for name in texts["names"]],
            inside=inside,
            alarms=[
                TableAlarm(tuple(map(str, tasks)), tuple(map(int, rows)))
                for tasks, rows in texts["alarms"]
            ],
            births=[str(name) for name in texts["births"]],
            clusters=clusters,
            rivals={name: own.tolist() for name, own in named["rivals "].items()},
            said=[_columns(named["said "])],
            known=[_columns(named["known "])],
            scale=Scale(**named["scale "]),
            target=target,
            full=None if texts["full"] is None else str(texts["full"]),
            **{name: arrays[name].astype(dtype).tolist() for name, dtype in LISTS.items()},
        )
        found._check()
        return found

    def _check(self) -> None:
        """Whether there is as much of everything as there are tasks, and query rows."""
        tasks, queries = len(self.names), sum(self.counts)
        per_task = [len(getattr(self, name)) for name in LISTS] + [*map(len, self.rivals.values())]
        said, known = self.said[0], self.known[0]
        fits = (
            {*per_task} == {tasks}
            and {column.shape for column in said} == {(queries,)}
            and {column.shape for column in known} == {known[0].shape}
            and (len(said), len(known)) == (5 if self.labels else 6, 3)
            and min(self.counts, default=0) > 0
            and all(_numbers_of(numbers, tasks) for numbers in (said[1], known[1]))
            and {leaf.shape for leaf in vars(self.scale).values()} == {(1,)}
        )
        if not fits:
            raise ValueError("the records of tasks and of rows do not fit together")

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

    def _support(self) -> pl.DataFrame:
        rows, numbers, target = (np.concatenate(one) for one in zip(*self.known, strict=True))
        return pl.DataFrame(
            {
                "row": rows,
                "task": pl.Series(self.names, dtype=pl.Categorical).gather(numbers),
                "target": self._as_labels(target) if self.labels else target,
            }
        )

    def _as_labels(self, numbers: np.ndarray) -> pl.Series:
        texts = pl.Series(self.labels, dtype=pl.Categorical)
        return texts.gather(numbers.astype(np.int32))

    def _predictions(self) -> pl.DataFrame:
        columns = [np.concatenate(leaves) for leaves in zip(*self.said, strict=True)]
        rows, numbers, target, said, *more = columns
        names = pl.Series(self.names, dtype=pl.Categorical)
        frame: dict[str, Any] = {"row": rows, "task": names.gather(numbers)}
        if self.labels:
            frame |= {
                "target": self._as_labels(target),
                "label": self._as_labels(said),
                "probability": more[0],
            }
        else:
            frame |= {"target": target, "mean": said}
            frame |= dict(zip(("low", "high"), more, strict=False))
        return pl.DataFrame(frame)


def _own(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Those whose name begins with it, by the rest of their name."""
    return {
        name.removeprefix(prefix): own for name, own in arrays.items() if name.startswith(prefix)
    }


def _columns(named: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    return tuple(named[str(place)] for place in range(len(named)))


def _numbers_of(numbers: np.ndarray, tasks: int) -> bool:
    """Whether these are numbers of tasks."""
    whole = numbers.dtype == np.int32 and numbers.size > 0
    return whole and int(numbers.min()) >= 0 and int(numbers.max()) < tasks


def _alarm(tasks: Sequence[RowTask]) -> TableAlarm:
    sides = [side for task in tasks for side in (task.support, task.query)]
    rows = np.sort(np.concatenate([side.rows for side in sides]))
    return TableAlarm(tuple(task.name for task in tasks), tuple(rows.tolist()))
