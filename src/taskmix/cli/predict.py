"""``taskmix predict``: new tasks by a model that a run wrote, rows of tables or images."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from taskmix.cli.flags import parse
from taskmix.cli.output import Screen
from taskmix.experiments.table_runs import is_table_model, predict_table


@dataclasses.dataclass(frozen=True)
class PredictFlags:
    """Predict the rows of one table from known rows of the same tasks in another, or label the
    images of one folder from a few examples of each class in another."""

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """Folder that `taskmix run` or `TableLearner.save` wrote."""
    support: Path
    """Table with the known rows, targets included; or folder with a folder of images per class."""
    query: Path
    """Table with the rows to predict, or folder with the images to label."""
    out: Path
    """CSV (or, of a table, Parquet) file to write, one row per row or image of the query; images
    get a contact sheet beside it."""
    level: float = 0.9
    """Probability that an interval should hold the target (tables)."""


def main(arguments: Sequence[str]) -> None:
    flags, screen = parse(PredictFlags, arguments, "taskmix predict"), Screen()
    if is_table_model(flags.model) or not flags.support.is_dir():
        predict_table(flags.model, flags.support, flags.query, flags.out, flags.level)
        screen.say(f"predictions: {flags.out}")
        return
    # Matplotlib takes a second to load, which tables need not wait for.
    from taskmix.reporting.image_predictions import predict_images

    table, sheet, found = predict_images(flags.model, flags.support, flags.query, flags.out)
    for problem in (*found.support.problems, *found.query.problems):
        screen.say(f"left out: {problem}")
    if found.novelty is not None:
        screen.say(f"novelty of the examples: {found.novelty:.2f}")
    screen.say(f"predictions: {table}")
    screen.say(f"sheet: {sheet}")
