"""What is written never takes the place of what it is made of, wherever a person points it to."""

import os
import shutil

import pytest
from tests.hostile.conftest import quietly
from tests.tables.conftest import quick as quick
from tests.tables.conftest import rows

COLUMNS = ("--task", "task", "--target", "y", "--time", "when", "--support", "2")
NO_TEXT = os.fsdecode(b"\xff\xfe")
"""A name that a disk may hold and no text can."""


def content(folder) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def place(tmp_path, quick):
    """A table, under two more names, and the run that learned from it."""
    rows(tasks=5).write_csv(tmp_path / "table.csv")
    os.link(tmp_path / "table.csv", tmp_path / "hard.csv")
    (tmp_path / "soft.csv").symlink_to("table.csv")
    assert quietly("run", "table", tmp_path / "table.csv", *COLUMNS, "--out", tmp_path / "run") == (
        0,
        "",
    )
    return tmp_path


@pytest.mark.parametrize(
    "out",
    [
        "table.csv",
        "hard.csv",
        "soft.csv",
        "run/../table.csv",
        "run/model/model.json",
        "run/new.csv",
    ],
)
def test_predictions_are_not_written_over_the_tables_or_the_model(place, out):
    before = content(place)
    tables = ("--support", place / "table.csv", "--query", place / "table.csv")
    code, said = quietly("predict", place / "run", *tables, "--out", place / out)
    assert (code, said.count("\n")) == (2, 1)
    assert "over or into what is read" in said
    assert content(place) == before


def test_earlier_predictions_are_written_over(place):
    tables = ("--support", place / "table.csv", "--query", place / "table.csv")
    for _ in range(2):
        assert quietly("predict", place / "run", *tables, "--out", place / "said.csv") == (0, "")


@pytest.mark.parametrize("out", ["asked/0.csv", "known/0.csv", "run/labels.csv", "labels.png"])
def test_labels_and_their_sheet_are_not_written_among_the_pictures(tmp_path, out):
    for folder in ("asked", "known", "run"):
        (tmp_path / folder).mkdir()
    folders = ("--support", tmp_path / "known", "--query", tmp_path / "asked")
    code, said = quietly("predict", tmp_path / "run", *folders, "--out", tmp_path / out)
    assert (code, said.count("\n")) == (2, 1)
    assert "over or into what is read" in said or "name of the sheet" in said


@pytest.mark.parametrize("out", ["run", "run/result.json", "table.csv"])
def test_report_takes_the_place_of_pages_only(place, out):
    before = content(place)
    code, said = quietly("report", place / "run", "--out", place / out)
    assert (code, said.count("\n")) == (2, 1)
    assert "is a folder" in said or "is there and no page" in said
    assert content(place) == before
    for _ in range(2):
        assert quietly("report", place / "run", "--out", place / "page.html") == (0, "")


def test_paths_that_are_no_text_are_refused_or_written_to(place):
    shutil.copy(place / "table.csv", place / f"{NO_TEXT}.csv")
    code, said = quietly("run", "table", place / f"{NO_TEXT}.csv", *COLUMNS, "--out", place / "new")
    assert (code, said.count("\n")) == (2, 1)
    assert "bytes that are no text" in said
    out = place / NO_TEXT
    assert quietly("run", "table", place / "table.csv", *COLUMNS, "--out", out) == (0, "")
    assert quietly("resume", out) == (0, "")
    assert quietly("report", out) == (0, "")
    tables = ("--support", place / "table.csv", "--query", place / "table.csv")
    assert quietly("predict", out, *tables, "--out", place / f"{NO_TEXT}-said.csv") == (0, "")
    assert (place / f"{NO_TEXT}-said.csv").read_bytes().startswith(b"task,")
