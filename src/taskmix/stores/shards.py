"""Writing a store so that it is either whole or not there."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from taskmix.files import create, explained, sha256_of, sync, write_bytes
from taskmix.stores.manifest import HEADER, NAME, Manifest, Shard, shard_header

SPARE = 64 << 20
"""Bytes to leave free on the disk."""


@contextlib.contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder beside ``out`` that takes its name in the end, and vanishes if anything fails."""
    if out.exists() or out.is_symlink():
        raise FileExistsError(f"{out} already exists; choose another folder or remove it.")
    made: list[Path] = []
    partial = out.with_name(f".{out.name}.partial-{secrets.token_hex(4)}")
    try:
        with explained(f"write {out}"):
            for parent in reversed(out.parents):
                if not parent.exists():
                    parent.mkdir()
                    made.append(parent)
            partial.mkdir()
        yield partial
        with explained(f"write {out}"):
            sync(partial)
            partial.rename(out)
            sync(out.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        for parent in reversed(made):
            with contextlib.suppress(OSError):
                parent.rmdir()
        raise


def check_space(folder: Path, needed: int) -> None:
    """Complain before the work rather than after it. The disk may still fill up meanwhile."""
    free = shutil.disk_usage(folder).free
    if free < needed + SPARE:
        raise OSError(
            f"The store needs {needed / 1e6:,.0f} MB, and {folder.parent} has {free / 1e6:,.0f} MB "
            "free; make room there or choose another folder."
        )


class ShardWriter:
    """The file of one split, written in any order: every image has a place from the beginning.

    Plain writes, not a memory map: on a full disk a write fails, and a memory map kills.
    """

    def __init__(self, path: Path, places: int, size: int, channels: int) -> None:
        self.path = path
        self.size = size
        self.channels = channels
        self.filled = np.zeros(places, bool)
        self._bytes = size * size * channels
        # A source that turns out to have colours is written once more.
        path.unlink(missing_ok=True)
        self._file = create(path)

    def put(self, place: int, pixels: np.ndarray) -> None:
        self._file.seek(HEADER + place * self._bytes)
        self._file.write(np.ascontiguousarray(pixels).data)
        self.filled[place] = True

    def drop(self, place: int) -> None:
        """Leave a gap where an image turned out to be one too many."""
        self.filled[place] = False

    def finish(self, classes: dict[str, int]) -> Shard:
        """Close the gaps. ``classes`` says how many images are left of each class."""
        images = int(self.filled.sum())
        self._close_gaps()
        self._file.seek(0)
        self._file.write(shard_header((images, self.size, self.size, self.channels)))
        self._file.truncate(HEADER + images * self._bytes)
        self._file.flush()
        os.fsync(self._file.fileno())
        self.close()
        return Shard(classes, self.path.stat().st_size, sha256_of(self.path))

    def close(self) -> None:
        self._file.close()

    def _close_gaps(self) -> None:
        for target, place in enumerate(np.flatnonzero(self.filled).tolist()):
            # Images only move forwards, onto places whose images have moved already.
            if target != place:
                self._file.seek(HEADER + place * self._bytes)
                image = self._file.read(self._bytes)
                self._file.seek(HEADER + target * self._bytes)
                self._file.write(image)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    write_bytes(folder / NAME, manifest.text().encode())
