"""How figures look: one colour per method and per cluster, everywhere."""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, MaxNLocator

from taskmix.files import explained, replace
from taskmix.streams.stream import Phase

# The palette of M. Okabe and K. Ito, which people with any colour vision can tell apart.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"

INK = "#222222"
FAINT = "#6b6b6b"
SHADE = "#ececec"
BACKGROUND = "#8c8c8c"
"""The share of tasks that no cluster explains."""

CLUSTER_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, VERMILION, SKY, BLACK, YELLOW)
"""In the order of birth; a ninth cluster takes the first colour again."""


@dataclasses.dataclass(frozen=True)
class Line:
    """How a method is drawn."""

    label: str
    colour: str
    width: float = 1.4
    dashes: tuple[float, tuple[float, ...]] | None = None


LONG, SHORT, DOTS = (0.0, (4.0, 1.2)), (0.0, (2.2, 1.2)), (0.0, (1.0, 1.2))

METHODS = {
    "nonparametric": Line("nonparametric (ours)", VERMILION, width=2.6),
    "task-aware": Line("task-aware (ours, told)", PURPLE, width=2.0),
    "nonparametric:paper": Line("the paper's rule", VERMILION, dashes=LONG),
    "mixture": Line("mixture", BLUE),
    "uniform": Line("uniform", GREEN, dashes=LONG),
    "maml": Line("MAML", BLACK, width=1.2),
    "fomaml": Line("first-order MAML", BLACK, width=1.2, dashes=LONG),
    "maml-per-family": Line("MAML per family (told)", FAINT, dashes=DOTS),
    "mt-net": Line("MT-net", SKY),
    "t-net": Line("T-net", SKY, dashes=LONG),
    "platipus": Line("PLATIPUS", ORANGE),
    "llama": Line("LLAMA", ORANGE, dashes=LONG),
    "versa": Line("VERSA", GREEN),
    "mmaml": Line("MMAML", BLUE, dashes=LONG),
    "meta-lstm": Line("meta-learner LSTM", FAINT),
    "prototypical": Line("prototypical", YELLOW),
    "matching": Line("matching (full context)", YELLOW, dashes=LONG),
    "matching-simple": Line("matching", YELLOW, dashes=DOTS),
    "moca": Line("MOCA", SKY, dashes=SHORT),
    "vc-bml": Line("VC-BML (told)", GREEN, dashes=LONG),
    "replay": Line("replay", BLUE, dashes=DOTS),
    "c-maml": Line("C-MAML", GREEN, dashes=DOTS),
    "ewc": Line("EWC (told)", PURPLE, dashes=LONG),
    "online-ewc": Line("online EWC (told)", PURPLE, dashes=SHORT),
    "si": Line("SI (told)", PURPLE, dashes=DOTS),
    "vcl": Line("VCL (told)", SKY, dashes=DOTS),
    "laplace": Line("online Laplace (told)", ORANGE, dashes=DOTS),
}
"""Methods in the order of legends and tables; dashes keep lines apart that often coincide."""

SPARE_COLOURS = (ORANGE, SKY, YELLOW)


def line_of(method: str) -> Line:
    """The line of a method; one that is not listed gets a colour that depends on its name only."""
    spare = SPARE_COLOURS[sum(map(ord, method)) % len(SPARE_COLOURS)]
    return METHODS.get(method, Line(method, spare))


def in_order(methods: Iterable[str]) -> list[str]:
    """Methods in the order of legends and tables, unlisted ones last and by name."""
    order = {method: place for place, method in enumerate(METHODS)}
    return sorted(methods, key=lambda method: (order.get(method, len(order)), method))


def panels(
    families: Sequence[str],
    phases: Sequence[Phase],
    *,
    share_y: bool,
    parts: int = 1,
) -> tuple[Figure, list[tuple[SubFigure, list[Axes]]]]:
    """One panel per family, with the stretches in which it is not active shaded.

    The figure has so many ``parts``, one below the other, each with all panels.
    """
    columns = min(3, len(families))
    rows = math.ceil(len(families) / columns)
    width, height = 3.3 * columns + 0.5, 2.6 * rows + 1.1
    figure = Figure(figsize=(width, parts * height), layout="constrained")
    drawn = []
    for part in figure.subfigures(parts, 1, squeeze=False).flat:
        grid = part.subplots(rows, columns, sharex=True, sharey=share_y, squeeze=False)
        axes = list(grid.flat)
        for unused in axes[len(families) :]:
            unused.remove()
        for ax, family in zip(axes, families, strict=False):
            _dress(ax, family, phases)
        for ax in axes[max(0, len(families) - columns) : len(families)]:
            ax.set_xlabel("iteration", color=INK)
            ax.tick_params(labelbottom=True)
        drawn.append((part, axes[: len(families)]))
    return figure, drawn


def save(figure: Figure, path: Path | str, caption: str) -> tuple[Path, Path]:
    """Write ``path`` with the suffixes .png and .pdf, with a caption at the bottom."""
    characters = int(14 * figure.get_figwidth())
    figure.supxlabel(fill(" ".join(caption.split()), characters), fontsize=9, color=FAINT)
    png, pdf = Path(path).with_suffix(".png"), Path(path).with_suffix(".pdf")
    # Without a date the same runs give the same file.
    return write_figure(figure, png, dpi=160), write_figure(
        figure, pdf, metadata={"CreationDate": None}
    )


def write_figure(figure: Figure, path: Path, **options: Any) -> Path:
    """Draw a figure into a file, whole or not at all, of the kind that its suffix says."""
    for text in figure.findobj(Text):
        # A name may have dollars in it; nothing here is a formula.
        text.set_parse_math(False)
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix[1:], **options)
    with explained(f"create {path.parent}"):
        path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, drawn.getvalue())
    return path


def legend(part: SubFigure, handles: Sequence[Line2D | Patch]) -> None:
    """One legend above the panels of a part, in rows of equal length, no wider than they are."""
    inches = 0.7 + 0.085 * max(len(str(handle.get_label())) for handle in handles)
    columns = min(4, max(1, int(part.bbox.width / part.dpi / inches)))
    rows = math.ceil(len(handles) / columns)
    part.legend(
        handles=list(handles),
        loc="outside upper center",
        ncols=math.ceil(len(handles) / rows),
        frameon=False,
        fontsize=10.5,
        labelcolor=INK,
    )


def seed_list(seeds: Sequence[int]) -> str:
    """Seeds in words.

    >>> seed_list([0, 1, 2, 3]), seed_list([1, 5]), seed_list([7])
    ('4 seeds (0-3)', '2 seeds (1, 5)', 'seed 7')
    """
    seeds = sorted(seeds)
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    without_gaps = len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1))
    named = f"{seeds[0]}-{seeds[-1]}" if without_gaps else ", ".join(map(str, seeds))
    return f"{len(seeds)} seeds ({named})"


def _dress(ax: Axes, family: str, phases: Sequence[Phase]) -> None:
    ax.set_title(family, color=INK, fontsize=12, fontweight="bold", pad=8)
    for phase in phases:
        if family not in phase.families:
            ax.axvspan(phase.start, phase.stop, color=SHADE, linewidth=0, zorder=0)
    for phase in phases[1:]:
        ax.axvline(phase.start, color=FAINT, linewidth=0.6, zorder=1)
    ax.set_xlim(0, phases[-1].stop)
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(FAINT)
    ax.tick_params(color=FAINT, labelcolor=INK, labelsize=9.5)


def top_of(values: np.ndarray) -> float:
    """A limit above almost all values, so that a diverging curve does not flatten the others."""
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        return 1.0
    return float(1.06 * min(finite.max(), 1.25 * np.quantile(finite, 0.98)))
