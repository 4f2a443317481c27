"""Programs that follow a run hear what its folder gets, and never end it."""

import importlib.util
import json
import os
import subprocess
import sys
from unittest import mock

import pytest
from tests.experiments import arithmetic

from taskmix.experiments import run
from taskmix.experiments.group import Keeping
from taskmix.training.writers import WRITERS, Following, final_numbers, numbers_of

LINE = {
    "iteration": 5,
    "clusters": 2,
    "loss": 0.5,
    "suspicion": None,
    "prequential": {"a": 0.25},
    "families": {"a": {"error": 1.5, "coverage": None, "background": 0.0}},
}
BIRTH = {"iteration": 4, "event": "spawned", "clusters": 2, "cluster": 1}
SUMMARY = {
    "measure": "error",
    "final": {"a": {"error": 1.25}, "b": {"error": None}},
    "mean_forgetting": 0.5,
    "clusters": 2,
}
CONFIG = {"experiment": "regression", "method": "maml", "seed": 3, "told": "nothing"}


class Noted:
    """Remembers what it hears."""

    heard: list

    def __init__(self, folder, config):
        self.heard = []
        Noted.every[folder] = self.heard

    def metrics(self, iteration, values):
        self.heard.append((iteration, values))

    def event(self, iteration, text):
        self.heard.append((iteration, text))

    def close(self, summary):
        self.heard.append(summary)


@pytest.fixture
def noted():
    Noted.every = {}
    WRITERS.register("noted", Noted)
    yield Noted.every
    WRITERS.remove("noted")


def test_numbers_that_are_not_known_are_left_out():
    assert final_numbers(SUMMARY) == {"final error/a": 1.25, "mean_forgetting": 0.5, "clusters": 2}
    assert "suspicion" not in numbers_of(LINE)


def test_a_writer_hears_every_line_of_the_folder_and_the_end(tmp_path, monkeypatch, noted):
    monkeypatch.setattr(run, "train", arithmetic.train)
    arithmetic.run_all(tmp_path, Keeping(writers=("noted",)))
    for folder, heard in noted.items():
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        metrics = [one for one in heard[:-1] if isinstance(one[1], dict)]
        assert metrics == [(line["iteration"], numbers_of(line)) for line in lines]
        births = [one for one in heard[:-1] if str(one[1]).startswith("spawned")]
        assert births
        assert heard[-1] == final_numbers(json.loads((folder / "summary.json").read_text()))


def test_a_writer_that_fails_is_told_of_once_and_the_others_go_on(tmp_path, noted, monkeypatch):
    def fail(self, iteration, values):
        raise OSError("no room")

    monkeypatch.setitem(WRITERS._things, "bad", type("Bad", (Noted,), {"metrics": fail}))
    following = Following(["bad", "noted"], tmp_path, CONFIG)
    with pytest.warns(UserWarning, match=r"'bad' failed \(OSError: no room\); the run goes on"):
        following.add(LINE, [BIRTH])
    following.add(LINE, [])
    following.close(SUMMARY)
    assert [one[0] for one in noted[tmp_path][:-1]] == [4, 5, 5]


def test_an_unknown_writer_is_refused_before_anything_begins():
    with pytest.raises(ValueError, match=r"There is no writer 'tensorbord'\. Did you mean"):
        Keeping(writers=("tensorbord",))


def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ValueError, match=r"pip install 'taskmix\[tensorboard\]'"):
        Following(["tensorboard"], tmp_path, CONFIG)


@pytest.mark.parametrize(("name", "package"), [("tensorboard", "tensorboardX"), ("wandb", "wandb")])
def test_linked_folder_of_a_writer_is_refused(tmp_path, monkeypatch, name, package):
    monkeypatch.setitem(sys.modules, package, mock.MagicMock())
    (tmp_path / "outside").mkdir()
    (tmp_path / name).symlink_to(tmp_path / "outside")
    with pytest.raises(ValueError, match=f"{name} is a link"):
        Following([name], tmp_path, CONFIG)


def test_tensorboard_gets_scalars_and_events(tmp_path):
    pytest.importorskip("tensorboardX")
    following = Following(["tensorboard"], tmp_path, CONFIG)
    following.add(LINE, [BIRTH])
    following.close(SUMMARY)
    (events,) = (tmp_path / "tensorboard").glob("events.out.tfevents.*")
    content = events.read_bytes()
    assert b"error/a" in content
    assert b"spawned: cluster 2, now 2" in content


OFFLINE = """
import json, sys
from pathlib import Path
from taskmix.training.writers import Following
line, birth, summary, config = map(json.loads, sys.argv[2:])
following = Following(["wandb"], Path(sys.argv[1]), config)
following.add(line, [birth])
following.close(summary)
"""


def test_weights_and_biases_keeps_a_run_offline(tmp_path):
    """In a process of its own, as it starts threads and takes the output over."""
    if importlib.util.find_spec("wandb") is None:
        pytest.skip("wandb is not installed (extra `wandb`)")
    told = map(json.dumps, (LINE, BIRTH, SUMMARY, CONFIG))
    environment = {key: value for key, value in os.environ.items() if key != "WANDB_MODE"}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), "WANDB_SILENT": "true"}
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, tmp_path, *told],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    (kept,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    assert b"error/a" in kept.read_bytes()


@pytest.mark.filterwarnings("ignore")  # Of packages that are not ours.
def test_mlflow_gets_metrics_with_their_iterations(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed (extra `mlflow`)")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.chdir(tmp_path)
    following = Following(["mlflow"], tmp_path, CONFIG)
    following.add(LINE, [BIRTH])
    following.close(SUMMARY)
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("regression")
    (found,) = client.search_runs([experiment.experiment_id])
    (point,) = client.get_metric_history(found.info.run_id, "error/a")
    assert (point.step, point.value) == (5, 1.5)
    assert found.info.status == "FINISHED"
    assert os.path.exists(tmp_path / "mlflow.db")
