"""The estimator: no look at the future, exact resume, scikit-learn's habits, live data."""

import logging

import numpy as np
import polars as pl
import pytest
import sklearn.base
from tests.tables.conftest import rows

import taskmix
from taskmix.estimator import NotFittedError, TableLearner

pytestmark = pytest.mark.usefixtures("quick")


def learner(**params):
    given = {"inputs": ["a", "b"], "support": 2, "batch": 4, **params}
    return TableLearner("task", "y", time="when", **given)


def predictions(frame, **params):
    return learner(**params).fit_online(frame, rivals=False).predictions


def leaves(one):
    import jax

    return [np.asarray(leaf) for leaf in jax.tree.leaves(one.model_.engine.state)]


@pytest.mark.parametrize("split", ["first", "random"])
def test_the_future_changes_no_bit_of_what_was_said_before(frame, split):
    later = pl.col("when") >= 4 * 6
    spoiled = frame.with_columns(
        a=pl.when(later).then(pl.col("a") * 50 + 7).otherwise("a"),
        b=pl.when(later).then(None).otherwise("b"),
        y=pl.when(later).then(-100 * pl.col("y")).otherwise("y"),
    )
    before = predictions(frame, split=split).filter(pl.col("row") <= 24)
    after = predictions(spoiled, split=split).filter(pl.col("row") <= 24)
    assert before.equals(after)


def test_the_queries_of_a_wave_change_no_bit_of_what_is_said_of_it(frame):
    asked = (pl.col("when") < 24) & (pl.col("when") % 6 >= 2)
    spoiled = frame.with_columns(y=pl.when(asked).then(pl.col("y") + 9).otherwise("y"))
    before, after = (
        predictions(one).filter(pl.col("row") <= 24).drop("target") for one in (frame, spoiled)
    )
    assert before.equals(after)


def test_the_past_is_learned_from(frame):
    spoiled = frame.with_columns(
        y=pl.when(pl.col("when") < 24).then(-5 * pl.col("y")).otherwise("y")
    )
    before, after = (predictions(one).filter(pl.col("row") > 24) for one in (frame, spoiled))
    assert not np.allclose(before["mean"], after["mean"])


def test_tasks_that_overlap_in_time_teach_each_other_nothing():
    """All tasks go on at once: the first must not be known when the last is predicted."""
    frame = rows().with_columns(when=pl.col("when") % 6)
    first = pl.col("task") == "t0"
    spoiled = frame.with_columns(y=pl.when(first).then(-5 * pl.col("y")).otherwise("y"))
    one, other = (predictions(table).filter(~first)["mean"] for table in (frame, spoiled))
    shift = (one - other).to_numpy()
    # They share the units of the first support sets, and nothing else.
    apart = [
        predictions(table.filter(pl.col("when") < 6)).filter(~first)["mean"].to_numpy()
        for table in (frame, spoiled)
    ]
    np.testing.assert_array_equal(shift, apart[0] - apart[1])


def test_rows_are_told_apart_by_their_number_wherever_they_stand(frame):
    mixed = frame.sample(fraction=1.0, shuffle=True, seed=1)
    plain = predictions(frame)
    found = predictions(mixed).with_columns(row=mixed["when"].gather(predictions(mixed)["row"] - 1))
    np.testing.assert_array_equal(plain["row"] - 1, found["row"])
    np.testing.assert_array_equal(plain["mean"], found["mean"])


def test_random_support_depends_on_seed_and_task_only(frame):
    both = predictions(frame, split="random"), predictions(frame[24:], split="random")
    later = both[0].filter(pl.col("row") > 24)["row"] - 24
    np.testing.assert_array_equal(later, both[1]["row"])
    other = predictions(frame, split="random", seed=1)
    assert not np.array_equal(both[0]["row"], other["row"])


def test_a_column_may_say_which_rows_are_known(frame):
    told = frame.with_columns(known=pl.col("when") % 6 < 2)
    assert predictions(told, split="known")["row"].equals(predictions(frame)["row"])


def test_going_on_after_a_detour_over_the_disk_is_the_same_bit_for_bit(frame, tmp_path):
    straight = learner(inputs=["a", "b", "colour"])
    coloured = frame.with_columns(
        colour=pl.Series(["red", "blue", None, "green"] * 18), b=pl.col("b").round(1)
    )
    straight.partial_fit(coloured[:24])
    straight.save(tmp_path / "model")
    again = taskmix.load(tmp_path / "model")
    again.predict(coloured[:2], coloured[2:6].with_columns(colour=pl.lit("unseen")))
    for one in (straight, again):
        one.partial_fit(coloured[24:])
    assert straight.result_.predictions.equals(again.result_.predictions)
    for mine, theirs in zip(leaves(straight), leaves(again), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_partial_fits_are_one_fit_where_batches_end_alike(frame):
    whole, parts = learner(), learner()
    whole.fit(frame)
    parts.partial_fit(frame[:24]).partial_fit(frame[24:])
    tail = whole.result_.predictions.filter(pl.col("row") > 24)
    np.testing.assert_array_equal(tail["mean"], parts.result_.predictions["mean"])


@pytest.mark.parametrize("what", ["pandas", "pyarrow", "rows", "frames", "parquet", "gz"])
def test_every_kind_of_table_gives_the_same(frame, what, tmp_path):
    if what == "pandas":
        table = frame.to_pandas()
    elif what == "pyarrow":
        table = frame.to_arrow()
    elif what == "rows":
        table = iter(frame.to_dicts())
    elif what == "frames":
        table = frame.iter_slices(17)
    elif what == "parquet":
        table = tmp_path / "table.parquet"
        frame.write_parquet(table)
    else:
        table = tmp_path / "table.csv.gz"
        frame.to_pandas().to_csv(table, index=False)
    np.testing.assert_array_equal(predictions(frame)["mean"], predictions(table)["mean"])


def test_predictions_come_in_the_order_of_the_query(frame):
    fitted = learner().fit(frame)
    known, asked = frame.filter(pl.col("when") % 6 < 2), frame.filter(pl.col("when") % 6 >= 2)
    turned = asked.reverse().drop("y")
    found, back = fitted.predict(known, asked), fitted.predict(known, turned)
    np.testing.assert_allclose(found.mean, back.mean[::-1], rtol=1e-5)
    low, high = found.interval(0.9)
    wide_low, wide_high = found.interval(0.99)
    assert (wide_low < low).all()
    assert (low < found.mean).all()
    assert (found.mean < high).all()
    assert (high < wide_high).all()
    assert found.task[0] == "t0"
    assert found.frame().height == asked.height
    with pytest.raises(ValueError, match="level is 2"):
        found.interval(2.0)


def test_predict_changes_nothing_and_compiles_once_per_size(frame):
    from taskmix.tables import engine

    fitted = learner().fit(frame)
    before = leaves(fitted)
    known, asked = frame.filter(pl.col("when") % 6 < 2), frame.filter(pl.col("when") % 6 >= 2)
    fitted.predict(known, asked)
    compiled = engine._predicted._cache_size()
    many = [table.with_columns(task=pl.col("task") + "x") for table in (known, asked)]
    fitted.predict(pl.concat([known, many[0]]), pl.concat([asked, many[1]]))
    assert engine._predicted._cache_size() == compiled
    for mine, theirs in zip(before, leaves(fitted), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_query_without_a_known_row_is_named(frame):
    fitted = learner().fit(frame)
    with pytest.raises(ValueError, match="row 1: task 'new' has no known row"):
        fitted.predict(frame[:2], frame[:2].with_columns(task=pl.lit("new")))


def test_classes_are_predicted_with_probabilities(frame):
    labelled = frame.with_columns(
        y=pl.when(pl.col("y") > 0).then(pl.lit("up")).otherwise(pl.lit("down"))
    )
    fitted = learner().fit(labelled)
    assert fitted.labels_ == ("down", "up")
    found = fitted.predict(labelled[:2], labelled[2:6])
    assert set(found.mean) <= {"down", "up"}
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1, rtol=1e-5)
    with pytest.raises(ValueError, match="no interval"):
        found.interval()
    assert fitted.result_.coverage is None


def test_scikit_learn_clones_it():
    one = learner(settings={"capacity": 2})
    other = sklearn.base.clone(one)
    assert other is not one
    assert other.get_params() == one.get_params()
    assert not hasattr(other, "model_")
    assert other.set_params(support=3).support == 3
    with pytest.raises(ValueError, match="no parameter 'suport'"):
        other.set_params(suport=3)


def test_every_parameter_is_kept_as_it_was_given():
    given = {"task": ["a", "b"], "inputs": ("x",), "hidden": (3,), "settings": {"worth": 1.0}}
    found = TableLearner(**given).get_params()
    assert all(found[name] is value for name, value in given.items())


def test_predicting_before_fitting_says_so(frame, tmp_path):
    for call in (lambda: learner().predict(frame, frame), lambda: learner().save(tmp_path)):
        with pytest.raises(NotFittedError, match="call fit_online first"):
            call()


def test_what_was_chosen_is_told(frame, caplog):
    caplog.set_level(logging.INFO, "taskmix")
    found = TableLearner("task", "y", inputs=["a"]).fit(frame)
    assert found.chosen_["support"] == 2
    assert found.chosen_["batch"] == 5
    assert "72 rows, 12 tasks; regression, support 2 (first), 5 tasks" in caplog.text


def test_a_setting_that_does_not_exist_is_an_error():
    from taskmix.tables.defaults import learner_for

    with pytest.raises(ValueError, match="capacities"):
        learner_for(3, 0, 1, (4,), {"capacities": 3})


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"support": 0}, "support is 0"),
        ({"kind": "ranking"}, "kind is 'ranking'"),
        ({"inputs": ["y"]}, "cannot be an input"),
        ({"inputs": []}, "no input"),
        ({"split": "half"}, "no column 'half'"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_what_cannot_be_is_refused(frame, params, words):
    with pytest.raises(ValueError, match=words):
        learner(**params).fit_online(frame)


def test_a_saved_learner_that_was_damaged_is_refused(frame, tmp_path):
    learner().fit(frame).save(tmp_path)
    content = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(content[:-1] + b"x")
    with pytest.raises(ValueError, match="wrong checksum"):
        taskmix.load(tmp_path)


def test_results_are_written(frame, tmp_path):
    result = learner().fit_online(frame)
    result.save(tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"result.json", "tasks.csv", "predictions.csv", "support.csv", "result.png"}
    assert set(result.baselines) >= {"support mean", "ridge per task", "global ridge"}
    assert f"taskmix         {result.error}" in str(result)


def test_a_new_text_is_the_same_category_in_support_and_query():
    """Else the learner would be told of differences that are none."""
    frame = rows().with_columns(colour=pl.lit("red"))
    fitted = learner(inputs=["a", "colour"]).fit(frame)
    known = frame[:3].with_columns(colour=pl.Series(["blue", "red", "green"]))
    asked = frame[3:5].with_columns(colour=pl.Series(["green", "blue"]))
    seen = []

    def watched(wave):
        seen.extend(wave)
        return original(wave)

    original = fitted.model_.sides
    fitted.model_.sides = watched
    fitted.predict(known, asked)
    (task,) = seen
    np.testing.assert_array_equal(task.query.x[:, 1], task.support.x[[2, 0], 1])


def test_thousands_of_tasks_of_all_lengths_are_predicted_with_few_shapes(frame):
    from taskmix.tables import engine

    fitted = learner().fit(frame)
    rng = np.random.default_rng(0)
    each = rng.integers(3, 12, 2000)
    names = np.repeat([f"n{number}" for number in range(2000)], each)
    place = np.concatenate([np.arange(count) for count in each])
    a, b = rng.normal(size=(2, len(names)))
    many = pl.DataFrame({"task": names, "a": a, "b": b, "y": a - b, "place": place})
    known = pl.col("place") < 2
    before = engine._predicted._cache_size()
    found = fitted.predict(many.filter(known), many.filter(~known))
    assert len(found.mean) == many.filter(~known).height
    assert engine._predicted._cache_size() - before <= 2
    again = engine._predicted._cache_size()
    fitted.predict(many.filter(known).reverse(), many.filter(~known).reverse())
    assert engine._predicted._cache_size() == again
