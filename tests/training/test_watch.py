"""Signals and patience; each signal is sent to a process of its own."""

import signal
import subprocess
import sys
import time

import pytest

from taskmix.training import watch
from taskmix.training.watch import StopRequest, Watch

STUCK = """
import hashlib, sys
from taskmix.training.watch import StopRequest, listening
request = StopRequest()
with listening(request, lambda what: print(what, flush=True)):
    print("ready", flush=True)
    while not request.value or {stubborn}:
        # One call into compiled code, during which Python handles no signals.
        hashlib.pbkdf2_hmac("sha256", b"", b"", {rounds})
sys.exit(128 + request.value)
"""


def started(stubborn: bool, rounds: int) -> subprocess.Popen:
    # Whoever runs the tests may have been told to ignore SIGHUP, which children inherit.
    heard = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
    script = heard + STUCK.format(stubborn=stubborn, rounds=rounds)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def ended(process: subprocess.Popen) -> int:
    process.stdout.close()
    return process.wait(timeout=300)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_signal_is_a_request_that_is_met_in_good_order(number, code):
    process = started(stubborn=False, rounds=10_000)
    process.send_signal(number)
    assert process.stdout.readline() == f"{number.name}: stops; what was learned is kept\n"
    assert ended(process) == code


def test_second_interrupt_stops_at_once_even_inside_compiled_code():
    process = started(stubborn=True, rounds=2_000_000_000)
    process.send_signal(signal.SIGINT)
    assert "stops; what was learned is kept" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert ended(process) == 130


BUSY = """
import time
from taskmix.training import watch
watch.GRACE = watch.TICK = 0.2
request = watch.StopRequest()
with watch.listening(request, lambda what: None):
    {before}
    print("ready", flush=True)
    time.sleep(1.0)
    print("still there", flush=True)
    {after}
    time.sleep(600)
"""


@pytest.mark.parametrize(
    ("before", "after", "seen"),
    [
        ("", "", ""),
        (
            "seen_to = watch.attending(); seen_to.__enter__()",
            "seen_to.__exit__(*3 * [None])",
            "still there\n",
        ),
    ],
    ids=["nobody", "somebody, for a while"],
)
def test_request_that_nobody_attends_to_ends_the_process(before, after, seen):
    """While a table is read, or a figure is drawn."""
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY.format(before=before, after=after)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    found, said = process.communicate(timeout=300)
    assert (process.returncode, found) == (143, seen)
    assert said == "taskmix: SIGTERM: stopped; the same command goes on.\n"


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_standstill_is_told_once_and_again_after_as_long(clock):
    told = []
    one = Watch(StopRequest(), told.append)
    for clock[0] in range(0, int(2.5 * watch.PATIENCE), 10):
        one.look()
    assert told == ["no progress for 10 minutes", "no progress for 20 minutes"]


def test_progress_is_no_standstill_however_slow_it_always_was(clock):
    told = []
    one = Watch(StopRequest(), told.append)
    clock[0] = 0.9 * watch.PATIENCE
    one.progressed()
    clock[0] += 8 * watch.PATIENCE
    one.look()
    assert told == []


def test_run_that_does_not_come_to_it_is_left_after_a_while(clock):
    request, left = StopRequest(), []
    one = Watch(request, lambda what: None, left.append)
    one.look()
    request.value = 15
    for clock[0] in (1.0, 1.0 + watch.GRACE):
        one.look()
    assert left == []
    clock[0] += 0.1
    one.look()
    assert left == [15]


def test_process_that_is_told_to_ignore_hanging_up_does_so():
    script = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n{STUCK}"
    process = subprocess.Popen(
        [sys.executable, "-c", script.format(stubborn=False, rounds=10_000)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    assert ended(process) == 143
