"""Processes that do jobs and die of them, in every way."""

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from taskmix.training.watch import Stopped
from taskmix.training.workers import Job, request_for, shared_out


def double(number, request):
    return 2 * number


def die(how, request):
    os.kill(os.getpid(), how)


def fail(words, request):
    raise ValueError(words)


def leave(code, request):
    os._exit(code)


def stop_when_asked(request):
    while not request.value:
        time.sleep(0.01)
    raise Stopped(request.value, 7)


def after_the_request(work, request):
    """The request comes to a job that is being done, not to one that has yet to begin."""
    while not request.value:
        time.sleep(0.01)
    return work(request)


def slowly(work):
    return partial(after_the_request, work)


def note_start(path, request):
    Path(path).touch()


def jobs(*some) -> list[Job]:
    return [Job(f"job {number}", work) for number, work in enumerate(some)]


def test_results_come_in_the_order_of_the_jobs():
    assert shared_out(jobs(*(partial(double, n) for n in (1, 2))), 2, request_for(2)) == [2, 4]


def test_a_process_that_dies_is_named_and_the_others_go_on(tmp_path, capfd):
    some = jobs(partial(die, signal.SIGKILL), partial(note_start, tmp_path / "begun"))
    with pytest.raises(OSError, match=r"Lost with its process.*: job 0"):
        shared_out(some, 1, request_for(2))
    assert (tmp_path / "begun").exists()
    assert "taskmix: job 0: its process died (SIGKILL); the others go on.\n" in (
        capfd.readouterr().err
    )


def test_a_failure_is_that_of_the_job_and_no_further_one_is_begun(tmp_path):
    some = jobs(partial(fail, "no such stream"), partial(note_start, tmp_path / "begun"))
    with pytest.raises(ValueError, match="no such stream") as failure:
        shared_out(some, 1, request_for(2))
    assert "in fail" in failure.value.__notes__[0]
    assert not (tmp_path / "begun").exists()


@pytest.mark.parametrize("work", [stop_when_asked, partial(leave, 128 + signal.SIGTERM)])
def test_a_request_that_is_met_is_no_loss(work):
    request = request_for(2)
    asks = threading.Timer(1.0, setattr, (request, "value", int(signal.SIGTERM)))
    asks.start()
    with pytest.raises(Stopped):
        shared_out(jobs(slowly(work)), 1, request)
    asks.join()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_request_is_one_before_anything_is_asked(workers):
    """``request or StopRequest()`` must keep it: a worker would never hear of a signal."""
    assert bool(request_for(workers))


def test_after_a_request_nothing_is_begun(tmp_path):
    request = request_for(2)
    request.value = signal.SIGINT
    with pytest.raises(Stopped):
        shared_out(jobs(partial(note_start, tmp_path / "begun")), 1, request)
    assert not (tmp_path / "begun").exists()


SLEEPERS = """
from functools import partial
from tests.training.test_workers import jobs, sleep_for_long
from taskmix.training.workers import request_for, shared_out
if __name__ == "__main__":
    shared_out(jobs(sleep_for_long), 1, request_for(2))
"""


def sleep_for_long(request):
    print(os.getpid(), flush=True)
    time.sleep(600)


def test_processes_end_with_the_one_that_started_them(tmp_path):
    (tmp_path / "sleepers.py").write_text(SLEEPERS)
    path = os.pathsep.join([os.getcwd(), *sys.path])
    first = subprocess.Popen(
        [sys.executable, tmp_path / "sleepers.py"],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    worker = int(first.stdout.readline())
    first.kill()
    first.wait()
    first.stdout.close()
    stop = time.monotonic() + 600
    while alive(worker) and time.monotonic() < stop:
        time.sleep(0.05)
    assert not alive(worker)


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
