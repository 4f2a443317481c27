"""Jobs shared out to processes, all of which hear one request to stop."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, TypeVar

from taskmix.machine import ONE_THREAD
from taskmix.training.watch import SIGNALS, Request, StopRequest, end_with_parent

# Spawned, because a process that has used JAX must not be forked.
SPAWN = get_context("spawn")

Result = TypeVar("Result")


def request_for(workers: int) -> Request:
    """One to stop, which all workers hear."""
    return StopRequest() if workers == 1 else SPAWN.Value("i", 0)


def shared_out(
    work: Callable[..., Result], jobs: Sequence[tuple], workers: int, request: Request
) -> list[Result]:
    """What ``work`` gives for every job, each done by one of several processes.

    ``work`` takes the request to stop first, and then what a job holds.
    """
    if workers == 1:
        return [work(request, *job) for job in jobs]
    with ProcessPoolExecutor(
        workers, mp_context=SPAWN, initializer=_begin, initargs=(request,)
    ) as pool:
        each = [pool.submit(_work, work, *job) for job in jobs]
        try:
            return [job.result() for job in each]
        except BrokenProcessPool:
            raise OSError(
                "A worker process has died, perhaps for want of memory; what it had done is kept. "
                "Go on where it stopped, or with fewer workers in another folder if need be."
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _work(work: Callable[..., Result], *job: Any) -> Result:
    return work(_heard, *job)


_heard: Request = StopRequest()
"""In a worker process: the request that it shares with the process which started it."""


def _begin(request: Request) -> None:
    """A worker has one core to itself; threads of its own would only contend for it."""
    global _heard
    _heard = request
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD}"
    # Signals may reach every process of a group; the first of them passes them on as a request.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    end_with_parent()
