"""The paper's figures of its data, which show no run: functions and filters."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from taskmix.experiments.image_families import GLYPHS, images_of
from taskmix.files import inside
from taskmix.names import unknown
from taskmix.reporting.contact_sheet import contact_sheet
from taskmix.reporting.style import CLUSTER_COLOURS, FAINT, INK, save
from taskmix.streams import FunctionStream, consecutive
from taskmix.tasks import TaskBatch

DRAWN = ("figure-4", "figure-5")
"""Figures that need no training, by their numbers in the paper."""
FAMILIES = ("polynomial", "sinusoid", "sawtooth")
SHOWN = 3
"""Functions of a family in its panel."""
POINTS = 150
"""Of each function."""


def functions_figure(path: Path | str, seed: int = 0) -> tuple[Path, Path]:
    """Some functions of each family of the continual regression: figure 4 of the paper.

    Parameters
    ----------
    path
        Where to write, with the suffixes .png and .pdf.
    seed
        Decides which functions are drawn.

    Returns
    -------
    tuple of Path
        The two files.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     functions_figure(f"{folder}/functions")[0].name
    'functions.png'
    """
    figure = Figure(figsize=(9.9, 2.9), layout="constrained")
    for ax, family in zip(figure.subplots(1, len(FAMILIES)), FAMILIES, strict=True):
        batch = _functions(family, seed)
        for task in range(SHOWN):
            order = jnp.argsort(batch.query.x[task, :, 0])
            x, y = (np.asarray(part[task, order, 0]) for part in (batch.query.x, batch.query.y))
            ax.plot(x, y, ".", color=CLUSTER_COLOURS[task], markersize=3)
        ax.set_title(family, color=INK, fontsize=12, fontweight="bold")
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(color=FAINT, labelcolor=INK, labelsize=9.5)
        ax.set_xlabel("input", color=INK)
    return save(figure, path, f"{SHOWN} tasks of each family, {POINTS} points of each.")


def _functions(family: str, seed: int) -> TaskBatch:
    stream = FunctionStream(consecutive((family,), (1,)), tasks=SHOWN, support=1, query=POINTS)
    return jax.jit(stream.batch)(jax.random.key(seed), 0)


def draw_figure(
    name: str, out: str | Path | None = None, data: str = GLYPHS, split: str = "val"
) -> list[Path]:
    """Draw a figure of the paper that shows data and no run.

    Parameters
    ----------
    name
        ``figure-4``, the functions, or ``figure-5``, the filters.
    out
        Folder to write into; ``runs/NAME`` unless it is given.
    data, split
        For the filters: a store, or ``glyphs``, and one of its splits.

    Returns
    -------
    list of Path
        The pictures.

    Examples
    --------
    >>> draw_figure("figure-3")
    Traceback (most recent call last):
    ValueError: There is no figure without runs 'figure-3'. Did you mean ...
    """
    if name not in DRAWN:
        raise unknown("figure without runs", name, DRAWN)
    folder = Path("runs", name) if out is None else Path(out)
    path = inside(folder, "figures") / name
    if name == "figure-4":
        return list(functions_figure(path))
    images = images_of(data, split, 84 if data != GLYPHS else 32)
    return [contact_sheet(images, path.with_suffix(".png"), classes=min(6, len(images.classes)))]
