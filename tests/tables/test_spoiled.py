"""Whatever is wrong with a table: a result, or one line that says what and where."""

import gzip

import numpy as np
import polars as pl
import pytest
from tests.tables.conftest import rows

from taskmix.estimator import TableLearner

pytestmark = pytest.mark.usefixtures("quick")
LINES = rows().write_csv().splitlines()


def text(change=lambda lines: lines, lines=LINES):
    return "\n".join(change(list(lines))) + "\n"


def put(row, column, value):
    """A table with another value in one place; rows count from 1."""
    cells = LINES[row].split(",")
    cells[column] = value
    return text(lambda lines: [*lines[:row], ",".join(cells), *lines[row + 1 :]])


def column_of(name, value):
    """A table with a column set by its row's number."""
    where = LINES[0].split(",").index(name)
    changed = [LINES[0]]
    for number, line in enumerate(LINES[1:], start=1):
        cells = line.split(",")
        cells[where] = str(value(number, cells[where]))
        changed.append(",".join(cells))
    return text(lambda _: changed)


def wide():
    rng = np.random.default_rng(0)
    more = pl.DataFrame({f"c{number}": rng.normal(size=72) for number in range(500)})
    return pl.concat([rows(), more], how="horizontal").write_csv()


WORDS = ("low", "high")
RESULTS = {
    "as it should be": text(),
    "one task only": text(lambda lines: lines[:7]),
    "two rows in all": text(lambda lines: lines[:3]),
    "unsorted times": text(lambda lines: [lines[0], *lines[:0:-1]]),
    "rows of a task apart": text(lambda lines: [lines[0], *lines[1::2], *lines[2::2]]),
    "constant targets": column_of("y", lambda number, y: 3.5),
    "constant inputs": column_of("a", lambda number, a: 1),
    "a missing input": put(5, 2, ""),
    "a question mark as input": put(5, 2, "?"),
    "an input that is missing everywhere": column_of("a", lambda number, a: ""),
    "a missing target": put(5, 4, "NA"),
    "a task whose targets are all missing": column_of("y", lambda n, y: y if n > 6 else ""),
    "a missing task": put(5, 0, ""),
    "a missing time": put(5, 1, ""),
    "an infinite input": put(5, 2, "inf"),
    "an infinite target": put(5, 4, "-inf"),
    "a huge input": put(5, 2, "1e300"),
    "a huge target": put(40, 4, "1e30"),
    "dates as text": column_of("when", lambda number, _: f"2024-03-{1 + number // 6:02} 10:00:00"),
    "dates of another country": column_of("when", lambda n, _: f"{1 + n // 6}.3.2024"),
    "times that are no dates": column_of("when", lambda number, _: f"shift-{number:03}"),
    "texts as input": column_of("a", lambda number, _: ["red", "green", "blue"][number % 3]),
    "a text per row as input": column_of("a", lambda number, _: f"id{number}x"),
    "unicode": text(lambda lines: [line.replace("t1", "größe 🚲 时") for line in lines]),
    "spaces after commas": text(lambda lines: [line.replace(",", ", ") for line in lines]),
    "semicolons": text(lambda lines: [line.replace(",", ";") for line in lines]),
    "windows line ends": text().replace("\n", "\r\n"),
    "a byte order mark": "\ufeff" + text(),
    "quoted values": text(lambda lines: [f'"{line}"'.replace(",", '","') for line in lines]),
    "blank lines at the end": text() + "\n\n",
    "tasks of one row among others": text(lambda lines: [*lines, "alone,99,1,1,1"]),
    "tasks of very different sizes": text(
        lambda lines: [*lines, *(f"big,{100 + n},{n % 7},{n % 3},{n % 5}" for n in range(150))]
    ),
    "texts as target": column_of("y", lambda number, y: WORDS[float(y) > 0]),
    "two numbers as target": column_of("y", lambda number, y: int(float(y) > 0)),
    "500 columns": wide(),
    "a duplicate column that is not used": text(
        lambda lines: [lines[0] + ",z,z", *(line + ",1,2" for line in lines[1:])]
    ),
}
ERRORS = {
    "a missing target column": (
        text(lambda lines: [lines[0].replace(",y", ",z"), *lines[1:]]),
        "no column 'y'",
    ),
    "a missing task column": (
        text(lambda lines: [lines[0].replace("task", "group"), *lines[1:]]),
        "no column 'task'",
    ),
    "an empty file": ("", "the file is empty"),
    "a heading only": (LINES[0] + "\n", "no rows"),
    "one row per task": (column_of("task", lambda number, _: f"t{number}"), "two rows"),
    "text among numbers": (put(5, 2, "warm"), "column 'a', row 5: 'warm' is not a number"),
    "text among targets": (put(7, 4, "lots"), "column 'y', row 7: 'lots' is not a number"),
    "a broken date": (
        column_of("when", lambda n, _: f"2024-03-{1 + n // 6:02}" if n != 9 else "soon"),
        "column 'when', row 9: 'soon' is not a date",
    ),
    "all targets missing": (column_of("y", lambda number, y: ""), "'y'"),
    "all values missing": (text(lambda lines: [lines[0], *(",,,," for _ in lines[1:])]), "task"),
    "one class only": (column_of("y", lambda number, y: "good"), "only label is 'good'"),
    "a label per row": (column_of("y", lambda number, y: f"l{number}a"), None),
    "a duplicate column that is used": (
        text(lambda lines: [lines[0].replace(",b,", ",a,"), *lines[1:]]),
        "column 'a': two columns have this name",
    ),
    "values without a name": (
        text(lambda lines: [*lines[:9], lines[9] + ",7,8", *lines[10:]]),
        "row 9: it has 7 values, the heading 5 names",
    ),
    "a quotation mark that is not closed": (
        text(lambda lines: [*lines[:9], '"' + lines[9], *lines[10:]]),
        "row 9: a quotation mark in it is not closed",
    ),
    "lines that end as on old Macintoshes": (text().replace("\n", "\r"), "a carriage return"),
    "dates in two ways": (
        column_of(
            "when", lambda n, _: ("2024-03-{:02}", "{:02}/03/2024")[n % 2].format(1 + n // 6)
        ),
        "column 'when', row 1: '01/03/2024' is not a date like %Y-%m-%d, as most are",
    ),
    "no text at all": ("\0\1\2\3" * 50, "no CSV file"),
}


def learner(inputs=("a", "b")):
    return TableLearner("task", "y", time="when", inputs=inputs, support=2, batch=4)


@pytest.mark.parametrize("name", RESULTS)
def test_a_result(name, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(RESULTS[name], encoding="utf-8", newline="")
    inputs = None if name == "500 columns" else ("a", "b")
    result = learner(inputs=inputs).fit_online(path, rivals=name == "as it should be")
    assert np.isfinite(float(result.error))
    assert result.predictions.height > 0
    assert np.isfinite(result.tasks["error"].to_numpy()).all()


@pytest.mark.parametrize("name", ERRORS)
def test_one_line_that_names_the_file(name, tmp_path):
    content, words = ERRORS[name]
    path = tmp_path / "table.csv"
    path.write_text(content, encoding="utf-8")
    if words is None:
        path.write_text(content * 3, encoding="utf-8")
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        learner().fit_online(path, rivals=False)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    assert words is None or words in message


def test_there_are_at_least_40():
    assert len(RESULTS) + len(ERRORS) >= 40


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"none\.csv: there is no such file"):
        learner().fit_online(tmp_path / "none.csv")


def test_a_truncated_archive_is_named(tmp_path):
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(text().encode())[:200])
    with pytest.raises(ValueError, match=r"table\.csv\.gz"):
        learner().fit_online(path)


def test_text_of_another_encoding_and_a_folder_are_called_so(tmp_path):
    (tmp_path / "table.csv").write_text(text(), encoding="utf-16")
    with pytest.raises(ValueError, match=r"table\.csv: it is a file of UTF-16 text"):
        learner().fit_online(tmp_path / "table.csv")
    with pytest.raises(ValueError, match="it is a folder"):
        learner().fit_online(tmp_path)


@pytest.mark.parametrize("kind", [int, str])
def test_tasks_named_by_long_numbers_stay_apart(kind):
    """As numbers of 64 bits with a point, 2**60 and 2**60 + 1 are the same."""
    names = [kind(2**60 + int(name[1:])) for name in rows()["task"]]
    frame = rows().with_columns(pl.Series("task", names))
    result = learner().fit_online(frame, rivals=False)
    assert result.tasks["task"].to_list() == list(dict.fromkeys(map(str, names)))


def test_a_long_number_that_comes_late_is_named():
    numbers = [int(name[1:]) for name in rows()["task"]]
    frame = rows().with_columns(pl.Series("task", numbers))
    late = frame.with_columns(pl.col("task") + 2**60)
    with pytest.raises(ValueError, match=r"'task', row 73: the number has more than 15 digits"):
        learner().fit_online(iter([frame, late]), rivals=False)


def test_what_was_left_out_is_counted():
    frame = rows().with_columns(
        y=pl.when(pl.col("when").is_in([3, 4, 9])).then(None).otherwise("y"),
        task=pl.when(pl.col("when") == 20).then(None).otherwise("task"),
    )
    lonely = pl.DataFrame({"task": ["alone"], "when": [99], "a": [0.0], "b": [0.0], "y": [0.0]})
    result = learner().fit_online(pl.concat([frame, lonely]), rivals=False)
    assert result.left_out == {
        "rows_without_task": 1,
        "rows_without_target": 3,
        "tasks_too_small": 1,
    }
