"""One folder, one owner: two processes that write to the same run would ruin it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from taskmix.files import explained

NAME = "lock"


@contextlib.contextmanager
def owning(folder: Path) -> Iterator[None]:
    """Be the only process that writes to ``folder``; a ``ValueError`` names one that does.

    The lock is the operating system's and ends with the process, however that ends: a file
    that a killed process left behind locks nothing.
    """
    path = folder / NAME
    with explained(f"write {path}"):
        descriptor = _open(path)
    try:
        os.truncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        # Removed while it is held, so that no one is robbed of a lock they have just taken.
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _open(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _still_there(descriptor, path):
                return descriptor
        except BlockingIOError:
            owner = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise ValueError(
                f"{path.parent} is being written by another process ({owner}); "
                f"wait for it to end, or stop it."
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _still_there(descriptor: int, path: Path) -> bool:
    """Whether the file is the one of that name: its last owner may have removed it."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    return False
