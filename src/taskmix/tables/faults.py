"""Which row of a CSV file breaks its form."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any

from taskmix.tables.problems import TableError, problem

GZIP = b"\x1f\x8b"
"""What packed files begin with."""


def at_fault(path: Path, columns: int, separator: str) -> TableError | None:
    """The row of a CSV file that breaks its form, if there is one."""
    row = 0
    with opened(path) as file:
        reader = csv.reader(file, delimiter=separator, strict=True)
        try:
            for row, cells in enumerate(reader):
                if len(cells) > columns:
                    what = f"it has {len(cells)} values, the heading {columns} names."
                    return problem(str(path), what, row=row)
        except csv.Error:
            what = "a quotation mark in it is not closed, or stands within a value."
            return problem(str(path), what, row=row + 1)
    return None


def opened(path: Path) -> Any:
    """The text of a CSV file, packed or not."""
    with path.open("rb") as raw:
        opener: Any = gzip.open if raw.read(2) == GZIP else open
    return opener(path, "rt", encoding="utf-8-sig", errors="replace", newline="")
