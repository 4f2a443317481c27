"""Half-widths of 95 % intervals. Over tasks and over seeds are different questions.

An interval over tasks says how well the test tasks pin down the error of one trained
state; an interval over seeds says how much another run would differ.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

OVER_TASKS = "95 % over tasks (normal)"
OVER_SEEDS = "95 % over seeds (Student t)"


def over_tasks(values: Sequence[float] | np.ndarray) -> float:
    """1.96 std / sqrt(n) with the population standard deviation, the convention of few-shot tables.

    >>> over_tasks([1.0, 3.0])
    1.3859292911256331
    """
    values = np.asarray(values, dtype=float)
    if values.size == 0:
        raise ValueError("There are no tasks; an interval over tasks needs at least one.")
    return float(1.96 * values.std() / np.sqrt(values.size))


def over_seeds(values: Sequence[float] | np.ndarray) -> float | None:
    """t(0.975, n - 1) s / sqrt(n) with the sample standard deviation s.

    One seed says nothing about another, so its interval is None (``null`` in JSON), never 0.
    """
    values = np.asarray(values, dtype=float)
    if values.size == 0:
        raise ValueError("There are no seeds; an interval over seeds needs at least one.")
    if values.size == 1:
        return None
    quantile = stdtrit(values.size - 1, 0.975)
    return float(quantile * values.std(ddof=1) / np.sqrt(values.size))
