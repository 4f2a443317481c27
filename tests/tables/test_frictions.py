"""What data scientists hand in without thinking: it works, or one line says what to do."""

import json

import jaxtyping
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.tables.conftest import rows

import taskmix
from taskmix.estimator import TableLearner
from taskmix.tables.problems import TableError
from taskmix.tables.reading import table_of
from taskmix.tables.schema import schema_of


def learner(**params):
    usual = {"task": "task", "target": "y", "time": "when", "inputs": ["a", "b"]}
    return TableLearner(**{**usual, "support": 2, "batch": 4, **params})


def read(source):
    table = table_of(source)
    return pl.concat([piece.frame for piece in table.pieces(table.names)])


@pytest.fixture
def unchecked(monkeypatch):
    """Without the tests' own checks of types: annotations name less than what is taken."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.mark.parametrize("levels", [["task"], ["task", "when"], ["when"]])
def test_a_named_index_of_pandas_is_a_column(levels):
    frame = read(rows().to_pandas().set_index(levels))
    assert frame.select(rows().columns).equals(rows())


def test_an_index_without_a_name_is_none():
    frame = rows().to_pandas()
    frame.index = [f"row {number}" for number in range(len(frame))]
    assert read(frame).equals(rows())


def test_batches_of_arrow_are_frames_one_or_as_they_come():
    table = rows().to_arrow()
    assert read(table.to_batches()[0]).equals(rows())
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(7))
    assert read(reader).equals(rows())


@pytest.mark.parametrize("source", [np.zeros((3, 2)), pd.Series([1.0, 2.0])])
def test_numbers_without_names_are_no_table(source):
    with pytest.raises(TableError, match=f"A {type(source).__name__} is no table; give the path"):
        table_of(source)


def test_a_column_that_cannot_be_read_is_named():
    frame = rows().to_pandas().assign(b=[1, "x"] * 36)
    with pytest.raises(TableError, match=r"^the table, column 'b': its values cannot be read \("):
        table_of(frame)


@pytest.mark.parametrize("text", ["1,5", "12,345.5", "1,234", "1.234,5", "7 %", "7.5%", "-0,25"])
@pytest.mark.parametrize("part", ["input", "target", "logarithm"])
def test_numbers_written_otherwise_are_no_labels(text, part):
    frame = pl.DataFrame({"task": ["u", "v"], "a": [text, text], "b": [1.0, 2.0]})
    target, inputs = {
        "input": ("b", ["a"]),
        "target": ("a", ["b"]),
        "logarithm": ("log(a)", ["b"]),
    }[part]
    with pytest.raises(TableError, match=r"^the table, column 'a': '.*' reads like a number"):
        schema_of(table_of(frame), "task", target, None, inputs, None)


@pytest.mark.parametrize("text", ["1.2.3", "192.168.0.1", "1,2,3", "a,b", "10-20", "M,5", "3 km"])
def test_labels_that_hold_digits_stay_labels(text):
    frame = pl.DataFrame({"task": ["1,5", "2,5"], "a": [text, text], "b": [1.0, 2.0]})
    schema = schema_of(table_of(frame), "task", "b", None, ["a"], None)
    assert schema.kinds["a"].name == "text"


@pytest.mark.parametrize("kind", ["bzip2", "xz", "zstd", "zip", "Feather", "JSON"])
def test_a_file_of_another_kind_is_called_by_its_name(kind, tmp_path):
    path, frame = tmp_path / "table.csv", rows().to_pandas()
    if kind == "Feather":
        frame.to_feather(path)
    elif kind == "JSON":
        frame.to_json(path)
    elif kind == "zstd":
        rows().write_csv(path, compression="zstd", check_extension=False)
    else:
        frame.to_csv(path, compression={"bzip2": "bz2"}.get(kind, kind))
    with pytest.raises(TableError, match=f"it is a file of {kind}.*; give a CSV file, plain or"):
        table_of(path)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("inputs", ["longer", ("longer",), pd.Index(["longer"])])
def test_inputs_are_any_list_of_names_or_one_name(inputs):
    table = table_of(rows().rename({"a": "longer"}))
    schema = schema_of(table, "task", "y", None, inputs, None)
    assert [column.name for column in schema.inputs] == ["longer"]


@pytest.mark.usefixtures("quick", "unchecked")
def test_whole_numbers_of_numpy_are_taken_and_saved(tmp_path):
    """A search over parameters gives these."""
    given = {"support": np.int64(2), "batch": np.int32(4), "seed": np.int64(1)}
    fitted = learner(**given, hidden=(np.int64(8),), inputs=pd.Index(["a", "b"])).fit(rows())
    other = learner(seed=1, hidden=(8,)).fit(rows())
    assert fitted.result_.error == other.result_.error
    fitted.save(tmp_path)
    loaded = taskmix.load(tmp_path)
    assert json.dumps(loaded.get_params()) == json.dumps({**other.get_params(), "hidden": [8]})


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("hidden", [8, (0,), ("8",), None])
def test_hidden_layers_that_cannot_be_are_named(hidden):
    with pytest.raises(ValueError, match=r"^hidden is "):
        learner(hidden=hidden).fit(rows())


@pytest.mark.usefixtures("quick")
def test_errors_of_predictions_say_which_of_the_two_tables():
    fitted = learner().fit(rows())
    known, asked = rows()[:2], rows()[2:6]
    with pytest.raises(TableError, match=r"^the support table: there are no rows"):
        fitted.predict(known[:0], asked)
    with pytest.raises(TableError, match=r"^the query table: there are no rows"):
        fitted.predict(known, asked[:0])
    with pytest.raises(TableError, match=r"^the query table, column 'b': there is no such"):
        fitted.predict(known, asked.drop("b"))


@pytest.mark.usefixtures("quick", "unchecked")
def test_a_grid_search_with_a_score_of_ones_own_chooses():
    from sklearn.model_selection import GridSearchCV

    frame = rows().to_pandas()
    search = GridSearchCV(
        learner(),
        {"support": np.array([2, 3])},
        cv=[(np.arange(48), np.arange(48, 72))],
        scoring=lambda fitted, table, y=None: -fitted.partial_fit(table).result_.error.value,
        error_score="raise",
    ).fit(frame)
    assert search.best_params_["support"] in (2, 3)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
