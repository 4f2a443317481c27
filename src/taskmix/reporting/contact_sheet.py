"""A picture of what learners see: images of a few classes through every filter."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from taskmix.reporting.style import FAINT, INK, SHADE, write_figure
from taskmix.stores import ImageSplit
from taskmix.streams.filters import FILTERS, image_filter


def contact_sheet(
    split: ImageSplit,
    out: str | Path,
    filters: Sequence[str] | None = None,
    classes: int = 6,
) -> Path:
    """Draw the first image of evenly spaced classes, one row for each filter, as a PNG file.

    Parameters
    ----------
    split
        Of a store, or of the drawings that come with taskmix.
    out
        Picture to write.
    filters
        Names of filters: one row per filter; None for all there are.
    classes
        How many to show.

    Returns
    -------
    Path
        ``out``, with .png added if it ends otherwise.

    Examples
    --------
    >>> import tempfile
    >>> from taskmix.stores import glyph_split
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     contact_sheet(glyph_split("val"), f"{folder}/glyphs", ["plain"], classes=2).name
    'glyphs.png'
    """
    out = Path(out)
    filters = tuple(FILTERS) if filters is None else filters
    if not filters:
        raise ValueError("There is no filter to show; name at least one.")
    if not 1 <= classes <= len(split.classes):
        raise ValueError(
            f"A sheet of the split {split.name} has 1 to {len(split.classes)} classes, "
            f"not {classes}."
        )
    rows = [image_filter(name) for name in filters]
    shown = np.linspace(0, len(split.classes) - 1, classes).round().astype(int)
    images = jnp.asarray(split.images[split.first[shown]], jnp.float32) / 255
    figure = Figure(figsize=(1.3 * classes + 0.8, 1.3 * len(filters) + 0.9), layout="constrained")
    grid = figure.subplots(len(filters), classes, squeeze=False)
    for axes, name, filtered in zip(grid, filters, rows, strict=True):
        for ax, image in zip(axes, np.asarray(filtered(images)), strict=True):
            # Grey images have one channel, which a colour map would otherwise paint.
            ax.imshow(image, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            ax.set(xticks=[], yticks=[])
            # The edge of white paper on a white page.
            ax.spines[:].set_color(SHADE)
        axes[0].set_ylabel(name, color=INK, fontsize=12, fontweight="bold", labelpad=8)
    for ax, place in zip(grid[0], shown, strict=True):
        label = textwrap.shorten(split.classes[place], 32, placeholder="…")
        ax.set_title(textwrap.fill(label, 18), color=INK, fontsize=8.5)
    height, width = split.images.shape[1:3]
    caption = f"Split {split.name}, {len(split.classes)} classes, {width} x {height} pixels."
    figure.supxlabel(caption, fontsize=9, color=FAINT)
    out = out if out.suffix == ".png" else out.with_name(f"{out.name}.png")
    return write_figure(figure, out, dpi=160)
