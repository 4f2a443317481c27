"""Columns as a user names them: as they stand in the table, or made of these.

``name`` is a column. ``name:day`` is the part of a moment, ``a/b`` a ratio, ``log(a)`` and
``log1p(a)`` are logarithms. A column whose own name looks like that is taken as it is.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping
from typing import Literal

import polars as pl

from taskmix.names import unknown
from taskmix.tables.kinds import Kind
from taskmix.tables.problems import problem

PARTS = {
    "hour": "%Y-%m-%d %H",
    "day": "%Y-%m-%d",
    "week": "%G-W%V",
    "month": "%Y-%m",
    "year": "%Y",
}
Made = Literal["plain", "part", "ratio", "log", "log1p"]


@dataclasses.dataclass(frozen=True)
class Column:
    """What a user asked for, and the columns that it is made of."""

    name: str
    made: Made
    sources: tuple[str, ...]
    part: str = ""

    def kind(self, kinds: Mapping[str, Kind]) -> Kind:
        if self.made == "plain":
            return kinds[self.sources[0]]
        return Kind("text") if self.made == "part" else Kind("number")

    def check(self, kinds: Mapping[str, Kind], where: str) -> None:
        """Whether what it is made of is of the right kind."""
        wanted = {"part": "moment", "plain": ""}.get(self.made, "number")
        for source in self.sources:
            if wanted and kinds[source].name != wanted:
                asked = {"moment": "dates", "number": "numbers"}[wanted]
                raise problem(where, f"{self.name} needs {asked}, and these are none.", source)

    def of(self, read: Mapping[str, pl.Series]) -> pl.Series:
        """Its values, from those of the columns it is made of; not finite is missing."""
        one = read[self.sources[0]]
        if self.made == "plain":
            return one
        if self.made == "part":
            return one.dt.strftime(PARTS[self.part])
        if self.made == "ratio":
            found = one / read[self.sources[1]]
        else:
            found = (one if self.made == "log" else one + 1).log()
        return found.replace([float("inf"), float("-inf"), float("nan")], None)


def column(asked: str, names: Collection[str], where: str) -> Column:
    """The column that a user means, or an error that names those there are."""
    if f"{asked}#2" in names:
        raise problem(where, "two columns have this name; rename one of them.", asked)
    if asked in names:
        return Column(asked, "plain", (asked,))
    found = re.fullmatch(r"(.+):(\w+)", asked)
    if found and found[2] in PARTS and found[1] in names:
        return Column(asked, "part", (found[1],), found[2])
    found = re.fullmatch(r"(log|log1p)\((.+)\)", asked)
    if found and found[2] in names:
        return Column(asked, "log" if found[1] == "log" else "log1p", (found[2],))
    above, _, below = asked.partition("/")
    if above in names and below in names:
        return Column(asked, "ratio", (above, below))
    raise problem(where, str(unknown("column", asked, names)))
