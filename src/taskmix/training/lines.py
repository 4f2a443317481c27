"""Files to which lines of JSON are added, and of which checkpoints hold copies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from taskmix.files import append, blocks, explained, replace


class Lines:
    """Lines that are added one by one; none of them stays in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._length = 0
        self._digest = hashlib.sha256()
        self._unwritten = b""

    def start_over(self, source: Path | None) -> None:
        """Begin with the lines of another file, or with none, whatever was written before."""
        replace(self.path, blocks(source) if source else b"")
        self._length, self._digest, self._unwritten = 0, hashlib.sha256(), b""
        for block in blocks(self.path):
            self._length += len(block)
            self._digest.update(block)

    def add(self, line: Mapping[str, Any]) -> None:
        """Write one line, and those before it that could not be written then."""
        torn = bool(self._unwritten)
        self._unwritten += (json.dumps(line, allow_nan=False) + "\n").encode()
        with explained(f"write {self.path}"):
            append(self.path, self._unwritten, after=self._length if torn else None)
        self._length += len(self._unwritten)
        self._digest.update(self._unwritten)
        self._unwritten = b""

    def content(self) -> Iterator[bytes]:
        """All that was added, in blocks, what could not be written included.

        Raises an ``OSError`` if the file is no longer what was written.
        """
        digest = hashlib.sha256()
        for block in blocks(self.path, self._length):
            digest.update(block)
            yield block
        if digest.digest() != self._digest.digest():
            raise OSError(f"{self.path} was changed by another program")
        yield self._unwritten
