"""Whether a learner knows how sure it may be, as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from taskmix.names import percent
from taskmix.reporting.markup import Markup, figure, join, paragraphs
from taskmix.reporting.pictures import colour, dash
from taskmix.reporting.runs import Run

UNKNOWN = (
    "This learner does not say how uncertain it is: it gives no intervals, and nothing can be said "
    "about its calibration."
)


def calibration_figure(found: Any, run: Run) -> Markup:
    """Observed against promised shares, one line per family, at the end of the run."""
    if isinstance(found, Mapping) and found.get("levels"):
        return _intervals(found, run.families)
    if isinstance(found, Mapping) and found.get("confidence"):
        return _classes(found, run.families)
    last = run.coverage[:, -1]
    if run.measure == "error" and not np.isfinite(last).any():
        return paragraphs([UNKNOWN])
    if np.isfinite(last).any():
        return join([paragraphs([_at_ninety(run)]), _over_time(run)])
    return paragraphs(
        ["The folder says nothing about calibration; a run of this version records it at its end."]
    )


def _intervals(found: Mapping[str, Any], families: Sequence[str]) -> Markup:
    levels = [float(level) for level in found["levels"]]
    series = [
        {
            "name": family,
            "x": [0.0, *levels, 1.0],
            "y": [0.0, *found["covered"][family], 1.0],
            "colour": colour(f),
            "dash": dash(f),
        }
        for f, family in enumerate(families)
        if found["covered"].get(family)
    ]
    if not series:
        return paragraphs([UNKNOWN])
    caption = (
        "Share of targets that fell into intervals of each probability. On the dashed line "
        "intervals are right; below it they are too narrow, above it too wide."
    )
    return _square(series, "probability of the interval", "share of targets inside", caption)


def _classes(found: Mapping[str, Any], families: Sequence[str]) -> Markup:
    series = []
    for f, family in enumerate(families):
        bins = [one for one in found["confidence"].get(family, []) if one[0]]
        if not bins:
            continue
        confidence, right = ([one[place] / one[0] for one in bins] for place in (1, 2))
        order = np.argsort(confidence)
        series.append(
            {
                "name": family,
                "x": np.asarray(confidence)[order],
                "y": np.asarray(right)[order],
                "colour": colour(f),
                "dash": dash(f),
            }
        )
    if not series:
        return paragraphs([UNKNOWN])
    caption = (
        "Predictions grouped by the probability of their most probable class. On the dashed line "
        "they are as often right as they say; below it they are too sure of themselves."
    )
    return _square(series, "probability of the predicted class", "share that is right", caption)


def _square(series: Sequence[Any], x: str, y: str, caption: str) -> Markup:
    spec = {
        "x": {"label": x, "percent": True, "min": 0, "max": 1},
        "y": {"label": y, "percent": True, "min": 0, "max": 1},
        "series": list(series),
        "diagonal": True,
        "legend": True,
        "zoom": False,
    }
    return figure("plot", spec, f"Calibration: {y} against {x}", caption, numbers=True)


def _at_ninety(run: Run) -> str:
    shares = ", ".join(
        f"{family} {percent(one)}"
        for family, one in zip(run.families, run.coverage[:, -1], strict=True)
        if np.isfinite(one)
    )
    return f"At the end, 90 % intervals held these shares of the targets: {shares}."


def _over_time(run: Run) -> Markup:
    spec = {
        "x": {"label": "iteration", "min": 0, "max": run.phases[-1].stop, "integer": True},
        "y": {
            "label": "share of targets in 90 % intervals",
            "percent": True,
            "cap": 1,
            "line": 0.9,
        },
        "xs": [run.iterations],
        "series": [
            {"name": family, "x": 0, "y": run.coverage[f], "colour": colour(f), "dash": dash(f)}
            for f, family in enumerate(run.families)
        ],
        "group": "stream",
        "legend": True,
    }
    return figure("plot", spec, "Coverage of 90 % intervals over time", "", numbers=True)
