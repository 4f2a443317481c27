"""How wide intervals have to be, by what became of the past ones.

A learner's own widths lag behind: they are known only after hundreds of tasks, while it gets
better, and they know nothing of corrections. So the distances of targets from the middle of what
was said of them are kept, in halves of the 90 % interval, and the next intervals are made as wide
as would have held the right share of these.

H. Papadopoulos et al.: Inductive confidence machines for regression. ECML 2002.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import norm

from taskmix.tables.engine import LEVEL, Forecast
from taskmix.tables.packing import Sides

KEPT = 1024
"""Distances: of the newest 128 tasks or more. With half as many intervals were worse on car parks,
with twice as many they held too little on a table that changes."""
PER_TASK = 8
"""Distances that a task contributes: more of one task would say the same."""
AT_FIRST = 100
"""Distances that a normal distribution has, before there are others."""
FARTHEST = 1000.0
SURE = 0.99
"""Level beyond which a sample of this size says little: the rest falls with the third power."""


def _normal() -> np.ndarray:
    levels = (np.arange(AT_FIRST) + 0.5) / AT_FIRST
    return np.asarray(norm.ppf((1 + levels) / 2) / norm.ppf((1 + LEVEL) / 2))


@dataclasses.dataclass
class Distances:
    """The newest distances of targets, in halves of the learner's 90 % interval."""

    newest: np.ndarray = dataclasses.field(default_factory=_normal)

    def factor(self, level: float) -> float:
        """By which half of the 90 % interval is multiplied for another level.

        >>> round(Distances().factor(0.9), 1)
        1.0
        """
        held = min(level, SURE)
        tail = ((1 - held) / (1 - level)) ** (1 / 3)
        return float(np.quantile(self.newest, held)) * tail

    def learn(
        self, tasks: Sequence[Sides], found: Sequence[Forecast], shifts: Sequence[np.ndarray]
    ) -> None:
        """From intervals that were said, moved by ``shifts``, and what came."""
        new = map(_of_task, tasks, found, shifts)
        self.newest = np.concatenate([self.newest, *new])[-KEPT:]

    def arrays(self) -> dict[str, np.ndarray]:
        return {"newest": self.newest}

    def restore(self, arrays: Mapping[str, Any]) -> None:
        """Go on from what ``arrays`` gave; what cannot be is an error."""
        newest = np.asarray(arrays["newest"], float)
        if newest.ndim != 1 or not 0 < len(newest) <= KEPT or not (newest >= 0).all():
            raise ValueError("the distances of past targets are no list of positive numbers")
        self.newest = newest


def _of_task(task: Sides, found: Forecast, shift: np.ndarray) -> np.ndarray:
    """Of some rows of a task, from the first to the last."""
    if found.low is None or found.high is None:
        return np.zeros(0)
    count = len(task.query_y)
    some = min(PER_TASK, count)
    rows = ((np.arange(some) + 0.5) * count / some).astype(int)
    middle = (found.low + found.high)[rows, 0] / 2 + shift[rows, 0]
    half = (found.high - found.low)[rows, 0] / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        distances = np.abs(task.query_y[rows] - middle) / half
    return np.minimum(distances[~np.isnan(distances)], FARTHEST)
