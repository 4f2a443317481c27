"""Which columns of a table play which part, and pieces of it in one form."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from taskmix.tables.columns import Column, column
from taskmix.tables.kinds import Kind, as_text, check_written, kind_of, read_as, too_long
from taskmix.tables.problems import problem
from taskmix.tables.reading import Piece, Table

ROW, TASK, TIME, TARGET, KNOWN = "row", "task", "time", "target", "known"
"""Names of columns in the one form; inputs are numbered."""
BETWEEN = " / "
"""Stands between the parts of a task's name."""
SAID_KNOWN = ("1", "1.0", "true", "t", "yes", "y", "support", "train", "known")
SAID_UNKNOWN = ("0", "0.0", "false", "f", "no", "n", "query", "test", "unknown")


@dataclasses.dataclass(frozen=True)
class Schema:
    """Columns by their part, and what each holds."""

    task: tuple[Column, ...]
    target: Column | None
    time: Column | None
    known: Column | None
    """The column that says which rows are the support set."""
    inputs: tuple[Column, ...]
    kinds: Mapping[str, Kind]

    @property
    def every(self) -> tuple[Column, ...]:
        single = (self.target, self.time, self.known)
        return (*self.task, *(one for one in single if one is not None), *self.inputs)

    @property
    def sources(self) -> list[str]:
        """Columns of the table that have to be read."""
        return list(dict.fromkeys(source for one in self.every for source in one.sources))

    def input_kinds(self) -> tuple[Kind, ...]:
        return tuple(one.kind(self.kinds) for one in self.inputs)

    def prepared(self, piece: Piece, where: str) -> pl.DataFrame:
        """Rows in one form: number, task, time, target, known, inputs; null where missing."""
        read = {
            name: read_as(self.kinds[name], piece.frame[name], where, piece.first)
            for name in self.sources
        }
        count = piece.frame.height
        made: dict[str, pl.Series] = {
            ROW: pl.int_range(piece.first, piece.first + count, dtype=pl.Int64, eager=True)
        }
        for one in self.task:
            _check_names(one.of(read), one.name, where, piece.first)
        if self.task:
            made[TASK] = _named([one.of(read) for one in self.task])
        if self.time is not None:
            made[TIME] = _ordered(self.time.of(read))
        if self.target is not None:
            made[TARGET] = self.target.of(read)
        if self.known is not None:
            made[KNOWN] = _known(self.known.of(read), self.known.name, where, piece.first)
        for number, one in enumerate(self.inputs):
            made[f"x{number}"] = one.of(read)
        return pl.DataFrame(made)

    def frames(self, table: Table) -> Iterator[pl.DataFrame]:
        for piece in table.pieces(self.sources):
            yield self.prepared(piece, table.where)


def schema_of(
    table: Table,
    task: str | Sequence[str],
    target: str,
    time: str | None,
    inputs: Sequence[str] | None,
    known: str | None,
) -> Schema:
    """What a user asked for, checked against the first rows of a table that can be read again.

    Without ``inputs`` all columns are inputs but those of the target and a single task column.
    """
    tasks = [task] if isinstance(task, str) else list(task)
    if not tasks:
        raise problem(table.where, "no task column is given; name at least one.")

    # Looked up for every column, of which there may be many.
    names = dict.fromkeys(table.names)

    def find(asked: str) -> Column:
        return column(asked, names, table.where)

    if inputs is not None:
        inputs = [inputs] if isinstance(inputs, str) else list(inputs)
    found = [find(name) for name in tasks]
    wanted, ordered = find(target), find(time) if time is not None else None
    told = find(known) if known is not None else None
    if inputs is None:
        # The one name of a task tells nothing of another; a part of a name comes again.
        plain = {one.sources[0] for one in found if one.made == "plain" and len(found) == 1}
        used = {*plain, *wanted.sources, *(told.sources if told else ())}
        inputs = [name for name in table.names if name not in used and "#" not in name]
        if not inputs:
            raise problem(table.where, "no column is left as an input; name some as inputs.")
    elif wanted.name in inputs:
        raise problem(table.where, "the target cannot be an input, too.", wanted.name)
    if not inputs:
        raise problem(table.where, "no input is given; name at least one column.")
    given = tuple(find(name) for name in dict.fromkeys(inputs))
    schema = Schema(tuple(found), wanted, ordered, told, given, {})
    first = next(iter(table.pieces(schema.sources)), None)
    if first is None:
        raise problem(table.where, "there are no rows; there is nothing to learn from.")
    kinds = {name: kind_of(first.frame[name], table.where) for name in schema.sources}
    for one in found:
        if one.made == "plain" and too_long(first.frame[one.name]).any():
            kinds[one.name] = Kind("text")
    for one in (wanted, *given):
        for name in one.sources if one.made != "part" else ():
            check_written(kinds[name], first.frame[name], table.where)
    for one in schema.every:
        one.check(kinds, table.where)
    return dataclasses.replace(schema, kinds=kinds)


def _named(parts: Sequence[pl.Series]) -> pl.Series:
    """Names of tasks; null where a part is."""
    frame = pl.DataFrame({str(number): as_text(part) for number, part in enumerate(parts)})
    return frame.select(pl.concat_str(pl.all(), separator=BETWEEN))[:, 0]


def _check_names(values: pl.Series, name: str, where: str, first: int) -> None:
    """An error if numbers have too many digits to tell tasks apart; such columns are texts."""
    if values.dtype != pl.Float64:
        return
    bad = too_long(values).arg_true()
    if len(bad):
        what = "the number has more than 15 digits, those before it had less; write it as a text."
        raise problem(where, what, name, first + int(bad[0]))


def _ordered(values: pl.Series) -> pl.Series:
    """Something that sorts: numbers as they are, moments in seconds; texts as they are."""
    if values.dtype == pl.Datetime:
        return values.dt.epoch("us").cast(pl.Float64) / 1e6
    return values


def _known(values: pl.Series, name: str, where: str, first: int) -> pl.Series:
    """Whether a row is of the support set, from a column that says so."""
    texts = values.cast(pl.String).str.to_lowercase()
    yes, no = texts.is_in(SAID_KNOWN), texts.is_in(SAID_UNKNOWN)
    bad = (~(yes | no)).fill_null(True).arg_true()
    if len(bad):
        raise problem(
            where,
            "the column that splits support and query must say 1 or 0, true or false, "
            "support or query.",
            name,
            first + int(bad[0]),
        )
    return yes


def schema_to_json(schema: Schema) -> dict[str, Any]:
    return dataclasses.asdict(dataclasses.replace(schema, kinds={})) | {
        "kinds": {name: dataclasses.asdict(kind) for name, kind in schema.kinds.items()}
    }
