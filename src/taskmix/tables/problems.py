"""What is wrong with a table, in one line that names file, column and row."""

from __future__ import annotations


class TableError(ValueError):
    """A table, or what was asked of it, that cannot be used; the message says where and why."""


def problem(where: str, what: str, column: str | None = None, row: int | None = None) -> TableError:
    """One line; rows count from 1, the heading not included.

    >>> str(problem("a.csv", "'warm' is not a number.", column="temp", row=3))
    "a.csv, column 'temp', row 3: 'warm' is not a number."
    """
    place = [where]
    if column is not None:
        place.append(f"column {column!r}")
    if row is not None:
        place.append(f"row {row}")
    return TableError(f"{', '.join(place)}: {' '.join(what.split())}")


def shown(value: object) -> str:
    """A value as it may stand in an error: short, and on one line."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
