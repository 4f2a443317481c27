"""What a column holds: numbers, moments or texts. Decided once, then every value is held to it."""

from __future__ import annotations

import dataclasses
from typing import Literal

import polars as pl

from taskmix.tables.problems import problem, shown

MISSING = ("", "?", "na", "n/a", "nan", "null", "none", "nat", "-")
"""What stands for no value, in any case."""
MOSTLY = 0.8
"""Share of values that have to be numbers, or moments, for the others to be mistakes."""
LARGEST = 1e30
"""Numbers that are larger are missing, as infinite ones are: no measurement is, and their squares
are not numbers any more."""
NEARLY = r"^[+-]?(\d+,\d+|\d{1,3}(,\d{3})+(\.\d+)?|\d{1,3}([. ]\d{3})+,\d+|\d+(\.\d+)?\s?%)$"
"""Numbers with a comma, or in percent: not read as such, since 1,234 means two things."""
FORMATS = (
    *("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M"),
    *("%Y-%m-%d", "%Y/%m/%d", "%Y/%m/%d %H:%M:%S", "%Y/%m/%d %H:%M", "%m/%d/%y", "%m/%d/%Y"),
    *("%m/%d/%Y %H:%M:%S", "%m/%d/%Y %H:%M", "%m/%d/%y %H:%M", "%d/%m/%y", "%d/%m/%Y"),
    *("%d/%m/%Y %H:%M:%S", "%d/%m/%Y %H:%M", "%d.%m.%Y", "%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M"),
)
"""Tried in this order; where month and day could be either, the month comes first."""


Holds = Literal["number", "moment", "text"]


@dataclasses.dataclass(frozen=True)
class Kind:
    """What every value of a column is read as."""

    name: Holds
    format: str = ""
    """Of moments that are written as text."""


def kind_of(values: pl.Series, where: str) -> Kind:
    """From the first rows of a column; a column without any value is one of numbers."""
    check_type(values, where)
    if values.dtype.is_numeric() or values.dtype == pl.Null:
        return Kind("number")
    if values.dtype in (pl.Date, pl.Datetime):
        return Kind("moment")
    texts = _texts(values).drop_nulls()
    if values.dtype == pl.Boolean:
        return Kind("text")
    least = MOSTLY * len(texts)
    if texts.cast(pl.Float64, strict=False).count() >= least:
        return Kind("number")
    if texts.str.contains(r"\d").sum() < least:
        return Kind("text")
    counts = {form: _moments(texts, form).count() for form in FORMATS}
    form = max(FORMATS, key=lambda form: counts[form])
    if counts[form] >= least:
        return Kind("moment", form)
    _check_one_format(_texts(values), form, least, where)
    return Kind("text")


def too_long(values: pl.Series) -> pl.Series:
    """Which whole numbers have so many digits that, as Float64, they are those beside them."""
    return (values.cast(pl.Float64, strict=False).abs() >= 2**53).fill_null(False)


def read_as(kind: Kind, values: pl.Series, where: str, first: int) -> pl.Series:
    """Numbers as Float64 (endless ones missing), moments, or texts; null where there is none.

    A value of another kind is an error that names its row.
    """
    check_type(values, where)
    if kind.name == "number":
        numeric = values.dtype.is_numeric() or values.dtype == pl.Null
        texts = values if numeric else _texts(values)
        found = texts.cast(pl.Float64, strict=False)
        _check(texts, found, "number", where, first, values.name)
        return found.set((~(found.abs() <= LARGEST)).fill_null(True), None)
    if kind.name == "moment":
        if values.dtype in (pl.Date, pl.Datetime):
            naive = values.cast(pl.Datetime("us"))
            return naive
        texts = _texts(values)
        found = _moments(texts, kind.format or FORMATS[0])
        _check(texts, found, f"date like {kind.format}", where, first, values.name)
        return found
    return _texts(values)


def check_written(kind: Kind, values: pl.Series, where: str) -> None:
    """An error if most texts of a column are numbers to a person: as labels they say nothing."""
    if kind.name != "text":
        return
    texts = _texts(values).drop_nulls()
    nearly = texts.str.contains(NEARLY)
    numbers = nearly | texts.cast(pl.Float64, strict=False).is_not_null()
    if nearly.any() and numbers.sum() >= MOSTLY * len(texts):
        value = shown(texts[int(nearly.arg_true()[0])])
        what = f"{value} reads like a number, but is written as a text; write numbers like 1234.5."
        raise problem(where, what, values.name)


def check_type(values: pl.Series, where: str) -> None:
    """An error that names the column if its values are neither numbers, moments nor texts."""
    plain = (pl.String, pl.Categorical, pl.Enum, pl.Boolean, pl.Null, pl.Date, pl.Datetime)
    if not values.dtype.is_numeric() and values.dtype.base_type() not in plain:
        what = f"its values are of type {values.dtype}; use numbers, texts or dates."
        raise problem(where, what, values.name)


def as_text(values: pl.Series) -> pl.Series:
    """Whole numbers without a point, moments at midnight as dates: value by value.

    >>> as_text(pl.Series([1.0, 2.5, 1e30, None])).to_list()
    ['1', '2.5', '1e+30', None]
    """
    one = pl.col("value")
    if values.dtype == pl.Float64:
        whole = (one % 1 == 0) & (one.abs() < 2**53)
        short = one.cast(pl.Int64, strict=False).cast(pl.String)
    elif values.dtype == pl.Datetime:
        whole, short = one.dt.truncate("1d") == one, one.dt.strftime("%Y-%m-%d")
    else:
        return values.cast(pl.String)
    written = pl.when(whole).then(short).otherwise(one.cast(pl.String))
    return values.alias("value").to_frame().select(written)[:, 0]


def _texts(values: pl.Series) -> pl.Series:
    texts = values.cast(pl.String, strict=False).str.strip_chars()
    missing = texts.str.to_lowercase().is_in(MISSING)
    return texts.set(missing.fill_null(True), None)


def _moments(texts: pl.Series, form: str) -> pl.Series:
    """Null where the text has another form; the year 31 is none of a table, but a day."""
    if "%H" in form:
        found = texts.str.to_datetime(form, strict=False, time_unit="us")
    else:
        found = texts.str.to_date(form, strict=False).cast(pl.Datetime("us"))
    return found.set((~found.dt.year().is_between(1000, 9999)).fill_null(True), None)


def _check_one_format(texts: pl.Series, form: str, least: float, where: str) -> None:
    """An error if most are moments, but in several formats: as texts they have no order."""
    most = _moments(texts, form).is_not_null()
    other = ~most
    for another in FORMATS:
        other &= _moments(texts, another).is_null()
    strange = (texts.is_not_null() & ~other & ~most).arg_true()
    if len(texts) - int(other.sum()) >= max(least, 1) and len(strange):
        row = int(strange[0])
        what = f"{shown(texts[row])} is not a date like {form}, as most are; write all alike."
        raise problem(where, what, texts.name, 1 + row)


def _check(
    before: pl.Series, after: pl.Series, what: str, where: str, first: int, column: str
) -> None:
    bad = (before.is_not_null() & after.is_null()).arg_true()
    if len(bad):
        value = before[bad[0]]
        raise problem(
            where,
            f"{shown(value)} is not a {what}, as the values before it are; correct it, or leave "
            f"it empty if it is not known.",
            column,
            first + int(bad[0]),
        )
