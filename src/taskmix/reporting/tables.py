"""A comparison as a table that a person understands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from taskmix.evaluation import OVER_TASKS
from taskmix.names import printable
from taskmix.reporting.style import in_order


def comparison_table(comparison: Mapping[str, Any]) -> Table:
    """The content of ``comparison.json`` with one row per method.

    Errors or accuracies (in per cent) are those of fixed test tasks after training, one
    task at a time; forgetting is how much worse they became since the family was last
    active. Numbers are means over seeds with
    the half-width of the interval the file names. The best mean of a column is bold, among
    the methods that are told nothing beyond the examples.
    """
    methods: Mapping[str, Mapping[str, Any]] = comparison["methods"]
    order = in_order(methods)
    families = list(methods[order[0]]["final"])
    measure = methods[order[0]]["measure"]
    unit = " in %" if measure == "accuracy" else ""
    table = Table(
        title=_said(f"{comparison['experiment']}: test {measure}{unit} after the whole stream"),
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
        "mean": [methods[m][f"mean_{measure}"] for m in order],
        "forgetting": [methods[m]["mean_forgetting"] for m in order],
        "NMI": [methods[m].get("nmi") for m in order],
    }
    further = comparison.get("measures", {})
    of_method = [methods[m].get("measures", {}) for m in order]
    if measure == "accuracy":
        for name in {*columns} - {"clusters", "NMI"}:
            columns[name] = [_in_percent(cell) for cell in columns[name]]
    largest = {"NMI"} if measure == "error" else {"NMI", "mean", *families}
    for name, described in further.items():
        columns[described["title"]] = [found.get(name) for found in of_method]
        if described["better"] == "larger":
            largest.add(described["title"])
    for name in columns:
        table.add_column(_said(name), justify="right", overflow="fold")
    told_nothing = {row for row, m in enumerate(order) if methods[m]["told"] == "nothing"}
    best = {
        name: _best(name, column, told_nothing, name in largest) for name, column in columns.items()
    }
    for row, method in enumerate(order):
        table.add_row(
            Text.assemble(printable(method), "\n", (f"told {methods[method]['told']}", "dim")),
            *(_cell(name, column[row], row in best[name]) for name, column in columns.items()),
        )
    return table


def _said(name: str) -> str:
    """A name of somebody else's, which colours nothing."""
    return escape(printable(name))


_BOLD = "Bold: best if told nothing."


def _caption(method: Mapping[str, Any]) -> str:
    seeds = method["seeds"]
    if len(seeds) == 1:
        return f"One run (seed {seeds[0]}), so no interval over seeds. {_BOLD}"
    return f"Mean of {len(seeds)} seeds ± {method['interval']}. {_BOLD}"


def _in_percent(cell: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if cell is None:
        return None
    return {name: None if value is None else 100 * value for name, value in cell.items()}


def _best(
    name: str, column: Sequence[Mapping[str, Any] | None], rows: set[int], largest: bool
) -> set[int]:
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
    target = max(shown.values()) if largest else min(shown.values())
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


def accuracy_table(comparison: Mapping[str, Any]) -> Table:
    """The final test on new classes, for an experiment that has one: Table 1 of the paper."""
    methods: Mapping[str, Mapping[str, Any]] = comparison["methods"]
    order = in_order(methods)
    first = methods[order[0]]["test"]
    table = _accuracies(comparison["experiment"], first)
    against = {method: methods[method]["test"].get("against") for method in order}
    others = [f"against {one['method']}" for one in against.values() if one][:1]
    for name in ("method", "parameters", "stopped at", "accuracy", *others):
        table.add_column(name, justify="left" if name == "method" else "right")
    for method in order:
        test, difference = methods[method]["test"], against[method]
        paired = _difference(difference) if difference else ""
        table.add_row(
            _said(method),
            f"{test['parameters']:,}",
            str(test["iteration"]),
            _accuracy(test),
            *([paired] if others else []),
        )
    if others:
        table.caption = f"{table.caption}\nThe last column pairs the tasks; ± {OVER_TASKS}."
    return table


def shot_table(comparisons: Mapping[int, Mapping[str, Any]]) -> Table:
    """The same for several numbers of shots, one column each."""
    tests = {
        shot: {method: entry["test"] for method, entry in comparison["methods"].items()}
        for shot, comparison in comparisons.items()
    }
    order = in_order(next(iter(tests.values())))
    first = next(iter(tests.values()))[order[0]]
    table = _accuracies("few-shot", first)
    for name in ("method", "parameters", *(f"{shot}-shot" for shot in tests)):
        table.add_column(name, justify="left" if name == "method" else "right")
    for method in order:
        parameters = next(iter(tests.values()))[method]["parameters"]
        table.add_row(
            _said(method),
            f"{parameters:,}",
            *(_accuracy(of_method[method]) for of_method in tests.values()),
        )
    return table


def _accuracies(experiment: str, test: Mapping[str, Any]) -> Table:
    return Table(
        title=_said(f"{experiment}: accuracy in % on {test['split']} classes"),
        caption=f"{test['episodes']} tasks, {test['queries_per_class']} queries per class; "
        f"± {test['interval']}.",
        box=box.SIMPLE_HEAD,
        title_style="bold",
        caption_style="dim",
    )


def _difference(against: Mapping[str, Any]) -> str:
    return f"{100 * against['mean']:+.2f} ± {100 * against['ci95']:.2f}"


def _accuracy(test: Mapping[str, Any]) -> str:
    return f"{100 * test['accuracy']:.2f} ± {100 * test['ci95']:.2f}"
