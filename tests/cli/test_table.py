"""`taskmix run table` and `taskmix predict`, as a user calls them."""

import json

import polars as pl
import pytest
from tests.tables.conftest import quick as quick
from tests.tables.conftest import rows

from taskmix.cli import main

pytestmark = pytest.mark.usefixtures("quick")
COLUMNS = ["--task", "task", "--target", "y", "--time", "when", "--inputs", "a", "b"]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    rows().write_csv(path)
    return path


def test_a_table_is_run_and_then_predicted_from(table, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["run", "table", str(table), *COLUMNS, "--support", "2", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "72 rows, 12 tasks; regression" in shown
    assert "12 of 12 tasks: error so far" in shown
    assert "ridge per task" in shown
    assert json.loads((out / "result.json").read_text())["tasks"] == 12
    known, asked = tmp_path / "known.csv", tmp_path / "asked.csv"
    rows()[:2].write_csv(known)
    rows()[2:6].drop("y").write_csv(asked)
    said = tmp_path / "said.csv"
    command = ["predict", str(out), "--support", str(known), "--query", str(asked)]
    assert main([*command, "--out", str(said)]) == 0
    found = pl.read_csv(said)
    assert found.columns == ["task", "mean", "low", "high", "regime", "novelty"]
    assert found.height == 4
    assert (found["low"] < found["mean"]).all()


def test_without_a_file_there_is_an_example(tmp_path, capsys, monkeypatch):
    from taskmix.tables import example

    monkeypatch.setattr(example.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(example.heaters, "__defaults__", (30, 15, None, 0))
    assert main(["run", "table", "--out", str(tmp_path)]) == 0
    assert "made-up heaters" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "columns are given but no table"),
        (["FILE", "--target", "y"], "no task column is given; the table has task, when, a, b, y"),
        (["FILE", "--task", "task", "--target", "z"], "there is no column 'z'"),
        (["none.csv", *COLUMNS], "none.csv: there is no such file"),
    ],
)
def test_what_is_wrong_is_one_line(arguments, words, table, tmp_path, capsys):
    arguments = [str(table) if one == "FILE" else one for one in arguments or COLUMNS]
    assert main(["run", "table", *arguments, "--out", str(tmp_path / "out")]) == 2
    complaint = capsys.readouterr().err
    assert words.lower() in complaint.lower()
    assert complaint.count("\n") == 1


def test_predicting_with_what_is_no_model_is_one_line(table, tmp_path, capsys):
    empty = tmp_path / "empty"
    empty.mkdir()
    command = ["predict", str(empty), "--support", str(table), "--query", str(table)]
    assert main([*command, "--out", str(tmp_path / "said.csv")]) == 2
    assert "holds no table learner" in capsys.readouterr().err
