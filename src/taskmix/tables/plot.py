"""Errors and regimes over the tasks of a table, in one picture."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from taskmix.files import explained, replace

if TYPE_CHECKING:
    from taskmix.tables.result import TableResult

WINDOW = 30
"""Tasks over which errors are averaged, or a tenth of all if there are few."""


def draw(result: TableResult, path: Path) -> Path:
    """Above: running errors of taskmix and its rivals, alarms as lines; below: regimes."""
    from matplotlib.figure import Figure

    tasks = result.tasks
    window = max(1, min(WINDOW, tasks.height // 10))
    figure = Figure(figsize=(9, 5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    names = {"error": "taskmix"} | {f"error of {name}": name for name in result.baselines}
    for number, (column, name) in enumerate(names.items()):
        values = _smoothed(tasks[column].to_numpy(), window)
        positions = np.arange(len(values)) + (window - 1) / 2
        width = 2.0 if number == 0 else 1.0
        above.plot(positions, values, label=name, linewidth=width, zorder=10 - number)
    for position in np.flatnonzero(tasks["alarm"].to_numpy()):
        above.axvline(position, color="black", linewidth=0.5, alpha=0.5)
    above.set_ylabel(result.measure.replace(" of ", "\nof "))
    above.set_ylim(bottom=0)
    above.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    below.scatter(np.arange(tasks.height), tasks["regime"].to_numpy(), s=4, color="black")
    below.set_yticks(sorted({regime.number for regime in result.regimes}))
    below.set_ylabel("regime\n(-1: none)")
    below.set_xlabel("tasks in order")
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix[1:] or "png", dpi=120)
    with explained(f"write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
    # Not in place: the file may have a second name, or be a FIFO.
    replace(path, drawn.getvalue())
    return path


def _smoothed(values: np.ndarray, window: int) -> np.ndarray:
    return np.convolve(values, np.full(window, 1 / window), mode="valid")
