"""The two figures of the continual regression experiment, drawn from runs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from taskmix.reporting.runs import Combined, Run, by_method
from taskmix.reporting.style import (
    BACKGROUND,
    CLUSTER_COLOURS,
    INK,
    in_order,
    legend,
    line_of,
    panels,
    save,
    seed_list,
    top_of,
)

_COMBINED = {
    "mixture": "",
    "weighted": "Errors of the clusters, weighted by their responsibilities.",
    "likeliest": "Errors of the cluster with the largest responsibility.",
}


def loss_figure(
    runs: Sequence[Run], path: Path | str, combined: Combined = "mixture"
) -> tuple[Path, Path]:
    """Error or accuracy on held-out tasks of each family over the iterations, one line per method.

    Figures 6 and 8 of the paper, which has ``combined`` weighted. A panel shows what a method knows
    about a family while it is active (white) and while it is not (grey). More methods than can be
    told apart are drawn in parts, each with the first method. Returns the PNG and the PDF file.
    """
    groups = by_method(runs)
    first = _common_stream(runs)
    error = first.measure == "error"
    parts = _parts(in_order(groups))
    figure, drawn = panels(first.families, first.phases, share_y=not error, parts=len(parts))
    for methods, (part, axes) in zip(parts, drawn, strict=True):
        for f, ax in enumerate(axes):
            # Ours comes last so that no other line covers it.
            for method in reversed(methods):
                values = np.stack([run.shown(combined)[f] for run in groups[method]])
                _draw_method(ax, method, groups[method][0].iterations, values)
            ax.set_ylim(*_limits(runs, f, combined))
        label = "held-out error (lower is better)" if error else "held-out accuracy in %"
        axes[0].set_ylabel(label, color=INK)
        legend(part, [_legend_entry(method) for method in methods])
    caption = f"{_COMBINED[combined]} {_band_caption(groups)} {_stream_caption(first)}"
    return save(figure, path, caption)


def responsibility_figure(runs: Sequence[Run], path: Path | str) -> tuple[Path, Path]:
    """How much of each family's test tasks each cluster takes, as long as it lives.

    Figures 7 and 9 of the paper, for the seeds of one method. What no cluster explains is a
    grey area; births are marked at the bottom, alarms at the top. Returns the PNG and the PDF
    file.
    """
    groups = by_method(runs)
    if len(groups) != 1:
        raise ValueError(
            f"A responsibility figure shows one method, but the runs have {in_order(groups)}; "
            f"draw one figure for each."
        )
    first = _common_stream(runs)
    figure, [(part, axes)] = panels(first.families, first.phases, share_y=True)
    clusters = max(run.responsibilities.shape[-1] for run in runs)
    for f, ax in enumerate(axes):
        _draw_background(ax, first.iterations, np.stack([run.background[f] for run in runs]))
        for cluster in range(clusters):
            _draw_cluster(ax, cluster, first.iterations, _of_cluster(runs, f, cluster))
        for run in runs:
            _mark_events(ax, run)
        ax.set_ylim(0, 1.02)
    axes[0].set_ylabel("mean responsibility", color=INK)
    legend(part, _responsibility_legend(runs, clusters))
    return save(
        figure,
        path,
        f"{line_of(first.method).label}. {_thin_lines_caption(runs)} {_stream_caption(first)}",
    )


def _responsibility_legend(runs: Sequence[Run], clusters: int) -> list[Line2D | Patch]:
    """What there is in a figure, without the clusters that hardly show."""
    shown = [one for one in range(clusters) if any(_takes_part(run, one) for run in runs)]
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=_colour(cluster), linewidth=2.4, label=f"cluster {cluster + 1}")
        for cluster in shown[:_NAMED]
    ]
    if any(np.nanmax(run.background, initial=0) > _VISIBLE for run in runs):
        grey = to_rgba(BACKGROUND, _BACKGROUND_ALPHA)
        handles.append(Patch(facecolor=grey, edgecolor=BACKGROUND, label="background"))
    if any(run.spawns for run in runs):
        handles.append(Line2D([], [], **_SPAWN_MARK, color=INK, linestyle="", label="spawn"))
    if any(run.alarms for run in runs):
        handles.append(Line2D([], [], **_ALARM_MARK, linestyle="", label="alarm"))
    return handles


def _takes_part(run: Run, cluster: int) -> bool:
    if cluster >= run.responsibilities.shape[-1]:
        return False
    return bool(np.nanmax(run.responsibilities[..., cluster], initial=0) > _VISIBLE)


_VISIBLE = 0.02
"""Share from which on something can be seen in a figure."""
_NAMED = 12
"""Clusters in a legend; there are fewer colours than that."""
_BACKGROUND_ALPHA = 0.4

_AT_ONCE = 7
"""Lines of one panel that can be told apart."""


def _parts(methods: Sequence[str]) -> list[list[str]]:
    """The methods of each part of a figure; the first one is in all of them.

    >>> _parts(["ours", "maml", "ewc"])
    [['ours', 'maml', 'ewc']]
    """
    if len(methods) <= _AT_ONCE:
        return [list(methods)]
    ours, *others = methods
    parts = math.ceil(len(others) / (_AT_ONCE - 1))
    return [[ours, *part.tolist()] for part in np.array_split(others, parts)]


def _limits(runs: Sequence[Run], family: int, combined: Combined) -> tuple[float, float]:
    """The same in every part: errors of a family from zero, accuracies as they are."""
    if runs[0].measure == "error":
        return 0.0, top_of(np.concatenate([run.shown(combined)[family] for run in runs]))
    accuracies = np.concatenate([run.shown(combined).ravel() for run in runs])
    return float(np.nanmin(accuracies)) - 1, float(np.nanmax(accuracies)) + 1


_SPAWN_MARK: dict[str, Any] = {
    "marker": "^",
    "markersize": 7,
    "markeredgecolor": "white",
    "markeredgewidth": 0.6,
}


_ALARM_MARK: dict[str, Any] = {
    "marker": "v",
    "markersize": 6,
    "color": INK,
    "markerfacecolor": "white",
    "markeredgewidth": 1.0,
}


def _draw_method(ax: Axes, method: str, iterations: np.ndarray, errors: np.ndarray) -> None:
    line = line_of(method)
    if len(errors) > 1:
        ax.fill_between(
            iterations,
            errors.min(axis=0),
            errors.max(axis=0),
            color=line.colour,
            alpha=0.18,
            linewidth=0,
        )
    ax.plot(
        iterations,
        errors.mean(axis=0),
        color=line.colour,
        linewidth=line.width,
        linestyle=line.dashes,
    )


def _legend_entry(method: str) -> Line2D:
    line = line_of(method)
    return Line2D(
        [], [], color=line.colour, linewidth=line.width, linestyle=line.dashes, label=line.label
    )


def _draw_cluster(ax: Axes, cluster: int, iterations: np.ndarray, shares: np.ndarray) -> None:
    colour = _colour(cluster)
    if len(shares) > 1:
        ax.plot(iterations, shares.T, color=colour, linewidth=0.7, alpha=0.35)
    with warnings.catch_warnings():
        # Before the birth of a cluster every seed is NaN, and so is the mean.
        warnings.simplefilter("ignore", RuntimeWarning)
        mean = np.nanmean(shares, axis=0)
    ax.plot(iterations, mean, color=colour, linewidth=2.4)


def _draw_background(ax: Axes, iterations: np.ndarray, shares: np.ndarray) -> None:
    """The mean over seeds as an area under all lines; nothing where there is next to none."""
    mean = np.nan_to_num(shares).mean(axis=0)
    if mean.max() > _VISIBLE:
        ax.fill_between(
            iterations, mean, color=BACKGROUND, alpha=_BACKGROUND_ALPHA, linewidth=0, zorder=1.5
        )
        # An edge, as stretches without the family are grey, too.
        ax.plot(iterations, mean, color=BACKGROUND, linewidth=1, zorder=1.6)


def _mark_events(ax: Axes, run: Run) -> None:
    above_all: dict[str, Any] = {"clip_on": False, "zorder": 5}
    for iteration, cluster in run.births:
        ax.plot(iteration, 0, **_SPAWN_MARK, color=_colour(cluster), **above_all)
    if run.alarms:
        ax.plot(run.alarms, [1.02] * len(run.alarms), **_ALARM_MARK, linestyle="", **above_all)


def _of_cluster(runs: Sequence[Run], family: int, cluster: int) -> np.ndarray:
    never = np.full(runs[0].iterations.shape, np.nan)
    return np.stack(
        [
            run.responsibilities[family, :, cluster]
            if cluster < run.responsibilities.shape[-1]
            else never
            for run in runs
        ]
    )


def _colour(cluster: int) -> str:
    return CLUSTER_COLOURS[cluster % len(CLUSTER_COLOURS)]


def _common_stream(runs: Sequence[Run]) -> Run:
    if not runs:
        raise ValueError("There are no runs to draw; give at least one.")
    first = runs[0]
    for run in runs[1:]:
        if run.phases != first.phases or run.families != first.families:
            raise ValueError(
                f"The runs {first.method}, seed {first.seed} and {run.method}, seed {run.seed} "
                f"had different streams; a figure shows runs on one stream."
            )
    return first


def _stream_caption(run: Run) -> str:
    """What the grey means, and how large the experiment was."""
    grey = "Light grey: family not in the stream." if len(run.phases) > 1 else ""
    if run.scale is None:
        return grey
    settings = run.config["settings"]
    size = f"{settings['size']}x{settings['size']} pixels"
    return f"{grey} Scale {run.scale}: {size}, {settings['way']}-way {settings['shot']}-shot."


def _band_caption(groups: dict[str, list[Run]]) -> str:
    seeds = {tuple(run.seed for run in group) for group in groups.values()}
    if len(seeds) > 1:
        return "Line: mean over each method's seeds; band: smallest to largest."
    (common,) = seeds
    if len(common) == 1:
        return f"One run, {seed_list(common)}."
    return f"Line: mean over {seed_list(common)}; band: smallest to largest of them."


def _thin_lines_caption(runs: Sequence[Run]) -> str:
    named = seed_list([run.seed for run in runs])
    if len(runs) == 1:
        return f"One run, {named}."
    return f"Thick: mean over {named}; thin: each of them."
