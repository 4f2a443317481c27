"""Records of comparisons: what is packed comes out again, and the notes say what it says."""

import json
import runpy
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[2] / "results"
RECORDS = runpy.run_path(str(RESULTS / "records.py"))


@pytest.mark.parametrize("name", ["regression", "evolving-images"])
def test_every_row_of_the_notes_is_that_of_the_records(name):
    printed = RECORDS["table"](RECORDS["unpack"](RESULTS / name / "runs.jsonl.gz"))
    notes = (RESULTS / name / "README.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines()[2:]]
    assert len(rows) > 20
    for method, _, *cells in rows:
        assert f"| {' | '.join((method, *cells))} |" in notes


def test_tests_of_the_notes_are_those_of_the_records():
    for shots in (1, 5):
        printed = RECORDS["table"](
            RECORDS["unpack"](RESULTS / "table-1" / f"{shots}-shot.jsonl.gz")
        )
        notes = (RESULTS / "table-1" / "README.md").read_text()
        for line in printed.splitlines()[2:]:
            assert line.split("|")[-2].strip() in notes


@pytest.mark.parametrize("path", sorted((RESULTS / "paper").glob("*.json")), ids=lambda p: p.stem)
def test_rows_of_the_papers_rule_are_those_of_its_records(path):
    benchmark = runpy.run_path(str(RESULTS.parent / "benchmarks" / "paper_rule.py"))
    notes = (RESULTS / "paper" / "README.md").read_text()
    kept = json.loads(path.read_text())
    assert all(row in notes for row in benchmark["rows"](kept["tried"]))
    for run in (kept["reported"] or {"runs": []})["runs"]:
        births = ", ".join(map(str, run["births"])) or "none"
        cells = [*run["error"], run["mean"], run["forgetting"], run["nmi"]]
        numbers = " | ".join(f"{cell:.2f}" for cell in cells)
        assert f"| {run['seed']} | {numbers} | {births} |" in notes


def test_runs_that_were_packed_are_restored(tmp_path):
    run = tmp_path / "runs" / "maml" / "seed-3"
    run.mkdir(parents=True)
    (run / "config.json").write_text('{"seed": 3}')
    (run / "summary.json").write_text('{"clusters": 2}')
    (run / "events.jsonl").write_text('{"event": "spawned", "iteration": 7}\n')
    (run / "metrics.jsonl").write_text('{"iteration": 0}\n{"iteration": 5}\n')
    packed = tmp_path / "runs.jsonl.gz"
    assert RECORDS["pack"](tmp_path / "runs", packed) == 1
    RECORDS["restore"](RECORDS["unpack"](packed), tmp_path / "again")
    again = tmp_path / "again" / "maml" / "seed-3"
    for path in run.iterdir():
        found = (again / path.name).read_text().splitlines()
        if path.suffix == ".jsonl":
            assert found == path.read_text().splitlines()
        else:
            assert json.loads("".join(found)) == json.loads(path.read_text())


def test_same_runs_give_the_same_bytes_and_no_runs_are_an_error(tmp_path):
    run = tmp_path / "runs" / "one"
    run.mkdir(parents=True)
    for name, text in (("config.json", "{}"), ("summary.json", "{}")):
        (run / name).write_text(text)
    for name in ("events.jsonl", "metrics.jsonl"):
        (run / name).write_text("")
    first, second = tmp_path / "first.gz", tmp_path / "second.gz"
    for path in (first, second):
        RECORDS["pack"](tmp_path / "runs", path)
    assert first.read_bytes() == second.read_bytes()
    with pytest.raises(SystemExit, match="There is no run"):
        RECORDS["pack"](tmp_path / "first.gz", tmp_path / "third.gz")
