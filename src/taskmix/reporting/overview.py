"""A comparison in one figure, however many methods it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from taskmix.reporting.style import FAINT, INK, in_order, line_of, save


def overview_figure(comparison: Mapping[str, Any], path: Path | str) -> tuple[Path, Path]:
    """What each method knows at the end and how much it has forgotten, best method first.

    Drawn from the content of ``comparison.json``; methods that are told something beyond the
    examples have hollow dots. Returns the PNG and the PDF file.
    """
    methods: Mapping[str, Mapping[str, Any]] = comparison["methods"]
    measure = next(iter(methods.values()))["measure"]
    order = _best_first(methods, measure)
    figure = Figure(figsize=(9, 1.6 + 0.27 * len(order)), layout="constrained")
    end, forgotten = figure.subplots(1, 2, sharey=True)
    factor, unit = (100.0, " in %") if measure == "accuracy" else (1.0, "")
    _draw(end, methods, order, f"mean_{measure}", factor)
    _draw(forgotten, methods, order, "mean_forgetting", factor)
    end.set_title(f"{measure} at the end{unit}", color=INK, fontsize=12, fontweight="bold")
    points = " in points" if measure == "accuracy" else ""
    forgotten.set_title(f"forgetting{points}", color=INK, fontsize=12, fontweight="bold")
    forgotten.axvline(0, color=FAINT, linewidth=0.6, zorder=0)
    end.set_yticks(range(len(order)), [line_of(method).label for method in order])
    end.set_ylim(len(order) - 0.4, -0.6)
    return save(figure, path, _caption(methods[order[0]]))


def _best_first(methods: Mapping[str, Mapping[str, Any]], measure: str) -> list[str]:
    """Those without a number at the end, having diverged, come last."""
    sign = -1.0 if measure == "accuracy" else 1.0

    def rank(method: str) -> tuple[bool, float]:
        mean = methods[method][f"mean_{measure}"]["mean"]
        return mean is None, sign * (mean or 0.0)

    return sorted(in_order(methods), key=rank)


def _draw(
    ax: Axes,
    methods: Mapping[str, Mapping[str, Any]],
    order: Sequence[str],
    name: str,
    factor: float,
) -> None:
    for row, method in enumerate(order):
        cell = methods[method][name]
        if cell["mean"] is None:
            continue
        colour = line_of(method).colour
        ax.errorbar(
            factor * cell["mean"],
            row,
            xerr=None if cell["ci95"] is None else factor * cell["ci95"],
            fmt="o",
            color=colour,
            markerfacecolor=colour if methods[method]["told"] == "nothing" else "white",
            elinewidth=1.2,
        )
    ax.grid(axis="x", color=FAINT, alpha=0.25, linewidth=0.6)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color(FAINT)
    ax.tick_params(color=FAINT, labelcolor=INK, labelsize=9.5)
    ax.tick_params(axis="y", length=0)


def _caption(method: Mapping[str, Any]) -> str:
    seeds = method["seeds"]
    over = f"Bars: {method['interval']}." if len(seeds) > 1 else f"One run, seed {seeds[0]}."
    return f"Means over all families. {over} Hollow: told more than the examples."
