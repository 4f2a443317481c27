"""A table that was interrupted goes on where it was, and ends with the same bits."""

import json
import signal

import numpy as np
import pytest
from tests.tables.conftest import rows

import taskmix as tm
from taskmix.tables import rivals
from taskmix.tables.engine import Engine
from taskmix.tables.packing import Sides
from taskmix.training.lock import Refused
from taskmix.training.watch import Stopped, StopRequest

pytestmark = pytest.mark.usefixtures("quick")
COLUMNS = {"task": "task", "target": "y", "time": "when", "support": 2, "batch": 2}
FILES = ("tasks.csv", "predictions.csv", "model/model.safetensors", "model/model.json")
OFTEN = tm.Keeping(checkpoint_iterations=1, checkpoint_minutes=1e9)


@pytest.fixture
def stopping(monkeypatch):
    """A request to stop that comes while the so-manieth batch of tasks is learned from."""

    def after(batches):
        request, learn = StopRequest(), Engine.learn
        left = [batches]

        def counted(self, tasks):
            left[0] -= 1
            if not left[0]:
                request.value = signal.SIGTERM
            return learn(self, tasks)

        monkeypatch.setattr(Engine, "learn", counted)
        return request

    yield after
    monkeypatch.undo()


def outcome(out):
    result = json.loads((out / "result.json").read_text())
    return result, {name: (out / name).read_bytes() for name in FILES}


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    rows(tasks=12).write_csv(path)
    return path


def test_stopped_anywhere_it_ends_with_the_same_bits(table, tmp_path, stopping):
    tm.run_table(table, tmp_path / "whole", **COLUMNS)
    before = outcome(tmp_path / "whole")
    for batches in (1, 2, 5):
        out = tmp_path / str(batches)
        with pytest.raises(Stopped) as stopped:
            tm.run_table(table, out, request=stopping(batches), **COLUMNS)
        assert stopped.value.iteration == batches
        tm.run_table(table, out, **COLUMNS)
        assert outcome(out) == before


def test_classes_and_frames_go_on_as_well(tmp_path, stopping):
    frame = rows(tasks=8).with_columns(y=np.where(rows(tasks=8)["y"] > 0, "up", "down"))
    tm.run_table(frame, tmp_path / "whole", **COLUMNS)
    with pytest.raises(Stopped):
        tm.run_table(frame, tmp_path / "cut", request=stopping(2), **COLUMNS)
    tm.run_table(frame, tmp_path / "cut", **COLUMNS)
    assert outcome(tmp_path / "cut") == outcome(tmp_path / "whole")


def test_what_has_ended_is_not_learned_again(table, tmp_path, monkeypatch):
    tm.run_table(table, tmp_path / "run", **COLUMNS)
    before = outcome(tmp_path / "run")
    monkeypatch.setattr(Engine, "learn", None)
    tm.run_table(table, tmp_path / "run", **COLUMNS)
    assert outcome(tmp_path / "run") == before


def test_an_older_checkpoint_takes_the_place_of_a_damaged_one(table, tmp_path, stopping):
    tm.run_table(table, tmp_path / "whole", **COLUMNS)
    out, said = tmp_path / "cut", []
    with pytest.raises(Stopped):
        tm.run_table(table, out, request=stopping(3), keeping=OFTEN, **COLUMNS)
    newest = max((out / "checkpoints").iterdir()) / "checkpoint.safetensors"
    content = newest.read_bytes()
    newest.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    tm.run_table(table, out, progress=said.append, **COLUMNS)
    assert any("wrong checksum" in line for line in said)
    assert any(line == "goes on after 4 tasks" for line in said)
    assert outcome(out) == outcome(tmp_path / "whole")


@pytest.mark.parametrize(
    ("change", "words"),
    [("row", "table.sha256 was"), ("seed", "learner.seed was 0 and is 1")],
)
def test_another_table_or_setting_is_refused(table, tmp_path, change, words, stopping):
    with pytest.raises(Stopped):
        tm.run_table(table, tmp_path / "run", request=stopping(1), **COLUMNS)
    if change == "row":
        table.write_text(table.read_text() + "t12,999,1,2,3\n")
    seed = 1 if change == "seed" else 0
    with pytest.raises(Refused, match=words):
        tm.run_table(table, tmp_path / "run", seed=seed, **COLUMNS)


def test_a_mistake_in_the_columns_leaves_no_folder(table, tmp_path):
    with pytest.raises(ValueError, match="no column 'z'"):
        tm.run_table(table, tmp_path / "run", **{**COLUMNS, "target": "z"})
    assert not (tmp_path / "run").exists()


def test_live_rows_are_run_but_not_over_older_results(table, tmp_path):
    def live():
        return iter(rows(tasks=4).iter_rows(named=True))

    tm.run_table(live(), tmp_path / "run", **COLUMNS)
    with pytest.raises(Refused, match="came live"):
        tm.run_table(live(), tmp_path / "run", **COLUMNS)


@pytest.mark.parametrize("name", ["GlobalRidge", "Boosted"])
def test_a_rival_goes_on_from_its_arrays(name):
    if name == "Boosted":
        pytest.importorskip("lightgbm")
    one, other = (getattr(rivals, name)(*([0] if name == "GlobalRidge" else [0, 3])) for _ in "ab")
    rng = np.random.default_rng(0)

    def tasks(count):
        parts = [(rng.normal(size=(9, 3)), rng.normal(size=9)) for _ in range(count)]
        return [Sides("t", x[:4], y[:4], x[4:], y[4:]) for x, y in parts]

    one.learn(tasks(30))
    one.learn(tasks(1))
    other.restore(one.arrays())
    for more in (tasks(2), tasks(20), tasks(3)):
        np.testing.assert_array_equal(one.predict(more), other.predict(more))
        one.learn(more)
        other.learn(more)
