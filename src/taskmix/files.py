"""Files that are whole or not there, and that are what they seem to be.

A folder may come from somebody else. So what is in it is opened without following links, only
if it is a regular file, and read up to a limit; and what is written is created anew beside the
old and takes its name in the end.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

BLOCK = 1 << 16
"""Bytes of a file that are in memory at a time."""
LARGEST_JSON = 16 << 20
"""Bytes of a file with one JSON object; a large one of ours has a tenth of that."""
LARGEST_LINES = 64 << 20
"""Bytes of a file with a JSON object per line. JSON takes up to twenty times its size in memory."""
RATIO = 100
"""Unpacked to packed. Tables and pixels shrink by 2 to 20; a bomb has 1000."""
ALLOWANCE = 64 << 20
"""Bytes that any file may unpack to: small sets of drawings do shrink by more than RATIO."""
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""A FIFO without a writer would keep a reader waiting for ever."""


class NotPlain(ValueError):
    """A link, a device or a FIFO where a plain file or folder belongs."""


def inside(folder: Path, *names: str) -> Path:
    """A path below a folder, none of whose parts is a link; what is not there yet is none.

    The folder itself is the user's choice, and may be reached by links.
    """
    path = folder
    for name in names:
        path = path / name
        if _is_link(path):
            raise NotPlain(
                f"{path} is a link, which could lead anywhere; put what it leads to in its place."
            )
    return path


def apart(out: Path, *read: Any) -> Path:
    """A file to write, which is none of the files that it is made of, nor within such a folder.

    >>> apart(Path("runs/shops/said.csv"), "known.csv", "runs/shops")
    Traceback (most recent call last):
    ValueError: runs/shops/said.csv would be written over or into what is read...
    """
    for one in read:
        if not isinstance(one, str | Path):
            continue
        place = out.resolve()
        if Path(one).resolve() in (place, *place.parents) or _same(out, Path(one)):
            raise ValueError(
                f"{out} would be written over or into what is read ({one}); choose another file."
            )
    return out


def _same(one: Path, other: Path) -> bool:
    """Whether both are there, and names of one file."""
    try:
        return one.samefile(other)
    except OSError:
        return False


def open_plain(path: Path, follow: bool = False) -> BinaryIO:
    """Open a regular file for reading; ``NotPlain`` if it is a link, a device or a FIFO.

    ``follow`` is for what the user names: there a link is as good as the file.
    """
    if not follow:
        inside(path.parent, path.name)
    descriptor = os.open(path, os.O_RDONLY | NO_WAIT | (0 if follow else NO_FOLLOW))
    return _checked(descriptor, path, "rb")


def read_bytes(path: Path, largest: int = LARGEST_JSON) -> bytes:
    """A whole file, or a ``ValueError`` if it has more than so many bytes."""
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        # No more than there is: room would be made for all that is asked for.
        content = file.read(size) if size <= largest else b""
    if size > largest:
        raise ValueError(f"{path} has more than {largest >> 20} MiB; it is not read.")
    return content


def most_unpacked(path: Path) -> int:
    """Bytes that a packed file may unpack to; more than that is a bomb."""
    return ALLOWANCE + RATIO * path.stat().st_size


def _checked(descriptor: int, path: Path, mode: str) -> BinaryIO:
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotPlain(f"{path} is not a regular file; remove it, or put a file in its place.")
        return cast("BinaryIO", os.fdopen(descriptor, mode))
    except BaseException:
        os.close(descriptor)
        raise


def _is_link(path: Path) -> bool:
    """Symbolic links, and what Windows calls junctions."""
    try:
        found = path.lstat()
    except (OSError, ValueError):
        return False
    reparse = getattr(stat, "FILE_ATTRIBUTE_REPARSE_POINT", 0)
    return stat.S_ISLNK(found.st_mode) or bool(getattr(found, "st_file_attributes", 0) & reparse)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write the whole file or nothing: a reader never sees half of it."""
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    replace(path, text.encode())


def replace(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Put a whole new file in the place of an old one."""
    inside(path.parent, path.name)
    partial = path.with_name(path.name + ".partial")
    with explained(f"write {path}"):
        # What an interruption left, or a link: the name goes, and nothing that it leads to.
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()
        write_bytes(partial, content)
        partial.replace(path)
        sync(path.parent)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file to write to, which takes the place of an old one once it is whole."""
    inside(path.parent, path.name)
    partial = path.with_name(path.name + ".partial")
    with explained(f"write {path}"):
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()
        with create(partial) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync(path.parent)


def replace_all(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Put several new files, which belong together, in the place of old ones.

    All are on disk before the first gets its name, so that old and new ones are mixed for no
    longer than it takes to rename them; checksums must tell.
    """
    partials = {name: inside(folder, name).with_name(f"{name}.partial") for name in contents}
    with explained(f"write {folder}"):
        for name, partial in partials.items():
            with contextlib.suppress(FileNotFoundError):
                partial.unlink()
            write_bytes(partial, contents[name])
        for name, partial in partials.items():
            partial.replace(folder / name)
        sync(folder)


def write_bytes(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Write a new file, as a whole or block by block, and wait until it is on disk."""
    with create(path) as file:
        file.writelines([content] if isinstance(content, bytes) else content)
        file.flush()
        os.fsync(file.fileno())


def create(path: Path) -> BinaryIO:
    """Open a new file for writing and reading; a ``FileExistsError`` if anything has its name."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_FOLLOW | NO_WAIT
    return _checked(os.open(path, flags, 0o666), path, "w+b")


def append(path: Path, content: bytes, after: int | None = None) -> None:
    """Add to a file, or put in the place of all that follows its first ``after`` bytes.

    It is opened anew for each call, so that everything written survives a crash.
    """
    inside(path.parent, path.name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | NO_FOLLOW | NO_WAIT
    with _checked(os.open(path, flags, 0o666), path, "ab") as file:
        if os.fstat(file.fileno()).st_nlink != 1:
            raise NotPlain(f"{path} is a file under another name, too; put a copy in its place.")
        if after is not None:
            file.truncate(after)
        file.write(content)


def blocks(path: Path, length: int | None = None) -> Iterator[bytes]:
    """A file, or the beginning of it, in pieces that fit in memory."""
    with open_plain(path) as file:
        left = os.fstat(file.fileno()).st_size if length is None else length
        while block := file.read(min(BLOCK, left)):
            left -= len(block)
            yield block


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    for block in blocks(path):
        digest.update(block)
    return digest.hexdigest()


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
