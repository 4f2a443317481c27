"""Zip and tar archives, read in place: nothing of them is ever written to disk.

An archive may come from anywhere, so it is not believed. Names that lead out of it, links and
devices are refused, and so is an archive that unpacks to far more than its own size.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from taskmix.files import RATIO, most_unpacked, open_plain
from taskmix.stores.sources import (
    DEEPEST,
    LARGEST_CACHE,
    LARGEST_FILE,
    MEBIBYTE,
    MOST_FILES,
    FolderSource,
    Source,
    check_size,
    checked_name,
    hidden,
)

LARGEST_ARCHIVE = 256 * 1024 * MEBIBYTE
"""Unpacked; all of ImageNet has 150 GiB."""
LARGEST_HEADER = MEBIBYTE
"""A tar header, long names included."""
RECORD = re.compile(rb"([0-9]{1,7}) [^=\n]{1,200}=")
"""The beginning of a record of a pax header: its length and a keyword."""
DIGITS = re.compile(rb"[0-9]{500}")
LONG, PAX = b"LK", b"xgX"
"""Kinds of tar headers that a long name or a pax header follows."""
PIECE = MEBIBYTE
"""Read at a time, so that a size that is a lie costs no memory."""
UNPACKERS: dict[bytes, Callable[..., object]] = {
    b"\x1f\x8b": gzip.GzipFile,
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}
"""By the first bytes of a packed file."""
Member = TypeVar("Member")
BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,  # how zipfile says that it does not know a compression
    RecursionError,  # how tarfile ends in headers that describe headers
)


def open_source(path: Path) -> Source:
    """The files of a folder or of an archive; which one shows in the content, not the name."""
    if path.is_dir():
        return FolderSource(path)
    if not path.is_file():
        raise ValueError(f"SOURCE {path} does not exist; give a folder or an archive of images.")
    with _readable(path):
        return ZipSource(path) if zipfile.is_zipfile(path) else TarSource(path)


class ZipSource:
    """The files of a zip archive."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._zip = zipfile.ZipFile(path)
        try:
            self._members = self._listed()
        except BaseException:
            self._zip.close()
            raise
        self.sizes = {name: member.file_size for name, member in self._members.items()}

    def read(self, name: str) -> bytes:
        return bytes(self._read(name, LARGEST_FILE))

    def buffer(self, name: str) -> memoryview:
        return memoryview(self._read(name, LARGEST_CACHE))

    def close(self) -> None:
        self._zip.close()

    def _listed(self) -> dict[str, zipfile.ZipInfo]:
        limits = _Limits(self.path)
        members: dict[str, zipfile.ZipInfo] = {}
        for member in sorted(self._zip.infolist(), key=lambda member: member.header_offset):
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _refused(self.path, member.filename, "is a link or a device")
            if member.flag_bits & 1:
                raise _refused(self.path, member.filename, "needs a password")
            limits.add(member.filename, member.file_size)
            folder = member.filename.endswith("/")
            _add(members, member.filename, member, folder, self.path)
        return members

    def _read(self, name: str, largest: int) -> bytearray:
        member = self._members[name]
        check_size(name, member.file_size, largest)
        with _readable(self.path, name), self._zip.open(member) as file:
            content = _read_exactly(file.read, member.file_size, name)
            file.read(1)  # at the end of the file zipfile compares the checksum
            return content


class TarSource:
    """The files of a tar archive, which may be packed with gzip, bzip2 or xz.

    A packed archive can only be read forwards, so reading its files in the order of ``sizes``
    unpacks it once, and any other order many times.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream = _Metered(path)
        try:
            self._members = self._listed()
        except BaseException:
            self._stream.close()
            raise
        self.sizes = {name: size for name, (_, size) in self._members.items()}

    def read(self, name: str) -> bytes:
        return bytes(self._read(name, LARGEST_FILE))

    def buffer(self, name: str) -> memoryview:
        return memoryview(self._read(name, LARGEST_CACHE))

    def close(self) -> None:
        self._stream.close()

    def _listed(self) -> dict[str, tuple[int, int]]:
        """Where the content of each file begins, and how long it is."""
        limits = _Limits(self.path)
        members: dict[str, tuple[int, int]] = {}
        with tarfile.open(fileobj=cast("IO[bytes]", self._stream), mode="r:") as archive:
            while (member := archive.next()) is not None:
                # It would keep all of them, at a kilobyte each.
                cast("Any", archive).members = []
                if member.issparse() or not (member.isreg() or member.isdir()):
                    raise _refused(self.path, member.name, "is a link, a device or sparse")
                limits.add(member.name, member.size)
                place = (member.offset_data, member.size)
                _add(members, member.name, place, member.isdir(), self.path)
        # tarfile takes a damaged header for the end, which is a block of zeros.
        self._stream.listing = False
        if self._stream.last.strip(b"\0"):
            raise tarfile.ReadError("a header is damaged")
        while self._stream.read(PIECE):
            pass  # the checksum of what was unpacked comes last
        return members

    def _read(self, name: str, largest: int) -> bytearray:
        start, size = self._members[name]
        check_size(name, size, largest)
        with _readable(self.path, name):
            self._stream.seek(start)
            return _read_exactly(self._stream.read, size, name)


class _Metered:
    """What a tar archive unpacks to, which stops where a bomb would go off."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with open_plain(path, follow=True) as file:
            start = file.read(6)
        unpack = next((u for magic, u in UNPACKERS.items() if start.startswith(magic)), open)
        self._file = cast("IO[bytes]", unpack(path, "rb"))
        self._most = _most_unpacked(path)
        self.last = b""
        self.listing = True
        self._comes = b""

    def read(self, size: int) -> bytes:
        # Members are read in pieces; only a header with an endless name asks for more.
        if size > max(PIECE, LARGEST_HEADER):
            raise ValueError(f"{self.path} has a header of {size:,} bytes; it is not read.")
        self._check(self.tell() + size)
        self.last = self._file.read(size)
        if self.listing:
            self._follow()
        return self.last

    def _follow(self) -> None:
        """Look at what is read as headers, before tarfile does."""
        if self._comes and self._comes in PAX:
            _check_pax(self.last, self.path)
        kind = self.last[156:157]
        self._comes = kind if not self._comes and kind and kind in LONG + PAX else b""

    def seek(self, position: int) -> int:
        self._check(position)
        return self._file.seek(position)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()

    def _check(self, position: int) -> None:
        # The last read may ask for a piece beyond the end.
        if position > self._most + PIECE:
            raise _bomb(self.path)


class _Limits:
    """Counts what an archive claims to hold, before any of it is unpacked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = 0
        self.total = 0
        self.most = _most_unpacked(path)

    def add(self, name: str, size: int) -> None:
        self.files += 1
        self.total += size
        if size < 0:
            raise _refused(self.path, name, "has a negative size")
        if self.files > MOST_FILES:
            raise ValueError(f"{self.path} holds more than {MOST_FILES:,} files; it is not read.")
        if self.total > self.most:
            raise _bomb(self.path)


def _most_unpacked(path: Path) -> int:
    return min(LARGEST_ARCHIVE, most_unpacked(path))


def _bomb(path: Path) -> ValueError:
    return ValueError(
        f"{path} unpacks to more than {RATIO} times its size, or to more than "
        f"{LARGEST_ARCHIVE // MEBIBYTE // 1024} GiB; unpack it yourself if you trust it."
    )


def _check_pax(header: bytes, path: Path) -> None:
    """Records one after the other, as tarfile takes forever over what is none of them."""
    content = header.rstrip(b"\0")
    at = 0
    while at < len(content):
        record = RECORD.match(content, at)
        if record is None or not record.end() - at <= int(record[1]) <= len(content) - at:
            raise tarfile.ReadError("a pax header is damaged")
        at += int(record[1])
    if DIGITS.search(content):
        raise ValueError(f"{path} has a pax header that holds an endless number; it is not read.")


def _refused(path: Path, name: str, why: str) -> ValueError:
    return ValueError(f"{path} holds {name!r}, which {why}; make an archive of plain files.")


def _add(members: dict[str, Member], name: str, member: Member, folder: bool, path: Path) -> None:
    plain = checked_name(name, path)
    # As in a folder: what lies deeper belongs to no layout.
    if folder or hidden(plain) or plain.count("/") >= DEEPEST:
        return
    if not plain:
        raise _refused(path, name, "is no name of a file")
    if plain in members:
        raise _refused(path, plain, "is there twice")
    members[plain] = member


def _read_exactly(read: Callable[[int], bytes], size: int, name: str) -> bytearray:
    # No room is made for what is only claimed to be there.
    content = bytearray()
    while len(content) < size:
        piece = read(min(PIECE, size - len(content)))
        if not piece:
            raise EOFError(f"{name} ends early")
        content += piece
    return content


@contextlib.contextmanager
def _readable(path: Path, name: str | None = None) -> Iterator[None]:
    what = f"{name} in {path}" if name else f"{path}"
    try:
        yield
    except (*BROKEN, OSError) as error:
        # gzip and bz2 tell of damage with an OSError that no system call has caused.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(
            f"{what} is not a readable zip or tar archive ({error or type(error).__name__}); "
            "fetch it again."
        ) from error
