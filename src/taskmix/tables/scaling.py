"""Units of measurement that are learned on the way: mean and spread of what is past.

B. P. Welford: Note on a method for calculating corrected sums of squares and products.
Technometrics 4, 1962.
"""

from __future__ import annotations

import dataclasses

import numpy as np

FARTHEST = 8.0
"""Deviations from the mean beyond which an input is no farther: one typing error in a table
must not be louder than all else."""
ABSURD = 20.0
"""Deviations beyond which a value is no measure of the spread."""
ENOUGH = 50
"""Values from which on a spread is known."""


@dataclasses.dataclass
class Scale:
    """Count, mean and sum of squared distances of each column; missing values do not count."""

    count: np.ndarray
    mean: np.ndarray
    squares: np.ndarray

    @staticmethod
    def begin(columns: int) -> Scale:
        return Scale(np.zeros(columns), np.zeros(columns), np.zeros(columns))

    def observed(self, values: np.ndarray) -> Scale:
        """With more rows (rows, columns); two sets of rows are joined by Welford's formula."""
        given = ~np.isnan(values)
        count = given.sum(axis=0).astype(float)
        safe = np.maximum(count, 1)
        mean = np.where(given, values, 0).sum(axis=0) / safe
        squares = np.where(given, np.square(values - mean), 0).sum(axis=0)
        total = self.count + count
        shift = np.where(count > 0, mean - self.mean, 0)
        share = count / np.maximum(total, 1)
        return Scale(
            total,
            self.mean + share * shift,
            self.squares + squares + np.square(shift) * self.count * share,
        )

    def carefully(self, values: np.ndarray) -> Scale:
        """The same, but what is absurdly far from the past counts as merely very far.

        One typing error would otherwise be the unit of all that comes; a level that has really
        changed is caught up with in a few tasks, as the spread grows with every such value.
        """
        known = (self.count >= ENOUGH) & (self.squares > 0)
        reach = np.where(known, ABSURD * self.deviation, np.inf)
        return self.observed(np.clip(values, self.mean - reach, self.mean + reach))

    @property
    def deviation(self) -> np.ndarray:
        """1 for a column that has not varied: there is no unit to be had from it."""
        spread = np.sqrt(self.squares / np.maximum(self.count, 1))
        least = 1e-9 * np.maximum(1, np.abs(self.mean))
        return np.where(spread > least, spread, 1.0)

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Missing values stay missing."""
        return np.clip((values - self.mean) / self.deviation, -FARTHEST, FARTHEST)
