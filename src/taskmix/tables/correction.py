"""What a linear fit of past errors adds to a prediction.

A learner with heavy tails predicts the usual, so that it errs on one side where targets are skewed:
a day of many delays counts as a wide one rather than a high one. Such errors follow from the
known rows, the inputs and the prediction itself. A ridge regression of the errors so far finds
them. As much of it is made use of as would have made the past predictions best: all, some or none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from taskmix.tables.engine import Forecast
from taskmix.tables.packing import Sides
from taskmix.tables.ridge import RunningRidge
from taskmix.tables.rivals import with_statistics
from taskmix.tables.scaling import FARTHEST

STRENGTH = 100.0
"""Of the penalty: what is not seen in hundreds of rows is not corrected."""


@dataclasses.dataclass
class Correction:
    """A linear fit of the errors of past predictions, in the learner's units."""

    ridge: RunningRidge = dataclasses.field(default_factory=lambda: RunningRidge(STRENGTH))
    along: float = 0.0
    """Past errors times what the regression said of them before."""
    squares: float = 0.0
    """Squares of what it said."""

    @property
    def share(self) -> float:
        """Of the regression, from 0 to 1, with which the past errors would have been least."""
        return min(max(self.along / self.squares, 0.0), 1.0) if self.squares > 0 else 0.0

    def shifts(self, tasks: Sequence[Sides], found: Sequence[Forecast]) -> list[np.ndarray]:
        """What to add to the means of each task (query, 1), and to their bounds."""
        share = self.share
        return [share * self._shift(task, one) for task, one in zip(tasks, found, strict=True)]

    def learn(self, tasks: Sequence[Sides], found: Sequence[Forecast]) -> None:
        """From predictions that were made before, and what came."""
        x = np.concatenate([_inputs(task, one) for task, one in zip(tasks, found, strict=True)])
        errors = np.concatenate(
            [task.query_y[:, None] - one.mean for task, one in zip(tasks, found, strict=True)]
        )
        shifts = np.concatenate(
            [self._shift(task, one) for task, one in zip(tasks, found, strict=True)]
        )
        usable = np.isfinite(errors[:, 0]) & np.isfinite(x).all(axis=1)
        errors = np.clip(errors[usable], -FARTHEST, FARTHEST)
        self.along += float((errors * shifts[usable]).sum())
        self.squares += float(np.square(shifts[usable]).sum())
        self.ridge.learn(x[usable], errors)

    def arrays(self) -> dict[str, np.ndarray]:
        return {**self.ridge.arrays(), "sums": np.array([self.along, self.squares])}

    def restore(self, arrays: Mapping[str, Any], width: int) -> None:
        """Go on from what ``arrays`` gave, for so many inputs; what does not fit is an error."""
        sums = np.asarray(arrays["sums"], float)
        if sums.shape != (2,) or not np.isfinite(sums).all():
            raise ValueError("the sums of errors and corrections are no two numbers")
        self.ridge.restore(arrays)
        self.along, self.squares = sums.tolist()
        if self.ridge.weights is not None and self.ridge.weights.shape != (width + MORE, 1):
            raise ValueError(f"the correction is not one of {width} inputs")

    def _shift(self, task: Sides, found: Forecast) -> np.ndarray:
        if self.ridge.weights is None:
            return np.zeros((len(task.query_x), 1))
        return np.nan_to_num(_inputs(task, found) @ self.ridge.weights)


MORE = 7
"""Numbers beside the inputs: five statistics of the support set, a constant, the prediction."""


def _inputs(task: Sides, found: Forecast) -> np.ndarray:
    """What is farther out than any input of the learner counts as that far."""
    every = np.concatenate([with_statistics(task, 0), found.mean], axis=1).astype(float)
    return np.clip(every, -FARTHEST, FARTHEST)
