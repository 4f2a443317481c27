"""What may be given to a table learner."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

LEAST = {"support": 1, "batch": 1, "updates": 1, "seed": 0}
"""Of whole numbers."""


def check(params: Mapping[str, Any]) -> None:
    """A ``ValueError`` that names the first parameter that cannot be."""
    for name, least in LEAST.items():
        value = params[name]
        if value is not None and not _whole(value, least):
            raise ValueError(f"{name} is {value!r}; it must be a whole number from {least} on.")
    hidden = params["hidden"]
    if not isinstance(hidden, tuple | list) or not all(_whole(units, 1) for units in hidden):
        raise ValueError(f"hidden is {hidden!r}; it must be whole numbers, such as (64, 64).")
    kind = params["kind"]
    if kind not in (None, "regression", "classification"):
        raise ValueError(
            f"kind is {kind!r}; it must be regression, classification, or None to guess."
        )
    for name in ("target", "split"):
        if not isinstance(params[name], str):
            raise ValueError(f"{name} is {params[name]!r}; it must be a column's name.")


def plain(value: Any) -> Any:
    """Numbers and lists of other libraries as JSON has them.

    >>> import numpy as np
    >>> plain(np.int64(3)), plain(np.array(["a", "b"]))
    (3, ['a', 'b'])
    """
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is no part of JSON")


def _whole(value: Any, least: int) -> bool:
    """NumPy's whole numbers are, too: a search over parameters gives these."""
    return isinstance(value, numbers.Integral) and int(value) >= least
