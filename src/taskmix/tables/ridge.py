"""A ridge regression of all rows so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

GROWTH = 1.02
"""How many times as many rows there must be before it is solved again."""


class RunningRidge:
    """Keeps sums over the rows, not the rows; a constant has to be among the inputs."""

    def __init__(self, strength: float) -> None:
        self.strength = strength
        self.weights: np.ndarray | None = None
        """(inputs, outputs); None before the first rows."""
        self._gram: Any = 0.0
        self._moment: Any = 0.0
        self._rows, self._solved = 0, 0

    def learn(self, x: np.ndarray, y: np.ndarray) -> None:
        """More rows: inputs (rows, inputs) and targets (rows, outputs)."""
        if not len(x):
            return
        self._gram = self._gram + x.T @ x
        self._moment = self._moment + x.T @ y
        self._rows += len(x)
        if self._rows >= GROWTH * self._solved:
            penalty = self.strength * np.eye(len(self._gram))
            self.weights = np.linalg.solve(self._gram + penalty, self._moment)
            self._solved = self._rows

    def arrays(self) -> dict[str, np.ndarray]:
        """What was learned, for a checkpoint; nothing before the first rows."""
        if self.weights is None:
            return {}
        return {
            "gram": self._gram,
            "moment": self._moment,
            "weights": self.weights,
            "rows": np.array([self._rows, self._solved]),
        }

    def restore(self, arrays: Mapping[str, Any]) -> None:
        """Go on from what ``arrays`` gave; what does not fit together is an error."""
        if "weights" not in arrays:
            return
        gram, moment, weights = (
            np.asarray(arrays[name], float) for name in ("gram", "moment", "weights")
        )
        fits = gram.shape == (len(moment), len(moment)) and moment.shape == weights.shape
        if not fits or not all(np.isfinite(leaf).all() for leaf in (gram, moment, weights)):
            raise ValueError("the sums of a ridge regression do not fit together")
        self._gram, self._moment, self.weights = gram, moment, weights
        self._rows, self._solved = (int(count) for count in arrays["rows"])
