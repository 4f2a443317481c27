"""Where images come from: a folder, or an archive that is read without being unpacked."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from taskmix.files import open_plain

MEBIBYTE = 1 << 20
LARGEST_FILE = 64 * MEBIBYTE
"""An image or a table; the largest photograph of ImageNet has 15 MiB."""
LARGEST_CACHE = 4096 * MEBIBYTE
"""A pickled cache; that of miniImageNet's training split has 776 MiB."""
MOST_FILES = 2_000_000
"""Files of a source; all of ImageNet has 1.3 million."""
LONGEST_NAME = 4096
"""Characters; no system has longer paths."""
DEEPEST = 6
"""Folders within folders: the deepest layout has four, and a link may lead round in circles."""


@runtime_checkable
class Images(Protocol):
    """Images by name."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """Bytes of each, in the order in which they are read fastest."""

    def read(self, name: str) -> bytes | np.ndarray:
        """The content of an image file, or the pixels where they were never a file."""


@runtime_checkable
class Source(Images, Protocol):
    """Files by name, with ``/`` between folders."""

    def buffer(self, name: str) -> memoryview:
        """The content of a file too large to be copied about."""

    def close(self) -> None:
        """Let go of what is open."""


class FolderSource:
    """The files of a folder. Links are followed: the folder is the user's own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sizes = dict(sorted(islice(_walk(path, "", DEEPEST), MOST_FILES + 1)))
        if len(self.sizes) > MOST_FILES:
            raise ValueError(f"{path} holds more than {MOST_FILES:,} files; give a smaller SOURCE.")
        self._maps: list[mmap.mmap] = []

    def read(self, name: str) -> bytes:
        check_size(name, self.sizes[name], LARGEST_FILE)
        with open_plain(self.path / name, follow=True) as file:
            return file.read(LARGEST_FILE)

    def buffer(self, name: str) -> memoryview:
        check_size(name, self.sizes[name], LARGEST_CACHE)
        with open_plain(self.path / name, follow=True) as file:
            if self.sizes[name] == 0:
                return memoryview(b"")
            self._maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return memoryview(self._maps[-1])

    def close(self) -> None:
        for opened in self._maps:
            # An array may still look into it; then it is closed together with the array.
            with contextlib.suppress(BufferError):
                opened.close()


class Within:
    """One folder of a source, whose name is left out of the names of its files."""

    def __init__(self, source: Source, folder: str) -> None:
        self._source = source
        self._folder = folder
        self.sizes = {
            name.removeprefix(folder): size
            for name, size in source.sizes.items()
            if name.startswith(folder)
        }

    def read(self, name: str) -> bytes | np.ndarray:
        return self._source.read(self._folder + name)

    def buffer(self, name: str) -> memoryview:
        return self._source.buffer(self._folder + name)

    def close(self) -> None:
        self._source.close()


def text_of(source: Source, name: str) -> str:
    """A small text file, such as a table."""
    check_size(name, source.sizes[name], LARGEST_FILE)
    try:
        return bytes(source.buffer(name)).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8 text ({error.reason}); save it as UTF-8.") from None


def check_size(name: str, size: int, largest: int) -> None:
    if size > largest:
        raise ValueError(
            f"{name} has {size / MEBIBYTE:,.0f} MiB; at most {largest // MEBIBYTE:,} MiB are read."
        )


def checked_name(name: str, where: Path) -> str:
    """The name of an archive's member in its plain form, or an error if it leads elsewhere."""
    if len(name) > LONGEST_NAME:
        raise ValueError(
            f"{where} holds a file whose name has {len(name):,} characters; rename it."
        )
    plain = name.replace("\\", "/")
    parts = [part for part in plain.split("/") if part not in ("", ".")]
    if not plain.isprintable():
        raise ValueError(f"{where} holds a file whose name cannot be printed: {name!r}; rename it.")
    if plain.startswith("/") or plain[1:2] == ":" or ".." in parts:
        raise ValueError(f"{where} holds {name!r}, which leads out of the archive; it is not read.")
    return "/".join(parts)


def hidden(name: str) -> bool:
    """Whether a file is the system's own, such as ``.DS_Store`` or ``__MACOSX/._a.png``.

    >>> hidden("__MACOSX/cat/._1.png"), hidden("cat/1.png")
    (True, False)
    """
    return any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))


def _walk(folder: Path, prefix: str, depth: int) -> Iterator[tuple[str, int]]:
    if depth == 0:
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            name = prefix + entry.name
            if hidden(entry.name):
                continue
            if not name.isprintable():
                raise ValueError(f"{folder} holds {name!r}, which cannot be printed; rename it.")
            if entry.is_dir():
                yield from _walk(folder / entry.name, f"{name}/", depth - 1)
            elif entry.is_file():
                yield name, entry.stat().st_size
