"""What a user would try instead, under the same rules: predict a task, then learn from it."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from taskmix.tables.packing import Sides
from taskmix.tables.ridge import RunningRidge

STRENGTH = 1.0
"""Of the penalty of both ridges; inputs are scaled, so it counts for one row."""
GROWTH = 1.2
"""How much more there must be to learn from before a rival is trained anew."""
MOST_ROWS = 100_000
"""Rows that LightGBM is trained on: the newest."""
ROUNDS = 200


@runtime_checkable
class Rival(Protocol):
    """Predicts all queries of a wave, then learns from it."""

    name: str

    def predict(self, tasks: Sequence[Sides]) -> list[np.ndarray]:
        """Per task (query, outputs): means, or a score per class."""

    def learn(self, tasks: Sequence[Sides]) -> None: ...

    def arrays(self) -> dict[str, np.ndarray]:
        """What was learned, for a checkpoint."""

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from what ``arrays`` gave."""


class Forgetful:
    """A rival that knows the task at hand only."""

    def learn(self, tasks: Sequence[Sides]) -> None:
        """Nothing."""

    def arrays(self) -> dict[str, np.ndarray]:
        return {}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """There is nothing."""


def rivals(classes: int, seed: int) -> list[Rival]:
    """All there are for a target with so many ``classes`` (0: a number)."""
    found: list[Rival] = [SupportMean(classes), TaskRidge(classes), GlobalRidge(classes)]
    if importlib.util.find_spec("lightgbm") is not None:
        found.append(Boosted(classes, seed))
    return found


def outputs(y: np.ndarray, classes: int) -> np.ndarray:
    """Targets as columns: the number itself, or one column per class."""
    return np.eye(classes)[y.astype(int)] if classes else y[:, None].astype(float)


class SupportMean(Forgetful):
    """The mean of the support set, or its most frequent label."""

    def __init__(self, classes: int) -> None:
        self.name = "support majority" if classes else "support mean"
        self.classes = classes

    def predict(self, tasks: Sequence[Sides]) -> list[np.ndarray]:
        return [
            np.broadcast_to(
                outputs(task.support_y, self.classes).mean(axis=0),
                (len(task.query_x), max(self.classes, 1)),
            )
            for task in tasks
        ]


class TaskRidge(Forgetful):
    """A linear fit of every task's own support set, its mean not penalised."""

    name = "ridge per task"

    def __init__(self, classes: int) -> None:
        self.classes = classes

    def predict(self, tasks: Sequence[Sides]) -> list[np.ndarray]:
        return [self._one(task) for task in tasks]

    def _one(self, task: Sides) -> np.ndarray:
        y = outputs(task.support_y, self.classes)
        level, centre = y.mean(axis=0), task.support_x.mean(axis=0)
        x = (task.support_x - centre).astype(float)
        # As many unknowns as rows: the same fit by the smaller matrix.
        gram = x @ x.T + STRENGTH * np.eye(len(x))
        weights = x.T @ np.linalg.solve(gram, y - level)
        return level + (task.query_x - centre) @ weights


def with_statistics(task: Sides, classes: int) -> np.ndarray:
    """Query inputs beside what the support set says of the task, a constant last."""
    y = outputs(task.support_y, classes)
    told = [y.mean(axis=0)] if classes else [y.mean(0), y.std(0), y.min(0), y.max(0), y[-1]]
    statistics = np.concatenate([*told, [1.0]])
    rows = len(task.query_x)
    return np.concatenate([task.query_x, np.broadcast_to(statistics, (rows, len(statistics)))], 1)


class GlobalRidge:
    """One linear fit for all tasks of the past, with statistics of the support set as inputs."""

    name = "global ridge"

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self._ridge = RunningRidge(STRENGTH)
        self._first = SupportMean(classes)

    def predict(self, tasks: Sequence[Sides]) -> list[np.ndarray]:
        weights = self._ridge.weights
        if weights is None:
            return self._first.predict(tasks)
        return [with_statistics(task, self.classes) @ weights for task in tasks]

    def learn(self, tasks: Sequence[Sides]) -> None:
        x = np.concatenate([with_statistics(task, self.classes) for task in tasks]).astype(float)
        y = np.concatenate([outputs(task.query_y, self.classes) for task in tasks])
        self._ridge.learn(x, y)

    def arrays(self) -> dict[str, np.ndarray]:
        return self._ridge.arrays()

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._ridge.restore(arrays)


class Boosted:
    """LightGBM over the query rows of past tasks, with statistics of the support set as inputs."""

    name = "LightGBM"

    def __init__(self, classes: int, seed: int) -> None:
        self.classes, self.seed = classes, seed
        self._x: list[np.ndarray] = []
        self._y: list[np.ndarray] = []
        self._rows, self._trained = 0, 0
        self._model: Any = None
        self._basis: tuple[np.ndarray, ...] = ()
        """What the model was trained on."""
        self._first = SupportMean(classes)

    def predict(self, tasks: Sequence[Sides]) -> list[np.ndarray]:
        if self._model is None:
            return self._first.predict(tasks)
        x = np.concatenate([with_statistics(task, self.classes) for task in tasks])
        found = np.asarray(self._model.predict(x))
        if self.classes == 2:
            found = np.stack([1 - found, found], axis=1)
        ends = np.cumsum([len(task.query_x) for task in tasks])[:-1]
        return np.split(found.reshape(len(x), -1), ends)

    def learn(self, tasks: Sequence[Sides]) -> None:
        for task in tasks:
            self._x.append(with_statistics(task, self.classes).astype(np.float32))
            self._y.append(task.query_y)
            self._rows += len(task.query_y)
        if self._rows >= GROWTH * self._trained:
            self._fit(*self._newest())
            self._trained = self._rows
        elif sum(map(len, self._y)) > 2 * MOST_ROWS:
            self._newest()

    def arrays(self) -> dict[str, np.ndarray]:
        """The rows only: a model is made of them anew, as a text of its own could say anything."""
        self._x, self._y = [np.concatenate(self._x)], [np.concatenate(self._y)]
        rows = np.array([self._rows, self._trained])
        basis = dict(zip(("basis_x", "basis_y"), self._basis, strict=True))
        return {"x": self._x[0], "y": self._y[0], "rows": rows, **basis}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._fit(arrays["basis_x"], arrays["basis_y"])
        self._x, self._y = [arrays["x"]], [arrays["y"]]
        self._rows, self._trained = arrays["rows"].tolist()

    def _newest(self) -> tuple[np.ndarray, np.ndarray]:
        """What there is to train on; what is older is forgotten."""
        x, y = np.concatenate(self._x)[-MOST_ROWS:], np.concatenate(self._y)[-MOST_ROWS:]
        self._x, self._y = [x], [y]
        return x, y

    def _fit(self, x: np.ndarray, y: np.ndarray) -> None:
        import lightgbm

        kind: dict[str, Any] = {"objective": "regression"}
        if self.classes == 2:
            kind = {"objective": "binary"}
        elif self.classes:
            kind = {"objective": "multiclass", "num_class": self.classes}
        settings = {"learning_rate": 0.05, "num_threads": 1, "verbose": -1, "seed": self.seed}
        self._model = lightgbm.train({**settings, **kind}, lightgbm.Dataset(x, y), ROUNDS)
        self._basis = x, y
