"""One folder, one owner: two processes that write to the same run would ruin it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from taskmix.files import NotPlain, explained, inside, open_plain

NAME = "lock"


class Refused(ValueError):
    """What was asked for cannot be done in this folder, and nothing in it was changed."""


@contextlib.contextmanager
def owning(folder: Path) -> Iterator[None]:
    """Be the only process that writes to ``folder``; a ``Refused`` names one that does.

    The lock is the operating system's and ends with the process, however that ends: a file
    that a killed process left behind locks nothing.
    """
    path = inside(folder, NAME)
    # The lock would write into whatever it is: a file that has another name, too, or a FIFO.
    with contextlib.suppress(FileNotFoundError), open_plain(path) as file:
        if os.fstat(file.fileno()).st_nlink > 1:
            raise NotPlain(f"{path} is a file under another name, too; remove it.")
    lock = FileLock(path, timeout=0, fallback_to_soft=False, on_acquired=_sign)
    with explained(f"write {path}"):
        try:
            lock.acquire()
        except Timeout:
            raise Refused(
                f"{folder} is being written by another process ({_owner(path)}); "
                f"wait for it to end, or stop it."
            ) from None
    try:
        yield
    finally:
        # Removed while it is held, so that no one is robbed of a lock they have just taken.
        with contextlib.suppress(OSError):
            path.unlink()
        lock.release()


def _sign(descriptor: int) -> None:
    os.truncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())


def _owner(path: Path) -> str:
    with contextlib.suppress(OSError), open_plain(path) as file:
        return file.read(32).decode(errors="replace").strip() or "unknown"
    return "unknown"
