"""``taskmix predict``: new tasks by a model that `taskmix run table` wrote."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from taskmix.cli.flags import parse
from taskmix.cli.output import Screen
from taskmix.estimator import predict_table


@dataclasses.dataclass(frozen=True)
class PredictFlags:
    """Predict the rows of one table from known rows of the same tasks in another."""

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """Folder that `taskmix run table` or `TableLearner.save` wrote."""
    support: Path
    """Table with the known rows, targets included."""
    query: Path
    """Table with the rows to predict."""
    out: Path
    """CSV or Parquet file to write, a row per row of the query."""
    level: float = 0.9
    """Probability that an interval should hold the target."""


def main(arguments: Sequence[str]) -> None:
    flags = parse(PredictFlags, arguments, "taskmix predict")
    predict_table(flags.model, flags.support, flags.query, flags.out, flags.level)
    Screen().say(f"predictions: {flags.out}")
