"""What a model says about somebody's images: a table and a picture."""

from __future__ import annotations

import csv
import io
import math
import textwrap
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from taskmix.experiments.image_predictions import LabelledPictures, labelled
from taskmix.experiments.sharing import predictor_of
from taskmix.files import apart, explained, replace
from taskmix.names import percent, printable
from taskmix.reporting.style import FAINT, INK, SHADE, write_figure

COLUMNS = 8
MOST_SHOWN = 64
"""Images of a sheet; the table has all."""
UNSURE = 0.5
"""Probability below which a label is drawn in a paler colour."""


def predict_images(
    model: str | Path, support: str | Path, query: str | Path, out: str | Path
) -> tuple[Path, Path, LabelledPictures]:
    """Label images from a few examples of each class, as ``taskmix predict`` does.

    Parameters
    ----------
    model
        Folder of a run on images, or what ``export`` wrote of one.
    support
        Folder with a folder per class, a few images in each.
    query
        Folder with images to label.
    out
        CSV file to write, a row per image; a contact sheet is written beside it. Not in one of the
        folders that are read.

    Returns
    -------
    tuple
        The table, the sheet, and what they show.

    Examples
    --------
    >>> predict_images("runs/none", "known", "asked", "said.csv")
    Traceback (most recent call last):
    ValueError: ...
    """
    out = apart(Path(out), model, support, query)
    if out.suffix == ".png":
        raise ValueError(f"{out} is the name of the sheet; choose one that ends in .csv.")
    found = labelled(predictor_of(model), support, query)
    with explained(f"write {out}"):
        out.parent.mkdir(parents=True, exist_ok=True)
    replace(out, _table(found).encode(errors="replace"))
    return out, prediction_sheet(found, out.with_suffix(".png")), found


def _table(found: LabelledPictures) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["image", "label", "probability", *(f"p({name})" for name in found.classes), "novelty"]
    )
    novelty = "" if found.novelty is None else f"{found.novelty:.4f}"
    rows = zip(found.query.names, found.labels, found.probabilities, strict=True)
    for name, label, shares in rows:
        each = (f"{share:.4f}" for share in shares)
        writer.writerow([name, label, f"{shares.max():.4f}", *each, novelty])
    return text.getvalue()


def prediction_sheet(found: LabelledPictures, out: Path) -> Path:
    """Draw one example of each class, then the queries with labels and probabilities, as a PNG.

    Parameters
    ----------
    found
        What ``labelled`` gave.
    out
        Picture to write.

    Returns
    -------
    Path
        ``out``.
    """
    examples = [found.known.index(place) for place in range(len(found.classes))]
    shown = min(len(found.query.names), MOST_SHOWN)
    above = math.ceil(len(examples) / COLUMNS)
    rows = above + math.ceil(shown / COLUMNS)
    figure = Figure(figsize=(1.25 * COLUMNS, 1.6 * rows + 0.7), layout="constrained")
    grid = figure.subplots(rows, COLUMNS, squeeze=False)
    for ax in grid.flat:
        ax.set_axis_off()
    for place, example in enumerate(examples):
        ax = grid[place // COLUMNS, place % COLUMNS]
        _draw(ax, found.support.pixels[example], found.classes[place], "example", 1.0)
    for place in range(shown):
        ax = grid[above + place // COLUMNS, place % COLUMNS]
        probability = float(found.probabilities[place].max())
        _draw(
            ax,
            found.query.pixels[place],
            found.labels[place],
            percent(probability, 0),
            probability,
        )
    told = "not known to this method" if found.novelty is None else f"{found.novelty:.2f}"
    rest = len(found.query.names) - shown
    caption = f"Novelty of the examples: {told} (0: as seen in training, 1: unlike all of it)."
    caption += f" {rest} more images are in the table." if rest else ""
    figure.supxlabel(caption, fontsize=9, color=FAINT)
    return write_figure(figure, out, dpi=140)


def _draw(
    ax: Axes, pixels: UInt8[np.ndarray, ...], label: str, below: str, probability: float
) -> None:
    ax.set_axis_on()
    ax.imshow(pixels, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_color(SHADE)
    name = textwrap.shorten(printable(label), 18, placeholder="…")
    sure = INK if probability >= UNSURE else FAINT
    ax.set_title(name, fontsize=8.5, color=sure)
    ax.set_xlabel(below, fontsize=8, color=sure)
