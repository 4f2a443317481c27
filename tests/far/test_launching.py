"""Comparisons whose runs are jobs of a scheduler; jobs that are killed are taken over."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.far.jobs import fail, wait_for_long

import taskmix as tm
from taskmix.cli import main
from taskmix.experiments.launching import Launcher, Signs, launched
from taskmix.training.watch import Stopped, StopRequest
from taskmix.training.workers import Job

METHODS = ("alpaca", "maml", "fomaml:meta_rate=0.01")
"""One more than there are workers, so that one job waits."""
COMMAND = (
    *("compare", "regression", "--methods", *METHODS, "--seeds", "0", "1", "2"),
    *("--families", "linear", "step", "--lengths", "300", "300", "--tasks", "2", "--hidden", "4"),
    *("--adaptation.steps", "1", "--evaluate-every", "20", "--test-tasks", "3"),
    *("--checkpoint-minutes", "0", "--quiet"),
)
RUN = [sys.executable, "-c", "import sys; from taskmix.cli import main; sys.exit(main())", *COMMAND]
TIMES = ("seconds", "iterations_per_second")
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def found_and_waited_for(monkeypatch):
    """Processes of jobs find the tests' modules wherever pytest was started, and have all the time
    that they need to end: on a busy machine they take long to begin."""
    known = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{known}" if known else str(ROOT))
    monkeypatch.setattr("taskmix.experiments.launching.PATIENCE", 600.0)


def table(out: Path) -> dict:
    def without_times(value):
        if isinstance(value, dict):
            return {k: without_times(v) for k, v in value.items() if k not in TIMES}
        return [without_times(one) for one in value] if isinstance(value, list) else value

    return without_times(json.loads((out / "comparison.json").read_text()))


def workers_of(out: Path) -> list[int]:
    """Processes that submitit started for jobs of a comparison: those that do the work."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            # SLURM's srun has the same words after its own.
            works = "python" in Path(words[0]).name and "submitit.core._submit" in words
            if works and any(str(out / "jobs") in word for word in words):
                found.append(int(entry.name))
    return found


def killed_at_work(worker: int, jobs: Path) -> bool:
    """Kill a process if its job has not ended, which is looked at while the process is stopped."""
    try:
        os.kill(worker, signal.SIGSTOP)
        held = [Path(os.readlink(one)) for one in Path(f"/proc/{worker}/fd").iterdir()]
    except OSError:
        return False
    locks = [path for path in held if jobs in path.parents and path.suffix == ".lock"]
    at_work = any(not lock.with_suffix(".ended").exists() for lock in locks)
    os.kill(worker, signal.SIGKILL if at_work else signal.SIGCONT)
    return at_work


def compared_with_two_killed(out: Path, launcher: str, *options: str) -> str:
    """Kill two of the jobs once they have learned something; what the command said."""
    command = [*RUN, "--launcher", launcher, "--workers", "2", *options, "--out", str(out)]
    killed: set[int] = set()
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        while process.poll() is None and len(killed) < 2:
            if len(list(out.glob("*/seed-0/checkpoints/*"))) > len(killed):
                for worker in set(workers_of(out)) - killed:
                    if killed_at_work(worker, out.resolve() / "jobs"):
                        killed.add(worker)
                        break
            time.sleep(0.01)
        said = process.communicate(timeout=1200)[1]
    assert process.returncode == 0, said
    assert len(killed) == 2, "the jobs ended before they could be killed"
    return said


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    out = tmp_path_factory.mktemp("serial") / "out"
    assert main([*COMMAND, "--out", str(out)]) == 0
    return table(out)


def test_table_of_the_local_launcher_with_two_workers_killed_is_the_serial_one(tmp_path, serial):
    said = compared_with_two_killed(tmp_path / "out", "local")
    assert said.count("its process died; it goes on in another process") == 2
    assert table(tmp_path / "out") == serial


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("sbatch"), reason="make slurm starts one and runs this test")
def test_table_of_slurm_with_two_workers_killed_is_the_serial_one(tmp_path_factory, serial):
    # Where SLURM's own temporary folders may not be seen by its jobs, this one is.
    out = tmp_path_factory.mktemp("slurm") / "out"
    said = compared_with_two_killed(out, "slurm", "--options", "slurm_mem=0")
    assert said.count("it goes on in another process") == 2
    assert table(out) == serial


def test_job_that_fails_is_named_with_its_reason_and_not_tried_again(tmp_path):
    with pytest.raises(OSError, match=r"bad failed \(ValueError: no such stream\)"):
        launched([Job("bad", fail)], Launcher("local"), 1, tmp_path, StopRequest())


@pytest.fixture
def interruptible():
    """Processes of jobs inherit that SIGINT is ignored, as it is in the background of a script;
    commands undo that by listening to it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_request_to_stop_ends_the_jobs(interruptible, tmp_path):
    request = StopRequest()
    threading.Timer(2.0, setattr, (request, "value", int(signal.SIGTERM))).start()
    with pytest.raises(Stopped):
        launched([Job("long", wait_for_long)], Launcher("local"), 1, tmp_path, request)
    assert not workers_of(tmp_path)


def test_lock_tells_whether_a_job_lives(tmp_path):
    signs = Signs(tmp_path, "0-a")
    seen = []
    assert not signs.alive()
    signs.live(lambda request: seen.append((signs.alive(), signs.begun(), signs.ended())))
    assert seen == [(True, True, None)]
    assert not signs.alive()
    assert signs.ended() == {}


def test_launcher_without_a_folder_is_refused():
    stream = tm.streams.regression(("linear",), (4,), tasks=2)
    with pytest.raises(ValueError, match="launcher needs out"):
        tm.compare(["alpaca"], stream, launcher="local")


def test_option_that_is_none_is_refused():
    with pytest.raises(ValueError, match="NAME=VALUE"):
        Launcher("slurm", options=("cpu",)).parameters()
