"""From columns to numbers, by rules that can be worked out by hand."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmix.tables.blocks import Block, Vocabulary
from taskmix.tables.columns import column
from taskmix.tables.encoding import Encoding, Feature, encoding_for
from taskmix.tables.grouping import LeftOut, RowTask, Side, Splitter, grouped, waves
from taskmix.tables.kinds import Kind, kind_of, read_as
from taskmix.tables.packing import BatchShape, Sides, batches, bucket, questions
from taskmix.tables.scaling import Scale


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", " 2.5", "?", "-3e2"], Kind("number")),
        (["1", "2", "3", "4", "x"], Kind("number")),
        (["a", "b2"], Kind("text")),
        (["1/31/11", "12/1/12"], Kind("moment", "%m/%d/%y")),
        (["31/1/11", "1/12/12"], Kind("moment", "%d/%m/%y")),
        (["2016-10-04 07:59:42", "NA"], Kind("moment", "%Y-%m-%d %H:%M:%S%.f")),
        ([None, None], Kind("number")),
    ],
)
def test_kind_of_a_column_of_texts(values, kind):
    assert kind_of(pl.Series("c", values, dtype=pl.String), "t") == kind


def test_values_that_are_missing_or_endless_are_null():
    found = read_as(Kind("number"), pl.Series("c", ["1", "n/a", "inf", "-1e99", " 2 "]), "t", 1)
    assert found.to_list() == [1.0, None, None, None, 2.0]


@pytest.mark.parametrize(
    ("asked", "values"),
    [
        ("log(a)", [0.0, None]),
        ("log1p(a)", [np.log(2.0), 0.0]),
        ("a/b", [0.5, None]),
        ("t:month", ["2024-02", "2023-12"]),
        ("t:week", ["2024-W09", "2023-W52"]),
    ],
)
def test_columns_made_of_others(asked, values):
    read = {
        "a": pl.Series([1.0, 0.0]),
        "b": pl.Series([2.0, 0.0]),
        "t": pl.Series(["2024-02-29", "2023-12-31"]).str.to_datetime("%Y-%m-%d"),
    }
    found = column(asked, list(read), "t").of(read).to_list()
    assert found == pytest.approx(values) if isinstance(values[0], float) else found == values


def test_a_column_that_is_called_like_a_formula_is_itself():
    assert column("a/b", ["a", "b", "a/b"], "t").made == "plain"


def test_an_unknown_column_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'target'"):
        column("targte", ["task", "target"], "t")


@given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=9), min_size=1, max_size=5))
def test_a_running_scale_is_that_of_all_rows_together(pieces):
    scale = Scale.begin(1)
    for piece in pieces:
        scale = scale.observed(np.array(piece)[:, None])
    every = np.concatenate(pieces)
    assert scale.mean[0] == pytest.approx(every.mean(), abs=1e-9)
    assert scale.squares[0] == pytest.approx(every.var() * len(every), rel=1e-9, abs=1e-6)


def test_one_typing_error_does_not_become_the_unit():
    values = np.random.default_rng(0).normal(size=(100, 1))
    scale = Scale.begin(1).carefully(values).carefully(np.array([[1e9]]))
    assert scale.deviation[0] < 4


def test_a_level_that_has_changed_is_caught_up_with():
    rng = np.random.default_rng(0)
    scale = Scale.begin(1).carefully(rng.normal(size=(100, 1)))
    for _ in range(40):
        scale = scale.carefully(1000 + rng.normal(size=(10, 1)))
    assert abs(scale.scaled(np.array([[1000.0]]))[0, 0]) < 2


def test_an_hour_goes_around_and_is_a_number():
    hours = np.arange(24.0)[:, None]
    encoding = encoding_for(hours, ["number"])
    assert [feature.kind for feature in encoding.features] == ["number", "circle"]
    encoding.learn(hours)
    found = encoding(np.array([[0.0], [6.0], [23.0], [np.nan]]))
    sines, cosines = found[:, 1:5], found[:, 5:9]
    np.testing.assert_allclose(sines[1], [1, 0, -1, 0], atol=1e-6)
    np.testing.assert_allclose(cosines[0], 1)
    np.testing.assert_allclose(np.hypot(sines[2], cosines[2]), 1, rtol=1e-6)
    assert np.linalg.norm(found[0, 1:9] - found[2, 1:9]) < np.linalg.norm(
        found[0, 1:9] - found[1, 1:9]
    )
    np.testing.assert_array_equal(found[3], [*[0] * 9, 1])


def test_a_category_that_comes_later_gets_a_free_place_and_then_shares_the_last():
    encoding = encoding_for(np.array([[0.0], [1.0]]), ["text"])
    encoding.meet(np.array([[0.0], [1.0]]))
    assert encoding.width == 1 + 5
    for code in (7.0, 8.0, 9.0):
        encoding.meet(np.array([[code]]))
    encoding.learn(np.array([[0.0]]))
    places = encoding(np.array([[0.0], [1.0], [7.0], [8.0], [9.0], [10.0]]))[:, :-1].argmax(axis=1)
    assert places.tolist() == [0, 1, 2, 3, 4, 4]


def test_a_value_that_is_missing_is_the_mean_and_flagged():
    rows = np.array([[1.0, 1.5], [3.0, np.nan]])
    encoding = encoding_for(rows, ["number", "number"])
    encoding.learn(rows)
    np.testing.assert_allclose(encoding(rows), [[-1, 0, 0, 0], [1, 0, 1, 0]])
    np.testing.assert_allclose(encoding(np.array([[np.nan, 1.5]])), [[0, 0, 0, 1]])


def test_codes_come_in_order_of_appearance():
    words = Vocabulary()
    assert words.encode(0, pl.Series(["b", "a", "b"])).tolist() == [0, 1, 0]
    found = words.encode(0, pl.Series(["c", None, "a"]))
    np.testing.assert_array_equal(found, [2, np.nan, 1])


def block(names, times=None):
    count = len(names)
    y = np.zeros(count)
    when = None if times is None else np.array(times, float)
    return Block(np.arange(count), np.array(names, object), when, y, None, np.zeros((count, 1)))


def test_a_task_may_go_on_in_the_next_piece():
    left = LeftOut()
    found = list(grouped([block(["a", "a", "b"]), block(["b", None, "c"])], left))
    assert [(one.tasks[0], len(one.rows)) for one in found] == [("a", 2), ("b", 2), ("c", 1)]
    assert left.rows_without_task == 1


def test_random_rows_are_all_equally_often_known():
    counts = sum(Splitter(2, "random", seed)(block(["a"] * 6)).astype(int) for seed in range(600))
    assert counts.sum() == 1200
    assert counts.min() > 140


def timed(name, begins, ends):
    nothing = Side(np.zeros(1, int), np.zeros((1, 1)), np.zeros(1))
    return RowTask(name, nothing, nothing, begins, ends)


def test_waves_end_where_no_task_goes_on():
    tasks = [timed("a", 0, 3), timed("b", 1, 2), timed("c", 3, 4), timed("d", 5, 6)]
    names = [[task.name for task in wave] for wave in waves(tasks, 1, 9)]
    assert names == [["a", "b", "c"], ["d"]]
    assert [len(wave) for wave in waves(tasks, 1, 2)] == [2, 1, 1]


def sides(name, support, query):
    def numbers(count):
        return np.arange(count, dtype=np.float32)

    return Sides(
        name,
        numbers(support)[:, None],
        numbers(support),
        numbers(query)[:, None],
        numbers(query),
    )


def test_batches_have_one_shape_whatever_comes():
    tasks = [sides("a", 1, 9), sides("b", 7, 2), sides("c", 3, 3)]
    found = list(batches(tasks, BatchShape(2, 3, 4), classes=False))
    assert [one.query.x.shape for one in found] == [(2, 4, 1)] * 2
    assert [one.support.count().tolist() for one in found] == [[1, 3], [3, 0]]
    assert [one.query.count().tolist() for one in found] == [[4, 2], [3, 0]]
    assert len(set(np.asarray(found[0].query.y[0, :, 0]).tolist())) == 4


def test_every_query_row_is_asked_once_however_long_the_query():
    tasks = [sides("a", 1, 9), sides("b", 7, 2)]
    asked = {
        (number, start + place)
        for question in questions(tasks, BatchShape(2, 3, 4), 1, False)
        for number, start, count in question.places
        for place in range(count)
    }
    assert asked == {(0, row) for row in range(9)} | {(1, 0), (1, 1)}


def test_buckets_are_few():
    assert [bucket(count, 3) for count in (1, 3, 4, 6, 7, 10_000)] == [3, 3, 6, 6, 12, 384]


def test_a_moment_without_times_of_day_has_no_circle_for_them():
    days = 86400.0 * np.arange(10)[:, None]
    periods = {feature.period for feature in encoding_for(days, ["moment"]).features}
    assert 86400.0 not in periods
    assert 7 * 86400.0 in periods
    clock = encoding_for(days + 3600, ["moment"])
    assert 86400.0 in {feature.period for feature in clock.features}


def test_features_are_as_wide_as_they_say():
    for feature in (
        Feature(0, "number"),
        Feature(0, "circle", period=7.0, waves=3),
        Feature(0, "category", room=4),
        Feature(0, "flag"),
    ):
        encoding = Encoding([feature], Scale.begin(1))
        assert encoding(np.array([[1.0], [np.nan]])).shape == (2, encoding.width)
