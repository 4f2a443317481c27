"""What this process has to compute with, and how long it lives."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import wait

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"
"""Among XLA_FLAGS when JAX begins, it keeps computations to one thread."""


def cores() -> int:
    """The cores that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> int:
    """The threads that a computation of JAX may use."""
    return 1 if ONE_THREAD in os.environ.get("XLA_FLAGS", "") else cores()


def end_with_parent() -> None:
    """Let this worker process live no longer than the one that started it."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "only a worker has a parent to end with"

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=watch, name="parent", daemon=True).start()
