"""Tables in pieces that fit in memory: files, frames of any library, rows as they come."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import narwhals as nw
import polars as pl
import polars.selectors as cs

from taskmix.files import RATIO, most_unpacked
from taskmix.tables.faults import GZIP, at_fault, opened
from taskmix.tables.problems import TableError, problem

ROWS = 1 << 16
"""Rows that are read at a time."""
LIVE_ROWS = 1 << 10
"""Rows of an iterator that are taken at a time."""
UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
"""What polars makes of a damaged file."""
OTHERS = {
    b"BZh91A": "bzip2",
    b"\xfd7z": "xz",
    b"\x28\xb5\x2f": "zstd",
    b"\x78\x01": "zlib",
    b"\x78\x9c": "zlib",
    b"\x78\xda": "zlib",
    b"PK\x03\x04": "zip or Excel",
    b"ARROW1": "Feather",
    b"\xff\xfe": "UTF-16 text (save it as UTF-8)",
    b"\xfe\xff": "UTF-16 text (save it as UTF-8)",
    b'{"': "JSON",
}
"""What people take for a CSV file, by its first bytes."""
SEPARATORS = ",;\t|"
MOST_COLUMNS = 1 << 14
"""Of a table, each of which is read and looked at."""
NUMBER = 8
"""Bytes of a value in memory."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """Some rows of a table, columns as they stand there."""

    frame: pl.DataFrame
    first: int
    """Number of the first row in the whole table, from 1."""


@dataclasses.dataclass(frozen=True)
class Table:
    """Something with rows: ``pieces`` reads them, of the columns asked for only."""

    where: str
    """What errors call it."""
    names: tuple[str, ...]
    read: Callable[[Sequence[str]], Iterator[pl.DataFrame]]
    again: bool
    """Whether it can be read more than once; what comes live cannot."""

    def __post_init__(self) -> None:
        if len(self.names) > MOST_COLUMNS:
            count = f"it has {len(self.names):,} columns, more than {MOST_COLUMNS:,}"
            raise problem(self.where, f"{count}; leave out those that are not needed.")

    def pieces(self, columns: Sequence[str]) -> Iterator[Piece]:
        """The rows in order, in pieces that are not empty."""
        first = 1
        for frame in self.read(columns):
            if frame.height:
                yield Piece(frame, first)
                first += frame.height


def table_of(source: Any, where: str = "the table") -> Table:
    """A file, a frame of any library, a mapping of columns, or an iterator of rows or frames.

    Errors call what has no path of its own ``where``.
    """
    if isinstance(source, Table):
        return source
    if isinstance(source, str | Path):
        return _file(Path(source))
    if isinstance(source, Mapping):
        source = _made(dict(source), where)
    frame = _frame(source)
    if frame is not None:
        return _in_memory(frame, where)
    if isinstance(source, Iterable) and not hasattr(source, "__array__"):
        return _live(iter(source))
    raise TableError(
        f"A {type(source).__name__} is no table; give the path of a CSV or Parquet file, a frame "
        f"(pandas, polars, pyarrow), or an iterator of rows or of frames."
    )


def _file(path: Path) -> Table:
    if not path.is_file():
        what = "it is no file" if path.exists() else "there is no such file"
        what = "it is a folder" if path.is_dir() else what
        raise problem(str(path), f"{what}; give the path of a CSV or Parquet file.")
    if not _is_text(path):
        raise problem(str(path), "its path has bytes that are no text; rename it.")
    if not path.stat().st_size:
        raise problem(str(path), "the file is empty; it needs a heading and rows.")
    if path.suffix.lower() in (".parquet", ".pq"):
        return _parquet(path)
    _check_packed(path)
    names, separator = _heading(path)

    def read(columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        lazy = pl.scan_csv(
            path,
            infer_schema=False,
            has_header=False,
            skip_rows=1,
            new_columns=list(names),
            separator=separator,
            encoding="utf8-lossy",
            glob=False,
            raise_if_empty=False,
            schema=dict.fromkeys(names, pl.String),
        ).select(cs.by_name(*columns))
        try:
            yield from _explained(lazy, str(path))
        except TableError as error:
            raise at_fault(path, len(names), separator) or error from None

    return Table(str(path), names, read, again=True)


def _is_text(path: Path) -> bool:
    """Polars knows no other paths."""
    try:
        return bool(str(path).encode())
    except UnicodeEncodeError:
        return False


def _check_packed(path: Path) -> None:
    """Unpack once and keep nothing of it, as polars takes all of it into memory."""
    with path.open("rb") as raw:
        if raw.read(2) != GZIP:
            return
    most, size = most_unpacked(path), 0
    try:
        with gzip.open(path) as file:
            while piece := file.read(1 << 20):
                size += len(piece)
                if size > most:
                    raise _bomb(path)
    except (OSError, EOFError, zlib.error) as error:
        raise problem(str(path), f"it cannot be read ({_short(error)}).") from None


def _bytes_of_texts(values: pl.Series) -> int:
    """What they take when every row has its own; a long one may be written once for all rows."""
    if values.dtype == pl.String:
        return int(values.str.len_bytes().sum())
    if values.dtype in (pl.Categorical, pl.Enum):
        return int(values.cat.len_bytes().sum())
    return 0


def _bomb(path: Path) -> TableError:
    return problem(
        str(path), f"it unpacks to more than {RATIO} times its size; unpack it if you trust it."
    )


def _parquet(path: Path) -> Table:
    try:
        names = tuple(pl.read_parquet_schema(path))
        rows = pl.scan_parquet(path, glob=False).select(pl.len()).collect().item()
    except UNREADABLE as error:
        raise problem(str(path), f"it is no Parquet file ({_short(error)}).") from None

    def read(columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        # A value that repeats takes no room in the file.
        if rows * len(columns) * NUMBER > most_unpacked(path):
            raise _bomb(path)
        lazy = pl.scan_parquet(path, glob=False).select(cs.by_name(*columns))
        left = most_unpacked(path)
        for frame in _explained(lazy, str(path)):
            left -= sum(map(_bytes_of_texts, frame))
            if left < 0:
                raise _bomb(path)
            yield frame

    return Table(str(path), names, read, again=True)


def _explained(lazy: pl.LazyFrame, where: str) -> Iterator[pl.DataFrame]:
    try:
        yield from lazy.collect_batches(chunk_size=ROWS, maintain_order=True)
    except UNREADABLE as error:
        raise problem(where, f"it cannot be read as a table ({_short(error)}).") from None


def _heading(path: Path) -> tuple[tuple[str, ...], str]:
    """Names of the columns, stripped, and what separates them.

    A name that comes twice is told apart by a number; to use such a column is an error.
    """
    try:
        with path.open("rb") as raw:
            begins = raw.read(6)
        with opened(path) as file:
            line = file.readline(1 << 20)
    except (OSError, EOFError, zlib.error) as error:
        raise problem(str(path), f"it cannot be read ({_short(error)}).") from None
    other = next((name for first, name in OTHERS.items() if begins.startswith(first)), None)
    if other is not None:
        raise problem(
            str(path),
            f"it is a file of {other}; give a CSV file, plain or packed with gzip, a "
            f"Parquet file, or the frame that another library reads from it.",
        )
    separator = max(SEPARATORS, key=line.count)
    names = [name.strip() for name in next(csv.reader([line], delimiter=separator), [])]
    if not any(names):
        raise problem(str(path), "the first line is empty; it must name the columns.")
    if "\0" in line:
        raise problem(str(path), "it is no CSV file (it holds bytes that are no text).")
    if line.endswith("\r"):
        raise problem(str(path), "its lines end with a carriage return; let them end with \\n.")
    return tuple(_distinct(names)), separator


def _distinct(names: Sequence[str]) -> list[str]:
    seen: dict[str, int] = {}
    told = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        told.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return told


def _frame(source: Any) -> pl.DataFrame | None:
    """Any frame that narwhals or Arrow know, as one of polars; None if it is none."""
    source = nw.to_native(source, pass_through=True)
    if nw.dependencies.is_pandas_dataframe(source):
        # A level of the index that has a name is a column, as in the file that pandas writes.
        levels = [n for n in source.index.names if n is not None and n not in source.columns]
        source = source.reset_index(levels) if levels else source
    try:
        native = nw.from_native(source)
    except TypeError:
        return pl.DataFrame(source) if hasattr(source, "__arrow_c_array__") else None
    try:
        # What is lazy may fail only now.
        eager = native.collect() if isinstance(native, nw.LazyFrame) else native
    except Exception as error:
        raise TableError(f"The frame cannot be read ({_short(error)}).") from None
    try:
        return eager.to_polars()
    except Exception as error:
        raise _unreadable(eager, error) from None


def _unreadable(frame: nw.DataFrame[Any], why: Exception) -> TableError:
    """Names the column that is at fault, if one is by itself."""
    for name in frame.columns:
        try:
            frame.select(name).to_polars()
        except Exception as error:
            return problem("the table", f"its values cannot be read ({_short(error)}).", name)
    return TableError(f"The frame cannot be read ({_short(why)}).")


def _in_memory(frame: pl.DataFrame, where: str) -> Table:
    def read(columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        yield from frame.select(cs.by_name(*columns)).iter_slices(ROWS)

    return Table(where, tuple(frame.columns), read, again=True)


def _made(content: Any, where: str) -> pl.DataFrame:
    """A frame of columns or of rows."""
    try:
        return pl.DataFrame(content, infer_schema_length=None, strict=False)
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:
        raise problem(where, f"it is no table ({_short(error)}).") from None


def _live(source: Iterator[Any]) -> Table:
    """Rows (mappings) or frames as they come; they can be read once."""
    frames = _frames_of(source)
    first = next(frames, None)
    if first is None:
        raise TableError("The iterator gave no row; there is nothing to learn from.")
    names = tuple(first.columns)

    def read(columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        for number, frame in enumerate(itertools.chain([first], frames)):
            lacking = [name for name in columns if name not in frame.columns]
            if lacking:
                raise problem("the iterator", f"frame {number + 1} has no such column.", lacking[0])
            yield frame.select(cs.by_name(*columns))

    return Table("the iterator", names, read, again=False)


def _frames_of(source: Iterator[Any]) -> Iterator[pl.DataFrame]:
    for first in source:
        if not isinstance(first, Mapping):
            frame = _frame(first)
            if frame is None:
                raise TableError(
                    f"The iterator gave a {type(first).__name__}; it must give rows "
                    f"(dictionaries) or frames."
                )
            yield frame
            continue
        rows = [first, *itertools.islice(source, LIVE_ROWS - 1)]
        strange = next((row for row in rows if not isinstance(row, Mapping)), None)
        if strange is not None:
            raise TableError("The iterator gave rows and frames; it must give one of them only.")
        yield _made([dict(row) for row in rows], "the iterator")


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:120]
