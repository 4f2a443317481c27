"""What was reached and what was missed on the stress streams: a table, a page, a picture."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch
from rich import box
from rich.table import Table
from rich.text import Text

from taskmix.experiments.criteria import Verdict
from taskmix.reporting.style import BLUE, FAINT, INK, VERMILION, save


@dataclasses.dataclass(frozen=True)
class StressResult:
    """One stream that has been run and judged."""

    name: str
    point: int
    seeds: tuple[int, ...]
    minutes: float
    """Of training, all methods and seeds one after the other."""
    verdicts: tuple[Verdict, ...]


COLUMNS = ("criterion", "measured", "worst seed", "bound", "seeds")
EXPLANATION = (
    "Measured: mean over seeds ± their standard deviation, where a criterion has several families "
    "of the one that came out worst; seeds: how many keep the bound; minutes: training of all "
    "methods and seeds, one after the other."
)


def stress_table(results: Sequence[StressResult]) -> Table:
    """One row per stream and criterion, below the name of the stream."""
    table = Table(title=f"stress: {tally(results)}", caption=EXPLANATION, box=box.SIMPLE_HEAD)
    for name in (*COLUMNS, ""):
        table.add_column(name, justify="right" if name == "seeds" else "left", overflow="fold")
    for result in results:
        heading = f"point {result.point}, {result.minutes:.1f} minutes"
        table.add_row(Text.assemble((result.name, "bold"), "\n", (heading, "dim")))
        for verdict in result.verdicts:
            word = Text(outcome(verdict), style="green" if verdict.reached else "bold red")
            table.add_row(*_cells(verdict), word, end_section=verdict is result.verdicts[-1])
    return table


def stress_markdown(results: Sequence[StressResult]) -> str:
    """The same as a page."""
    heads = ("point", "stream", "minutes", *COLUMNS, "")
    lines = [f"# Stress: {tally(results)}", "", EXPLANATION, ""]
    lines += [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for result in results:
        for place, verdict in enumerate(result.verdicts):
            stream = (str(result.point), result.name, f"{result.minutes:.1f}")
            first = stream if place == 0 else ("", "", "")
            word = outcome(verdict) if verdict.reached else f"**{outcome(verdict)}**"
            lines.append(f"| {' | '.join((*first, *_cells(verdict), word))} |")
    return "\n".join(lines) + "\n"


def stress_json(results: Sequence[StressResult]) -> dict[str, Any]:
    """The same for programs; None for what is not finite, such as an alarm that never came."""
    return {"streams": [_finite(dataclasses.asdict(result)) for result in results]}


def stress_figure(results: Sequence[StressResult], path: Path | str) -> tuple[Path, Path]:
    """Streams by criteria, what was measured in each cell, missed ones in another colour."""
    names = list(dict.fromkeys(verdict.what for result in results for verdict in result.verdicts))
    figure = Figure(
        figsize=(3.2 + 0.62 * len(names), 2.6 + 0.32 * len(results)), layout="constrained"
    )
    ax = figure.subplots()
    for row, result in enumerate(results):
        for verdict in result.verdicts:
            column = names.index(verdict.what)
            colour = BLUE if verdict.reached else VERMILION
            shown = verdict.worst if verdict.by_seed else verdict.mean
            ax.barh(row, 0.94, 0.88, column - 0.47, color=colour, alpha=_ALPHA[verdict.reached])
            ax.text(column, row, number(shown), ha="center", va="center", fontsize=7.5)
    ax.set_xticks(range(len(names)), names, rotation=40, ha="left", fontsize=8.5)
    ax.xaxis.tick_top()
    ax.set_yticks(range(len(results)), [result.name for result in results], fontsize=8.5)
    ax.set_xlim(-0.5, len(names) - 0.5)
    ax.set_ylim(len(results) - 0.5, -0.5)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, labelcolor=INK, color=FAINT)
    handles = [
        Patch(color=BLUE, alpha=_ALPHA[True], label="reached"),
        Patch(color=VERMILION, alpha=_ALPHA[False], label="missed"),
    ]
    figure.legend(handles=handles, loc="outside lower right", ncols=2, frameon=False, fontsize=9)
    return save(figure, path, f"{tally(results)}. {_NUMBERS}")


_NUMBERS = "Numbers: mean over seeds, or the worst seed where each is judged by itself."
_ALPHA = {True: 0.25, False: 0.65}
"""How strong the colour of a criterion is that was reached, and of one that was not."""


def tally(results: Sequence[StressResult]) -> str:
    """How many criteria were reached."""
    every = [verdict.reached for result in results for verdict in result.verdicts]
    return f"{sum(every)} of {len(every)} criteria reached"


def outcome(verdict: Verdict) -> str:
    return "reached" if verdict.reached else "missed"


def number(value: float) -> str:
    """Three digits, as few characters as they take.

    >>> number(0.0512), number(12.0), number(float("inf")), number(float("nan"))
    ('0.051', '12', '∞', '-')
    """
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _cells(verdict: Verdict) -> tuple[str, ...]:
    where = f" ({verdict.where})" if verdict.where else ""
    spread = "" if math.isnan(verdict.spread) else f" ± {number(verdict.spread)}"
    return (
        verdict.what + where,
        number(verdict.mean) + spread,
        f"{number(verdict.worst)} (seed {verdict.worst_seed})",
        verdict.bound,
        f"{verdict.kept}/{verdict.seeds}",
    )


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
