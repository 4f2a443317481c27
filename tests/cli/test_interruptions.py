"""What a folder remembers of the command that makes it, and output that no one reads."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from taskmix.cli.interruptions import owned, recalled
from taskmix.training.lock import Refused

FIRST = ["compare", "regression", "--methods", "maml"]
SECOND = [*FIRST, "uniform"]


def test_the_last_command_is_the_one_to_resume(tmp_path):
    for command in (FIRST, SECOND):
        with owned(tmp_path / "out", [*command, "--out", "elsewhere"]):
            pass
        assert recalled(tmp_path / "out") == [*command, "--out", str(tmp_path / "out")]


def test_a_command_that_is_refused_is_forgotten(tmp_path):
    with owned(tmp_path / "out", FIRST):
        pass
    with pytest.raises(Refused, match="other settings"), owned(tmp_path / "out", SECOND):
        raise Refused("begun with other settings")
    assert recalled(tmp_path / "out")[:-2] == FIRST


def test_output_that_no_one_reads_is_no_error():
    code = "import sys; from taskmix.cli import main; sys.exit(main(['--help']))"
    read, write = os.pipe()
    os.close(read)
    try:
        ended = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE)
    finally:
        os.close(write)
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.parametrize("error", [OSError("A worker has died"), ValueError("not finite")])
def test_a_command_that_has_begun_is_the_one_to_resume_however_it_ends(tmp_path, error):
    with owned(tmp_path / "out", FIRST):
        pass
    with pytest.raises(type(error)), owned(tmp_path / "out", SECOND):
        raise error
    assert recalled(tmp_path / "out")[:-2] == SECOND


def test_a_first_command_that_is_refused_leaves_nothing_behind(tmp_path):
    with pytest.raises(Refused), owned(tmp_path, FIRST):
        raise Refused("a folder in it is of another program")
    assert list(tmp_path.iterdir()) == []


MAIN = "import sys; from taskmix.cli import main; sys.exit(main())"
TWO = [
    *("compare", "regression", "--methods", "maml", "fomaml", "--seeds", "0", "--workers", "2"),
    *("--families", "linear", "--tasks", "2", "--hidden", "2", "--quiet"),
    *("--adaptation.steps", "1", "--evaluate-every", "3", "--test-tasks", "2", "--lengths"),
]
"""Short of its last number: how long the stream is."""


def workers_of(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(one) for one in found if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for workers in /proc")
def test_a_command_that_lost_a_worker_ends_when_it_is_asked_to(tmp_path):
    """Neither the dead worker nor the living one keeps it from ending."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *TWO, "1000000", "--out", tmp_path],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while len(workers := workers_of(process.pid)) < 2:
            time.sleep(0.01)
        os.kill(workers[0], signal.SIGKILL)
        while process.poll() is None and not list(tmp_path.glob("*/seed-0/metrics.jsonl")):
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 143, said
    assert "its process died (SIGKILL)" in said
    stop = time.monotonic() + 20
    while any(map(alive, workers)) and time.monotonic() < stop:
        time.sleep(0.05)
    assert not any(map(alive, workers))


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for workers in /proc")
def test_a_killed_worker_loses_its_own_run_and_no_other(tmp_path):
    command = [sys.executable, "-c", MAIN]
    process = subprocess.Popen(
        [*command, *TWO, "3", "--out", tmp_path], stderr=subprocess.PIPE, text=True
    )
    while not (workers := workers_of(process.pid)):
        time.sleep(0.01)
    os.kill(workers[0], signal.SIGKILL)
    try:
        _, said = process.communicate(timeout=900)
    finally:
        process.kill()
    assert process.returncode == 2
    assert "maml, seeds 0: its process died (SIGKILL)" in said
    assert len(list(tmp_path.rglob("summary.json"))) == 1
    ended = subprocess.run([*command, "resume", tmp_path, "--quiet"], timeout=900)
    assert ended.returncode == 0
    methods = json.loads((tmp_path / "comparison.json").read_text())["methods"]
    assert set(methods) == {"maml", "fomaml"}
