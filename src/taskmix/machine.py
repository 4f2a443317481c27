"""What this process has to compute with."""

from __future__ import annotations

import os

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"
"""Among XLA_FLAGS when JAX begins, it keeps computations to one thread."""


def cores() -> int:
    """The cores that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> int:
    """The threads that a computation of JAX may use."""
    return 1 if ONE_THREAD in os.environ.get("XLA_FLAGS", "") else cores()
