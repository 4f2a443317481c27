"""What this process has to compute with, and how long it lives."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing.connection import wait

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"
"""Among XLA_FLAGS when JAX begins, it keeps computations to one thread."""

THREADS = "PJRT_NPROC"
"""Environment variable that says how many threads JAX has, when it is first used."""
LEAST_THREADS = 8
MOST_DEVICES = 512
"""Of a processor, for one process; each has threads of its own."""
HEARTBEAT = 30
"""Seconds after which a process that says nothing is taken to be dead."""

_asked_too_late = False


def ask_for_threads() -> None:
    """Let JAX have so many threads that it cannot hang, unless the user has asked for some.

    JAX lets the factorisation of a batch of matrices wait, in a thread of its pool, for work that
    only threads of this pool do. When as many wait as there are threads, they wait for ever (seen
    with JAX 0.10.1 and two threads). So there have to be more of them than can wait.
    """
    global _asked_too_late
    if THREADS in os.environ:
        return
    os.environ[THREADS] = str(max(LEAST_THREADS, os.cpu_count() or 1))
    # Only JAX itself knows whether it is in use; where it does not tell, all is taken to be well.
    bridge = sys.modules.get("jax._src.xla_bridge")
    in_use = getattr(bridge, "backends_are_initialized", lambda: False)
    _asked_too_late = (os.cpu_count() or 1) < LEAST_THREADS and bool(in_use())


def quieten() -> None:
    """Keep the compiler's own messages off the terminal, unless the user has asked for them.

    With every program that was kept from the last start it says, as an error and in a thousand
    characters, which of its own preferences no processor has. What matters raises an exception.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def ask_for_devices(devices: int) -> None:
    """Let JAX have so many devices on a CPU, unless it is in use already.

    Each of them is a part of the same cores. They wait for each other in threads of one pool, so
    there have to be more of these than devices.
    """
    if devices <= 1:
        return
    if devices > MOST_DEVICES:
        raise ValueError(f"devices is {devices}; one process has {MOST_DEVICES} at most.")
    threads = os.environ.get(THREADS, "")
    if not threads.isdigit() or int(threads) < 2 * devices + LEAST_THREADS:
        os.environ[THREADS] = str(2 * devices + LEAST_THREADS)
    import jax

    # Where it is too late, whoever needs the devices says how many there are.
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", devices)


def join(coordinator: str, processes: int, process: int, devices: int = 0) -> None:
    """Make this one of several processes, perhaps on several machines, that train together.

    To be called before anything is computed, by each of them. On a CPU they talk through gloo.

    Parameters
    ----------
    coordinator
        Address and port of the first process, which all others can reach: ``HOST:PORT``. Whoever
        can reach it can take part, so it belongs into a network of one's own.
    processes
        How many there are.
    process
        Which one this is, from 0.
    devices
        How many all of them have together on a CPU; one each if it is 0.

    Examples
    --------
    >>> join("node-1:4000", processes=2, process=2)
    Traceback (most recent call last):
    ValueError: process is 2; it must be 0 to 1, as there are 2 processes.
    """
    if not 0 <= process < processes:
        raise ValueError(
            f"process is {process}; it must be 0 to {processes - 1}, as there are {processes} "
            f"processes."
        )
    host, _, port = coordinator.rpartition(":")
    known = port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 1 << 16
    if not host or not host.isprintable() or not known:
        raise ValueError(f"coordinator is {coordinator!r}; it must be HOST:PORT.")
    if devices % processes:
        raise ValueError(f"devices is {devices}; {processes} processes must have as many each.")
    ask_for_devices(devices // processes)
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(coordinator, processes, process, heartbeat_timeout_seconds=HEARTBEAT)


def enough_threads() -> bool:
    """Whether JAX has so many threads that it cannot hang, as far as can be known."""
    return not _asked_too_late


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
