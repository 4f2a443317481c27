"""A comparison as a table that a person understands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from taskmix.report.style import in_order


def comparison_table(comparison: Mapping[str, Any]) -> Table:
    """The content of ``comparison.json`` with one row per method.

    Errors are those of fixed test tasks after training, one task at a time; forgetting is
    how much they rose since the family was last active. Numbers are means over seeds with
    the half-width of the interval the file names. The best mean of a column is bold, among
    the methods that are told nothing beyond the examples.
    """
    methods: Mapping[str, Mapping[str, Any]] = comparison["methods"]
    order = in_order(methods)
    families = list(methods[order[0]]["final"])
    table = Table(
        title=f"{comparison['experiment']}: test error after the whole stream",
        caption=_caption(methods[order[0]]),
        box=box.SIMPLE_HEAD,
        padding=0,
        pad_edge=False,
        title_style="bold",
        caption_style="dim",
    )
    table.add_column("method", no_wrap=True)
    columns = {
        "clusters": [methods[m].get("clusters") for m in order],
        **{family: [methods[m]["final"][family] for m in order] for family in families},
        "mean": [methods[m]["mean_error"] for m in order],
        "forgetting": [methods[m]["mean_forgetting"] for m in order],
        "NMI": [methods[m].get("nmi") for m in order],
    }
    for name in columns:
        table.add_column(name, justify="right", overflow="fold")
    told_nothing = {row for row, m in enumerate(order) if methods[m]["told"] == "nothing"}
    best = {name: _best(name, column, told_nothing) for name, column in columns.items()}
    for row, method in enumerate(order):
        table.add_row(
            Text.assemble(method, "\n", (f"told {methods[method]['told']}", "dim")),
            *(_cell(name, column[row], row in best[name]) for name, column in columns.items()),
        )
    return table


_BOLD = "Bold: best if told nothing."


def _caption(method: Mapping[str, Any]) -> str:
    seeds = method["seeds"]
    if len(seeds) == 1:
        return f"One run (seed {seeds[0]}), so no interval over seeds. {_BOLD}"
    return f"Mean of {len(seeds)} seeds ± {method['interval']}. {_BOLD}"


def _best(name: str, column: Sequence[Mapping[str, Any] | None], rows: set[int]) -> set[int]:
    """Rows with the best mean, as it is shown: a difference that is not printed is none."""
    if name == "clusters":
        return set()
    shown = {
        row: round(cell["mean"], _digits(name))
        for row, cell in enumerate(column)
        if row in rows and cell is not None and cell["mean"] is not None
    }
    if len(set(shown.values())) < 2:
        return set()
    target = max(shown.values()) if name == "NMI" else min(shown.values())
    return {row for row, value in shown.items() if value == target}


def _cell(name: str, cell: Mapping[str, Any] | None, best: bool) -> Text:
    """The mean with its interval below it, which keeps a table within 80 columns."""
    if cell is None or cell["mean"] is None:
        return Text("-")
    digits = _digits(name)
    mean = Text(f"{cell['mean']:.{digits}f}", style="bold" if best else "")
    if cell["ci95"] is None or name == "clusters":
        return mean
    return Text.assemble(mean, "\n", (f"±{cell['ci95']:.{digits}f}", "dim"))


def _digits(name: str) -> int:
    return 1 if name == "clusters" else 2
