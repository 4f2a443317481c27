"""Being asked to stop, and noticing that nothing happens."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

HANG_UP: signal.Signals | None = getattr(signal, "SIGHUP", None)
"""The terminal was closed; `nohup` lets a program ignore that, and Windows does not know it."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, *([HANG_UP] if HANG_UP else []))
PATIENCE = 600.0
"""Seconds without progress before a line says so; ten times the longest chunk if that is more."""
TICK = 1.0
GRACE = 5.0
"""Seconds after a request until a run is ended from outside: what it compiles may take a minute,
and whoever asked, such as a scheduler, may not wait that long."""


class Stopped(Exception):
    """A run that was asked to stop, and did so in good order."""

    def __init__(self, signum: int, iteration: int) -> None:
        super().__init__(signum, iteration)
        self.signum = signum
        self.iteration = iteration


@runtime_checkable
class Request(Protocol):
    """To stop: the number of the signal, or 0 if there was none; processes may share it."""

    value: int


@dataclasses.dataclass
class StopRequest:
    """A request that only this process hears."""

    value: int = 0


class Watch:
    """Says whether to stop, and that nothing happens if nothing does."""

    def __init__(
        self,
        request: Request,
        tell: Callable[[str], None],
        leave: Callable[[int], None] = lambda signum: None,
    ) -> None:
        self._request = request
        self._tell = tell
        self._leave = leave
        self._asked_at: float | None = None
        self._since = time.monotonic()
        self._longest = 0.0
        self._told = 0

    @property
    def asked(self) -> int:
        return self._request.value

    def progressed(self) -> None:
        """To be called after every chunk."""
        now = time.monotonic()
        self._longest = max(self._longest, now - self._since)
        self._since, self._told = now, 0

    def look(self) -> None:
        """Say it once, and again each time that as much time has passed.

        A run that was asked to stop and did not come to it is left as it is.
        """
        if self.asked:
            self._asked_at = self._asked_at or time.monotonic()
            if time.monotonic() - self._asked_at > GRACE:
                self._leave(self.asked)
        idle = time.monotonic() - self._since
        patience = max(PATIENCE, 10 * self._longest)
        if idle > patience * (self._told + 1):
            self._told += 1
            self._tell(f"no progress for {idle / 60:.0f} minutes")


@contextlib.contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Look after a run from a thread of its own, as the run itself may be what hangs."""
    with attending(), _ticking(watch.look, "watch"):
        yield


_attending = 0
"""How many look at what is asked; a process has one run at a time, or several, one in another."""


@contextlib.contextmanager
def attending() -> Iterator[None]:
    """Meanwhile somebody sees to it that a request is met; without that, the process ends."""
    global _attending
    _attending += 1
    try:
        yield
    finally:
        _attending -= 1


@contextlib.contextmanager
def ending_unattended(request: Request) -> Iterator[None]:
    """End the process some seconds after a request that nobody attends to.

    A table may be read for minutes before anything is learned, and figures drawn afterwards.
    """
    since: list[float] = []

    def look() -> None:
        if not request.value or _attending:
            since.clear()
            return
        since.append(time.monotonic())
        if since[-1] - since[0] > GRACE:
            name = signal.Signals(request.value).name
            _end(f"{name}: stopped; the same command goes on.", request.value)

    with _ticking(look, "unattended"):
        yield


@contextlib.contextmanager
def _ticking(look: Callable[[], None], name: str) -> Iterator[None]:
    done = threading.Event()

    def tick() -> None:
        while not done.wait(TICK):
            look()

    thread = threading.Thread(target=tick, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextlib.contextmanager
def listening(request: Request, say: Callable[[str], None]) -> Iterator[None]:
    """Note ``SIGNALS`` in ``request`` rather than die of them; a second SIGINT is final.

    A thread hears them: the main one may be inside compiled code, for minutes. Does nothing
    outside of the main thread, where Python allows no handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ear, mouth = socket.socketpair()
    mouth.setblocking(False)

    def listen() -> None:
        while data := ear.recv(64):
            for number in data:
                if number not in SIGNALS:
                    continue
                if number == signal.SIGINT and request.value == signal.SIGINT:
                    _stop_at_once()
                request.value = number
                say(f"{signal.Signals(number).name}: stops; what was learned is kept")

    thread = threading.Thread(target=listen, name="signals", daemon=True)
    thread.start()
    # The handlers do nothing themselves: what counts is that the number reaches the thread.
    heard = [
        number
        for number in SIGNALS
        if number != HANG_UP or signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = {number: signal.signal(number, lambda *_: None) for number in heard}
    previous = signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)
    try:
        with ending_unattended(request):
            yield
    finally:
        signal.set_wakeup_fd(previous)
        for number, handler in before.items():
            signal.signal(number, handler)
        mouth.close()
        thread.join()
        ear.close()


def abandon(stop: Stopped) -> None:
    """End this process though the run in it goes on; a worker's end is told by its parent."""
    name = signal.Signals(stop.signum).name
    _end(f"{name}: stopped at iteration {stop.iteration}; taskmix resume goes on.", stop.signum)


def _stop_at_once() -> None:
    _end("stopped at once; taskmix resume goes on.", signal.SIGINT)


def _end(what: str, signum: int) -> None:
    """As safe as being killed: every file is whole or not there."""
    if multiprocessing.parent_process() is None:
        with contextlib.suppress(OSError):
            print(f"taskmix: {what}", file=sys.stderr, flush=True)
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(128 + signum)
