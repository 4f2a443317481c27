"""Two processes train one run through the loopback; one of them is killed, and both go on."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from tests.soak.test_kills import COMMAND, OFTEN, evaluated, finished, outcome, shared

from taskmix.cli import main

RUN = (
    *("run", "regression", "--method", "maml", "--families", "linear", "step"),
    *("--lengths", "40", "30", "--tasks", "5", "--hidden", "4", "--adaptation.steps", "1"),
    *("--evaluate-every", "5", "--test-tasks", "3", *OFTEN),
)
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    return shared(tmp_path_factory)


def begun(out: Path, environment) -> list[subprocess.Popen]:
    """Two processes with one device each."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    together = ("--devices", "2", "--coordinator", f"127.0.0.1:{port}", "--processes", "2")
    return [
        subprocess.Popen(
            [*COMMAND, *RUN, *together, "--process", str(process), "--out", out],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(2)
    ]


def ended(processes: list[subprocess.Popen], seconds: float = 600) -> list[str]:
    """Until both have ended by themselves; what they said."""
    said = []
    for process in processes:
        try:
            said.append(process.communicate(timeout=seconds)[1])
        finally:
            process.kill()
    return said


def together(out: Path, environment) -> Path:
    processes = begun(out, environment)
    said = ended(processes)
    assert [process.returncode for process in processes] == [0, 0], said
    return out


def with_one_killed(out: Path, environment, which: int, iteration: int) -> bool:
    """Whether it came to that before the end; the other one must then end by itself."""
    processes = begun(out, environment)
    while processes[0].poll() is None and not evaluated(out, iteration):
        time.sleep(0.0005)
    processes[which].send_signal(signal.SIGKILL)
    ended(processes)
    return processes[which].returncode == -signal.SIGKILL


@pytest.fixture(scope="module")
def whole(tmp_path_factory, environment):
    return together(tmp_path_factory.mktemp("whole") / "run", environment)


def test_two_processes_give_the_results_of_one(tmp_path, environment, whole):
    alone = finished(RUN, tmp_path / "alone", environment=environment)
    (metrics, events, _, _), (others, other_events, _, _) = outcome(alone), outcome(whole)
    assert events == other_events
    for line, other in zip(metrics, others, strict=True):
        for family in ("linear", "step"):
            error = line["families"][family]["error"]
            assert other["families"][family]["error"] == pytest.approx(error, rel=TOLERANCE)


@pytest.mark.slow
def test_run_of_two_processes_of_which_one_was_killed_ends_with_the_same_bits(
    tmp_path, environment, whole
):
    assert with_one_killed(tmp_path / "run", environment, 1, 20)
    assert outcome(together(tmp_path / "run", environment)) == outcome(whole)


@pytest.mark.soak
def test_ten_kills_of_either_process_at_random_change_no_bit(tmp_path, environment, whole):
    draw = random.Random(0)
    kills = 0
    for number in range(10):
        out = tmp_path / str(number)
        iteration = 5 * draw.randrange(0, 13)
        kills += with_one_killed(out, environment, draw.randrange(2), iteration)
        assert outcome(together(out, environment)) == outcome(whole), f"kill {number}"
    print(f"\n{kills} kills")
    assert kills >= 8


def test_processes_without_an_address_are_refused(capsys, tmp_path):
    assert main([*RUN, "--processes", "2", "--out", str(tmp_path / "run")]) == 2
    assert "--coordinator HOST:PORT" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
