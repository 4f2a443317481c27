"""Jobs that other processes do, one process for each; none can hang or end the others."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

from taskmix.machine import ONE_THREAD, end_with_parent
from taskmix.training.watch import (
    SIGNALS,
    Request,
    Stopped,
    StopRequest,
    attending,
    ending_unattended,
)

# Spawned, because a process that has used JAX must not be forked.
SPAWN = get_context("spawn")


@dataclasses.dataclass(frozen=True)
class Job:
    """Something to do, under a name to call it by."""

    name: str
    work: Callable[[Request], Any]
    """Is sent to another process, so it must be one that pickle knows how to send."""


class SharedRequest:
    """One to stop, which all workers hear.

    It has no lock, which a process that is killed could take along. A number of ctypes is false
    while it is 0, and would be taken for no request at all; this is not.
    """

    def __init__(self) -> None:
        self._value = SPAWN.Value("i", 0, lock=False)

    @property
    def value(self) -> int:
        return int(self._value.value)

    @value.setter
    def value(self, number: int) -> None:
        self._value.value = number


def request_for(workers: int) -> Request:
    """One to stop, which this process and so many ``workers`` hear."""
    return StopRequest() if workers == 1 else SharedRequest()


@attending()
def shared_out(jobs: Sequence[Job], workers: int, request: Request) -> list[Any]:
    """What every job gives, each done by a process of its own, so many ``workers`` at a time.

    A process that dies takes its own job along and no other: that is said at once, and in an
    ``OSError`` when the others are done. If a job fails, no further one is begun.
    """
    results: dict[int, Any] = {}
    waiting = deque(range(len(jobs)))
    running: dict[Connection, tuple[int, Any]] = {}
    failed: list[BaseException] = []
    lost: list[str] = []
    try:
        while running or (waiting and not failed and not request.value):
            while waiting and len(running) < workers and not failed and not request.value:
                number = waiting.popleft()
                connection, process = _started(jobs[number], request)
                running[connection] = (number, process)
            for ready in wait(list(running)):
                assert isinstance(ready, Connection), "nothing else is waited for"
                number, process = running.pop(ready)
                good, outcome = _received(ready, process)
                if good:
                    results[number] = outcome
                elif outcome is not None:
                    failed.append(outcome)
                elif request.value and process.exitcode == 128 + request.value:
                    failed.append(Stopped(request.value, 0))
                else:
                    lost.append(jobs[number].name)
                    _say(f"{jobs[number].name}: its process died ({_how(process.exitcode)})")
    finally:
        for _, process in running.values():
            process.kill()
            _ended(process)
    if failed:
        raise failed[0]
    if lost:
        raise OSError(
            f"Lost with its process, perhaps for want of memory: {'; '.join(lost)}. What was done "
            f"is kept, and taskmix resume goes on."
        )
    if waiting:
        raise Stopped(request.value, 0)
    return [results[number] for number in range(len(jobs))]


def _started(job: Job, request: Request) -> tuple[Connection, Any]:
    ours, theirs = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=_work, args=(theirs, request, job.work), name=job.name)
    # A process that dies before it has read what it is to do shows in the connection, too.
    with contextlib.suppress(BrokenPipeError):
        process.start()
    theirs.close()
    return ours, process


def _received(connection: Connection, process: Any) -> tuple[bool, Any]:
    """Whether a job was done, and its result, or what went wrong; None if the process died."""
    try:
        return connection.recv()
    except (EOFError, OSError):
        return False, None
    finally:
        connection.close()
        _ended(process)


def _ended(process: Any) -> None:
    # One that died while it was being started is not known as a process.
    if process.pid is not None:
        process.join()


def _work(connection: Connection, request: Request, work: Callable[[Request], Any]) -> None:
    """In the new process, which has one core to itself: more threads would only contend for it."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD}"
    # Signals may reach every process of a group; the first of them passes them on as a request.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    end_with_parent()
    try:
        with ending_unattended(request):
            outcome = (True, work(request))
    except Exception as error:
        error.add_note(traceback.format_exc())
        outcome = (False, error)
    connection.send(outcome)


def _how(code: int | None) -> str:
    if code is not None and -code in set(signal.Signals):
        return signal.Signals(-code).name
    return f"exit code {code}"


def _say(what: str) -> None:
    with contextlib.suppress(OSError):
        print(f"taskmix: {what}; the others go on.", file=sys.stderr, flush=True)
