"""Searches that are killed, and study files of somebody else. Nothing is trained here."""

import json
import os

import pytest
from tests.hostile.conftest import quietly

import taskmix as tm
from taskmix.experiments.trials import STUDY
from taskmix.experiments.tuning import Search

pytest.importorskip("optuna")

STREAM = tm.streams.regression(("linear",), (4,), tasks=2)
SPACE = ("meta_rate=1e-4..1e-2",)
TRIALS = 4


class Killed(BaseException):
    """Nothing catches it."""


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    """The settings of every trial; the error is a function of them."""
    settings: list[dict] = []

    def error(self, given, folder, request):
        settings.append(dict(given))
        return abs(given["meta_rate"] - 1e-3)

    monkeypatch.setattr(Search, "_error", error)
    return settings


def searched(out, trials=TRIALS):
    found = tm.tune(["alpaca"], STREAM, out, trials=trials, seeds=[0], space=SPACE)["alpaca"]
    return [(trial["settings"], trial["error"]) for trial in found.trials]


@pytest.mark.parametrize("number", range(TRIALS))
def test_search_that_is_killed_tries_what_it_would_have_tried(tmp_path, monkeypatch, number):
    whole = searched(tmp_path / "whole")
    error, count = Search._error, iter(range(TRIALS))

    def killed(self, *arguments):
        if next(count) == number:
            raise Killed
        return error(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Search, "_error", killed)
        with pytest.raises(Killed):
            searched(tmp_path / "killed")
    assert searched(tmp_path / "killed") == whole


def test_nothing_that_a_killed_search_leaves_behind_locks_it(tmp_path):
    searched(tmp_path, 1)
    for name in (f"{STUDY}.lock", f"{STUDY}.partial", "study.jsonl.lock"):
        os.symlink("nowhere", tmp_path / "alpaca" / name)
    assert len(searched(tmp_path, 2)) == 2


ODD = {
    "no JSON": "study",
    "half a file": '{"protocol": {',
    "a list": "[1]",
    "nothing": "",
    "no text": "\ud800",
    "a million brackets": "[" * 1_000_000,
}


@pytest.mark.parametrize("content", ODD.values(), ids=ODD)
def test_study_that_is_none_is_refused(tmp_path, content):
    searched(tmp_path, 1)
    path = tmp_path / "alpaca" / STUDY
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(ValueError, match=r"study\.json (is not JSON|holds no object)"):
        searched(tmp_path, 2)


TRIED = {
    "of other settings": {"settings": {"worth": 3.0}},
    "of no settings": {"settings": None},
    "out of the range": {"settings": {"meta_rate": 1.0}},
    "a path": {"settings": {"meta_rate": "../../x"}},
    "true": {"settings": {"meta_rate": True}},
    "an error that is none": {"error": "small"},
    "an endless error": {"error": 10**400},
    "more than a trial": {"more": 1},
}


@pytest.mark.parametrize("change", TRIED.values(), ids=TRIED)
def test_trial_that_is_none_is_refused(tmp_path, change):
    searched(tmp_path, 1)
    path = tmp_path / "alpaca" / STUDY
    study = json.loads(path.read_text())
    study["trials"][0].update(change)
    path.write_text(json.dumps(study))
    with pytest.raises(ValueError, match="holds what no search writes"):
        searched(tmp_path, 2)


@pytest.mark.parametrize("kind", ["fifo", "link", "linked folder"])
def test_study_that_is_no_file_keeps_nobody_waiting_and_leads_nowhere(tmp_path, outside, kind):
    searched(tmp_path, 1)
    path = tmp_path / "alpaca" / STUDY
    if kind == "linked folder":
        path.parent.rename(tmp_path / "away")
        path.parent.symlink_to(outside / "folder")
    else:
        path.unlink()
        os.mkfifo(path) if kind == "fifo" else path.symlink_to(outside / "file")
    with pytest.raises(ValueError, match=r"is a link|not a regular file"):
        searched(tmp_path, 2)
    assert (outside / "file").read_text() == "precious"
    assert [one.name for one in (outside / "folder").iterdir()] == ["kept"]


def test_search_goes_on_by_resume(tmp_path):
    flags = ["--families", "linear", "--lengths", "4", "--tasks", "2", "--test-tasks", "2"]
    command = ["tune", "regression", "--methods", "alpaca", "--trials", "2", "--seeds", "0", *flags]
    assert quietly(*command, "--quiet", "--out", tmp_path / "out") == (0, "")
    before = (tmp_path / "out" / "tuned.json").read_bytes()
    (tmp_path / "out" / "tuned.json").unlink()
    assert quietly("resume", tmp_path / "out") == (0, "")
    assert (tmp_path / "out" / "tuned.json").read_bytes() == before
