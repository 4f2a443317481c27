"""Files that are whole or not there, whatever happens while they are written."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

BLOCK = 1 << 16
"""Bytes of a file that are in memory at a time."""


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write the whole file or nothing: a reader never sees half of it."""
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    replace(path, text.encode())


def replace(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Put a whole new file in the place of an old one."""
    partial = path.with_name(path.name + ".partial")
    with explained(f"write {path}"):
        write_bytes(partial, content)
        partial.replace(path)
        sync(path.parent)


def write_bytes(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Write a file, as a whole or block by block, and wait until it is on disk."""
    with path.open("wb") as file:
        file.writelines([content] if isinstance(content, bytes) else content)
        file.flush()
        os.fsync(file.fileno())


def append(path: Path, content: bytes, after: int | None = None) -> None:
    """Add to a file, or put in the place of all that follows its first ``after`` bytes.

    It is opened anew for each call, so that everything written survives a crash.
    """
    with path.open("ab") as file:
        if after is not None:
            file.truncate(after)
        file.write(content)


def blocks(path: Path, length: int | None = None) -> Iterator[bytes]:
    """A file, or the beginning of it, in pieces that fit in memory."""
    left = path.stat().st_size if length is None else length
    with path.open("rb") as file:
        while block := file.read(min(BLOCK, left)):
            left -= len(block)
            yield block


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(folder: Path) -> None:
    """Wait until the names in a folder are on disk, where the system can do that for folders."""
    with contextlib.suppress(PermissionError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Say what could not be done, and what to do."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "make room there" if full else "make it writable"
        raise OSError(
            f"Cannot {what}: {error.strerror or error}; {advice} or choose another folder."
        ) from error
