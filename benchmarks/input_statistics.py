"""Do a few statistics of the images tell through which filter a task is seen?

Fits a Gaussian with independent statistics to half of the classes under each filter and
classifies images of the other half, one at a time and in sets of five. Without a store it takes
the built-in glyphs.

    python benchmarks/input_statistics.py STORE --size 32
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from taskmix.stores import ImageSplit, open_store, resized
from taskmix.stores.glyphs import glyph_split
from taskmix.streams.filters import FILTERS
from taskmix.streams.image_statistics import STATISTICS, image_statistics

SET = 5
"""Images that are classified together, as those of a task with five ways and one shot."""

FLOOR = 0.1
"""Least standard deviation of a fitted Gaussian; a grey filter leaves colours none."""


@dataclasses.dataclass(frozen=True)
class Flags:
    """Measure the statistics of images under every filter."""

    store: Annotated[Path | None, tyro.conf.Positional] = None
    """Folder that ``taskmix data prepare`` wrote."""
    split: str = "train"
    size: int = 32
    """Pixels a side."""
    images: int = 40
    """Of each class; a class that has fewer is left out."""


def load(flags: Flags) -> np.ndarray:
    """Images in [0, 1] with axes (classes, images, height, width, channels)."""
    if flags.store is None:
        split: ImageSplit = glyph_split(flags.split, flags.size)
    else:
        split = open_store(flags.store).split(flags.split)
    enough = split.count >= flags.images
    chosen = split.first[enough][:, None] + np.arange(flags.images)
    few = dataclasses.replace(split, images=split.images[chosen.ravel()])
    images = resized(few, flags.size).images
    return images.reshape(*chosen.shape, *images.shape[1:]).astype(np.float32) / 255


def sets(values: np.ndarray, together: int) -> np.ndarray:
    """Mean statistics of sets of images, which are of as many classes."""
    flat = values.swapaxes(0, 1).reshape(-1, values.shape[-1])
    whole = flat[: len(flat) // together * together]
    return whole.reshape(-1, together, values.shape[-1]).mean(axis=1)


def log_density(values: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """Of each row of ``values`` under the Gaussian of the rows ``fitted``."""
    mean, deviation = fitted.mean(axis=0), np.maximum(fitted.std(axis=0), FLOOR)
    return np.sum(-0.5 * ((values - mean) / deviation) ** 2 - np.log(deviation), axis=-1)


def confusion(of: dict[str, np.ndarray], together: int) -> np.ndarray:
    """Part of the sets seen through the filter of a row that are taken for that of a column."""
    fitted = [sets(values[::2], together) for values in of.values()]
    rows = []
    for values in of.values():
        held_out = sets(values[1::2], together)
        taken_for = np.argmax([log_density(held_out, other) for other in fitted], axis=0)
        rows.append(np.bincount(taken_for, minlength=len(of)) / len(taken_for))
    return np.array(rows)


def main(flags: Flags) -> None:
    images = load(flags)
    of = {}
    for name, filtered in FILTERS.items():
        measured = jax.jit(lambda x, filtered=filtered: image_statistics(filtered(x)))
        of[name] = np.stack([np.asarray(measured(jnp.asarray(x))) for x in images])
    console = Console(width=110)
    title = f"{images[..., 0, 0, 0].size:,} images of {flags.size} pixels"
    console.print(moments(of, title))
    for name in of:
        console.print(correlations(of[name], name))
    for together in (1, SET):
        console.print(confusions(of, together))


def table(title: str, *headings: str) -> Table:
    made = Table(title=title)
    for place, heading in enumerate(headings):
        made.add_column(heading, justify="right" if place else "left")
    return made


def moments(of: dict[str, np.ndarray], title: str) -> Table:
    made = table(f"mean and standard deviation, {title}", "filter", *STATISTICS)
    for name, values in of.items():
        mean, deviation = values.mean((0, 1)), values.std((0, 1))
        cells = [f"{m:.2f} ± {d:.2f}" for m, d in zip(mean, deviation, strict=True)]
        made.add_row(name, *cells)
    return made


def correlations(values: np.ndarray, name: str) -> Table:
    made = table(f"correlations, {name}", "", *STATISTICS)
    flat = values.reshape(-1, len(STATISTICS))
    # A constant statistic has correlation zero.
    scaled = (flat - flat.mean(axis=0)) / np.maximum(flat.std(axis=0), 1e-4)
    for statistic, row in zip(STATISTICS, scaled.T @ scaled / len(flat), strict=True):
        made.add_row(statistic, *(f"{x:.2f}" for x in row))
    return made


def confusions(of: dict[str, np.ndarray], together: int) -> Table:
    shares = confusion(of, together)
    what = "single images" if together == 1 else f"means of {together} images"
    title = f"taken for, {what}: {np.diag(shares).mean():.2%} right"
    made = table(title, "seen through", *of)
    for name, row in zip(of, shares, strict=True):
        made.add_row(name, *(f"{x:.2%}" for x in row))
    return made


if __name__ == "__main__":
    main(tyro.cli(Flags))
