"""The figures of a comparison, from its folder."""

from __future__ import annotations

import json
from pathlib import Path

from taskmix.report.figures import loss_figure, responsibility_figure
from taskmix.report.overview import overview_figure
from taskmix.report.runs import by_method, read_runs


def comparison_figures(folder: Path | str) -> list[Path]:
    """All methods at the end and over time, and responsibilities in one figure per method.

    Parameters
    ----------
    folder
        What ``taskmix.compare`` or ``taskmix compare`` wrote.

    Returns
    -------
    list of Path
        The figures, which lie in ``figures`` within the folder.
    """
    folder = Path(folder)
    runs = read_runs(folder)
    comparison = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    methods = list(comparison["methods"])
    figures = list(loss_figure(runs, folder / "figures" / runs[0].measure))
    if len(methods) > 1 and len(runs[0].phases) > 1:
        figures += overview_figure(comparison, folder / "figures" / "overview")
    groups = by_method(runs)
    for name in methods:
        path = folder / "figures" / f"responsibilities-{name.replace(':', '-')}"
        figures += responsibility_figure(groups[name], path)
    return figures
