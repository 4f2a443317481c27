"""Tables and bad days: links, folders of others, output that goes away, requests to stop."""

import contextlib
import errno
import json
import os
import signal
import time

import pytest
from tests.hostile.conftest import quietly, untouched
from tests.hostile.test_output import Gone
from tests.tables.conftest import quick, rows  # noqa: F401

import taskmix as tm
from taskmix.cli import main
from taskmix.tables.engine import Engine
from taskmix.training.lock import owning
from taskmix.training.watch import StopRequest

pytestmark = pytest.mark.usefixtures("quick")
COLUMNS = ("--task", "task", "--target", "y", "--time", "when", "--support", "2")


@pytest.fixture
def command(tmp_path):
    path = tmp_path / "table.csv"
    rows(tasks=5).write_csv(path)
    return ["run", "table", str(path), *COLUMNS]


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("lock", "file"),
        ("result.json.partial", "file"),
        ("tasks.csv", "file"),
        ("predictions.csv.partial", "file"),
        ("result.png", "file"),
        ("model", "folder"),
        ("checkpoints", "folder"),
    ],
)
def test_links_in_a_folder_that_is_gone_on_in_lead_nowhere(
    command, outside, tmp_path, name, target
):
    out = tmp_path / "run"
    assert quietly(*command, "--out", out) == (0, "")
    path = out / name
    if path.is_dir():
        path.rename(tmp_path / "away")
    path.unlink(missing_ok=True)
    path.symlink_to(outside / target)
    code, said = quietly("resume", out)
    assert untouched(outside)
    assert code == 0 or (code == 2 and "link" in said and len(said.splitlines()) == 1)


def test_a_folder_of_somebody_else_is_left_as_it_was(command, tmp_path):
    out = tmp_path / "theirs"
    out.mkdir()
    (out / "result.json").write_text("theirs")
    code, said = quietly(*command, "--out", out)
    assert code == 2
    assert "is not a folder of taskmix" in said
    assert [path.name for path in out.iterdir()] == ["result.json"]


def test_a_learner_is_not_saved_over_what_is_not_one(tmp_path):
    learner = tm.TableLearner("task", "y", support=2)
    learner.fit(rows(tasks=3))
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "model.json").write_text("{}")
    with pytest.raises(ValueError, match="holds no table learner"):
        learner.save(tmp_path / "theirs")
    assert (tmp_path / "theirs" / "model.json").read_text() == "{}"
    learner.save(learner.save(tmp_path / "ours"))
    with owning(tmp_path / "ours"), pytest.raises(ValueError, match="written by another process"):
        learner.save(tmp_path / "ours")
    assert "lock" not in {path.name for path in (tmp_path / "ours").iterdir()}


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC])
def test_a_table_whose_output_goes_away_is_learned_to_its_end(command, tmp_path, number):
    with contextlib.redirect_stdout(Gone(number)), contextlib.redirect_stderr(Gone(number)):
        assert main([*command, "--out", str(tmp_path / "run")]) in (2, 141)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["tasks"] == 5
    assert (tmp_path / "run" / "model" / "model.json").exists()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_table_that_is_asked_to_stop_keeps_what_it_learned(
    command, tmp_path, monkeypatch, signum
):
    learn, out, request = Engine.learn, tmp_path / "run", StopRequest()

    def interrupted(self, tasks):
        os.kill(os.getpid(), signum)
        while not request.value:
            time.sleep(0.01)
        return learn(self, tasks)

    monkeypatch.setattr(Engine, "learn", interrupted)
    monkeypatch.setattr("taskmix.cli.table.StopRequest", lambda: request)
    with pytest.raises(SystemExit) as stop:
        quietly(*command, "--out", out)
    assert stop.value.code == 128 + signum
    monkeypatch.undo()
    assert any((out / "checkpoints").iterdir())


def test_folders_of_the_usual_name_are_not_written_over(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert quietly(*command) == (0, "")
    assert quietly(*command) == (0, "")
    assert quietly(*command, "--seed", 1) == (0, "")
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["table", "table-2"]
