"""Frames that no one should give, of every library: a result, or one line about what is wrong."""

import datetime
import decimal
import math

import narwhals as nw
import numpy as np
import polars as pl
import polars.selectors as cs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tables.conftest import quick, rows  # noqa: F401

from taskmix.estimator import TableLearner

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")

ROWS = 24
NAMES = ("task", "when", "a", "b", "y")
VALUES = (
    *(None, True, 0, 1, -1, 2**31, 2**63 - 1, 0.5, math.nan, math.inf, -math.inf, 1e30, 1e300),
    *("", " ", "x", "1", "nan", "\x00", "\x1b[2J", "\u202e", "$\\frac{$", "[/red]", "a" * 300),
    *(b"\xff", datetime.date(1, 1, 1), datetime.datetime(9999, 12, 31), datetime.time(1)),
    *(datetime.timedelta(days=10**6), decimal.Decimal("1e30"), [1], [], {"a": 1}),
)


def columns() -> dict[str, list]:
    return {name: rows(tasks=4)[name].to_list() for name in NAMES}


@st.composite
def spoiled(draw) -> dict[str, list]:
    """Good columns, of which one has other values, another length or another name, or is gone."""
    table = columns()
    name, kind = draw(st.sampled_from(NAMES)), draw(st.sampled_from(["one", "all", "few", "name"]))
    if kind == "one":
        table[name][draw(st.integers(0, ROWS - 1))] = draw(st.sampled_from(VALUES))
    elif kind == "all":
        table[name] = [draw(st.sampled_from(VALUES))] * ROWS
    elif kind == "few":
        count = draw(st.integers(0, 3))
        table = {one: values[:count] for one, values in table.items()}
    else:
        table[draw(st.sampled_from(["", "Y", "\x1b", "a\nb", "shop"]))] = table.pop(name)
    return table


def lazy_and_broken(table: dict) -> pl.LazyFrame:
    """It fails when it is looked at."""
    return pl.LazyFrame(table).with_columns(pl.lit("x").cast(pl.Int64).alias("a"))


KINDS = {
    "mapping": dict,
    "polars": lambda table: pl.DataFrame(table, strict=False),
    "lazy": lambda table: pl.LazyFrame(table, strict=False),
    "pandas": pd.DataFrame,
    "pyarrow": pa.table,
    "narwhals": lambda table: nw.from_native(pl.DataFrame(table, strict=False)),
    "rows": lambda table: (
        dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)
    ),
}


def learned(source):
    learner = TableLearner("task", "y", time="when", inputs=("a", "b"), support=2, batch=4)
    return learner.fit_online(source, rivals=False)


def refusal_of(source) -> str | None:
    """What is wrong with a table; None if it was learned from and all that came of it is finite."""
    try:
        result = learned(source)
    except ValueError as refusal:
        return str(refusal)
    assert np.isfinite(float(result.error))
    for column in result.predictions.select(cs.float()):
        assert np.isfinite(column.to_numpy()).all(), column.name
    return None


@pytest.mark.usefixtures("quick")
@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(spoiled(), st.sampled_from(sorted(KINDS)))
def test_frame_is_learned_from_or_refused_in_one_line(table, kind):
    try:
        frame = KINDS[kind](table)
    except Exception:
        # There is no such frame; the library itself refuses it.
        return
    said = refusal_of(frame)
    assert said is None or (said.strip() and "\n" not in said)


@pytest.mark.usefixtures("quick")
def test_the_same_table_gives_the_same_result_in_every_library():
    found = {kind: learned(make(columns())).predictions for kind, make in KINDS.items()}
    for kind, predictions in found.items():
        assert predictions.equals(found["polars"]), kind


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "source",
    [
        None,
        3,
        "",
        pytest.param(object(), id="object"),
        [],
        [3],
        [None],
        {},
        {"task": 3},
        {"task": []},
        np.zeros(3),
        {3: [1]},
    ],
    ids=repr,
)
def test_what_is_no_table_is_refused_in_one_line(source):
    with pytest.raises(ValueError, match=r"\S") as refusal:
        learned(source)
    assert "\n" not in str(refusal.value)


@pytest.mark.usefixtures("quick")
def test_lazy_frame_that_cannot_be_made_is_refused_in_one_line():
    with pytest.raises(ValueError, match="The frame cannot be read") as refusal:
        learned(lazy_and_broken(columns()))
    assert "\n" not in str(refusal.value)


def test_frames_as_they_come_must_agree():
    good = pl.DataFrame(columns())
    with pytest.raises(ValueError, match=r"rows and frames|no such column|frame 2"):
        learned(iter([good, good.drop("a")]))
    with pytest.raises(ValueError, match=r"rows"):
        learned(iter([*good.head(2).to_dicts(), good]))
