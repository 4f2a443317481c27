"""Rows as numbers: texts become codes in order of appearance, labels their numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np
import polars as pl

from taskmix.tables.kinds import as_text
from taskmix.tables.problems import problem, shown
from taskmix.tables.schema import KNOWN, ROW, TARGET, TASK, TIME

MOST_CODES = 10_000
"""Texts of one column that are told apart; whatever comes later is one and the same."""


@dataclasses.dataclass(frozen=True)
class Block:
    """Some rows; every task's stand together. NaN is missing."""

    rows: np.ndarray
    tasks: np.ndarray
    """Names."""
    times: np.ndarray | None
    y: np.ndarray
    known: np.ndarray | None
    x: np.ndarray
    """(rows, columns): numbers, seconds since 1970, or codes of texts."""


@dataclasses.dataclass
class Vocabulary:
    """Codes of the texts of each column, in order of appearance."""

    codes: dict[int, dict[str, int]] = dataclasses.field(default_factory=dict)

    def encode(self, number: int, values: pl.Series) -> np.ndarray:
        known = self.codes.setdefault(number, {})
        for text in values.drop_nulls().unique(maintain_order=True).to_list():
            if text not in known and len(known) < MOST_CODES:
                known[text] = len(known)
        found = values.replace_strict(
            list(known), list(known.values()), default=MOST_CODES, return_dtype=pl.Float64
        )
        return np.where(values.is_null().to_numpy(), np.nan, found.to_numpy())


def blocks(
    frames: Iterable[pl.DataFrame],
    vocabulary: Vocabulary,
    labels: tuple[str, ...] | None,
    where: str,
    target: str,
) -> Iterator[Block]:
    """Frames in one form, as numbers; a label that is not among ``labels`` is an error."""
    for frame in frames:
        columns = [name for name in frame.columns if name.startswith("x")]
        x = np.full((frame.height, len(columns)), np.nan)
        for number, name in enumerate(columns):
            x[:, number] = _numbers(frame[name], number, vocabulary)
        yield Block(
            rows=frame[ROW].to_numpy(),
            tasks=frame[TASK].to_numpy(),
            times=frame[TIME].to_numpy() if TIME in frame.columns else None,
            y=_targets(frame, labels, where, target),
            known=frame[KNOWN].to_numpy() if KNOWN in frame.columns else None,
            x=x,
        )


def _numbers(values: pl.Series, number: int, vocabulary: Vocabulary) -> np.ndarray:
    if values.dtype == pl.String:
        return vocabulary.encode(number, values)
    if values.dtype == pl.Datetime:
        values = values.dt.epoch("us") / 1e6
    return values.cast(pl.Float64).fill_null(np.nan).to_numpy()


def _targets(
    frame: pl.DataFrame, labels: tuple[str, ...] | None, where: str, target: str
) -> np.ndarray:
    """Numbers, or numbers of labels; all missing where the table has no target."""
    if TARGET not in frame.columns:
        return np.full(frame.height, np.nan)
    values = frame[TARGET]
    if labels is None:
        return values.cast(pl.Float64).fill_null(np.nan).to_numpy()
    texts = as_text(values)
    found = texts.replace_strict(
        list(labels), list(range(len(labels))), default=-1, return_dtype=pl.Float64
    ).to_numpy()
    missing = texts.is_null().to_numpy()
    strange = np.flatnonzero((found < 0) & ~missing)
    if strange.size:
        raise problem(
            where,
            f"{shown(texts[int(strange[0])])} is none of the labels {', '.join(labels)}.",
            target,
            int(frame[ROW][int(strange[0])]),
        )
    return np.where(missing, np.nan, found)
