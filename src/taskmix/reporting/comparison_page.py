"""The report of several methods or seeds on one stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from taskmix.evaluation import OVER_SEEDS, over_seeds
from taskmix.experiments.notes import notes_by_method
from taskmix.reporting.markup import Markup, Section, figure, join, notes_box, tag
from taskmix.reporting.pictures import (
    bands,
    in_measure,
    label_of,
    marks,
    method_colours,
    value_axis,
)
from taskmix.reporting.run_page import repeating, settings_of
from taskmix.reporting.runs import Run, by_method
from taskmix.reporting.style import in_order, seed_list

TOLD = {
    "nothing": "examples only",
    "boundaries": "when a new phase begins",
    "family": "the family of every task",
}
MOST_SHOWN = 6
"""Methods that are switched on at first: the best at the end, and ours."""
WHAT_TOLD_MEANS = (
    "“Told” is what a method is given beyond the examples of the tasks. Most are told nothing: "
    "they have to notice themselves that the kind of tasks has changed. Some are told when a new "
    "phase begins, some even which family each task is of; their numbers show what that knowledge "
    "is worth, and are not to be compared with the others as equals. Bold is the best among those "
    "that are told nothing."
)


def comparison_sections(
    comparison: Mapping[str, Any], runs: Sequence[Run], command: Sequence[str] | None
) -> list[Section]:
    """The table, the course of all methods, and their differences on the same seeds."""
    groups = by_method(runs)
    methods: Mapping[str, Any] = comparison["methods"]
    found = [
        Section("summary", "In short", _summary(comparison, runs), "summary"),
        Section("table", "All methods", _table(comparison), "table"),
    ]
    if len(methods) > 1:
        body = _differences(comparison)
        found.append(Section("differences", "Paired differences", body, "differences"))
    title = f"{runs[0].measure.capitalize()} over the stream"
    found += [
        Section("stream", title, _course(groups), "stream"),
        Section("settings", "Settings", _settings(groups), "settings"),
        Section("repeat", "How to repeat it", repeating(runs[0].config, command), "repeat"),
    ]
    return found


def _settings(groups: Mapping[str, Sequence[Run]]) -> Markup:
    """What all runs have in common, and the learner of each method."""
    first = groups[next(iter(groups))][0].config
    common = settings_of({name: one for name, one in first.items() if name != "learner"})
    learners = [
        settings_of({"learner": groups[name][0].config.get("learner")}, of=label_of(name))
        for name in in_order(groups)
    ]
    return join([common, *learners])


def _summary(comparison: Mapping[str, Any], runs: Sequence[Run]) -> Markup:
    methods = comparison["methods"]
    measure = runs[0].measure
    order = _best_first(methods, measure)
    equal = [name for name in order if methods[name]["told"] == "nothing"]
    seeds = seed_list(sorted({run.seed for run in runs}))
    kinds = ", ".join(dict.fromkeys(name for p in runs[0].phases for name in p.families))
    said = [
        f"{len(methods)} method{'s' * (len(methods) != 1)} on the same stream "
        f"({runs[0].phases[-1].stop:,} iterations, {len(runs[0].phases)} phases: {kinds}), {seeds}."
    ]
    if len(equal) > 1:
        first, second = (methods[name][f"mean_{measure}"]["mean"] for name in equal[:2])
        if first is not None and second is not None:
            said.append(
                f"Of those that are told nothing, {label_of(equal[0])} has the best mean "
                f"{measure} at the end, {_value(first, measure)}, and {label_of(equal[1])} the "
                f"next best, {_value(second, measure)}."
            )
    own = {label_of(name): notes for name, notes in notes_by_method(comparison).items()}
    notes = grouped_notes(own, len(methods))
    lead = tag("p", " ".join(said), class_="lead")
    return join([lead, notes_box("To be aware of", notes[:40])])


def grouped_notes(notes: Mapping[str, Sequence[str]], methods: int) -> list[str]:
    """Each note once, with the methods that it is of.

    >>> grouped_notes({"maml": ["No alarms."], "ewc": ["No alarms.", "Diverged."]}, 3)
    ['maml, ewc: No alarms.', 'ewc: Diverged.']
    """
    found: dict[str, list[str]] = {}
    for method, own in notes.items():
        for note in own:
            found.setdefault(note, []).append(method)
    return [
        f"{'All methods' if len(names) == methods > 1 else ', '.join(names)}: {note}"
        for note, names in found.items()
    ]


def _best_first(methods: Mapping[str, Any], measure: str) -> list[str]:
    sign = -1.0 if measure == "accuracy" else 1.0

    def rank(name: str) -> tuple[bool, float]:
        mean = methods[name][f"mean_{measure}"]["mean"]
        return mean is None, sign * (mean or 0.0)

    return sorted(in_order(methods), key=rank)


def _value(value: float | None, measure: str) -> str:
    if value is None:
        return "not known"
    return f"{100 * value:.1f} %" if measure == "accuracy" else f"{value:.3g}"


def _table(comparison: Mapping[str, Any]) -> Markup:
    methods: Mapping[str, Any] = comparison["methods"]
    order = in_order(methods)
    first = methods[order[0]]
    measure, families = first["measure"], list(first["final"])
    tested = all("test" in methods[name] for name in order)
    columns: dict[str, tuple[list[Any], int]] = {}
    if tested:
        columns["test accuracy"] = ([_tested(methods[name]) for name in order], -1)
    sign = 1 if measure == "error" else -1
    columns[f"mean {measure}"] = ([methods[n][f"mean_{measure}"] for n in order], sign)
    if len(families) > 1:
        for family in families:
            columns[family] = ([methods[n]["final"][family] for n in order], sign)
    columns["forgetting"] = ([methods[n]["mean_forgetting"] for n in order], 1)
    columns["NMI"] = ([methods[n].get("nmi") for n in order], -1)
    columns["clusters"] = ([methods[n].get("clusters") for n in order], 0)
    for name, described in comparison.get("measures", {}).items():
        better = 1 if described["better"] == "smaller" else -1
        own = [methods[n].get("measures", {}).get(name) for n in order]
        columns[described["title"]] = (own, better)
    equal = [methods[name]["told"] == "nothing" for name in order]
    best = {name: _best(cells, equal, sign) for name, (cells, sign) in columns.items()}
    percent = {"test accuracy"} if measure == "error" else set(columns) - {"NMI", "clusters"}
    percent -= {one["title"] for one in comparison.get("measures", {}).values()}
    head = [tag("th", "method", scope="col"), tag("th", "told", scope="col", class_="text")]
    head += [tag("th", name, scope="col") for name in columns]
    rows = []
    for row, method in enumerate(order):
        told = TOLD.get(methods[method]["told"], str(methods[method]["told"]))
        cells = [
            _cell(cells[row], row in best[name], 100.0 if name in percent else 1.0)
            for name, (cells, _) in columns.items()
        ]
        rows.append(
            tag(
                "tr",
                tag("th", label_of(method), scope="row"),
                tag("td", told, class_="text"),
                *cells,
            )
        )
    table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows), class_="sortable")
    region = tag("div", table, class_="scroll", tabindex=0, role="region", aria_label="all methods")
    unit = " Accuracies and forgetting are in per cent." if measure == "accuracy" else ""
    over = f"± {first['interval']}." if len(first["seeds"]) > 1 else "one seed, so no intervals."
    below = f"Means at the end of the stream, on fixed test tasks; {over}{unit}"
    below += (
        " Forgetting is by how much past families became worse. NMI says how well clusters agree "
        "with families: 1 is perfect. Click a heading to sort."
    )
    return join([tag("p", WHAT_TOLD_MEANS), region, tag("p", below, class_="soft")])


def _tested(method: Mapping[str, Any]) -> dict[str, Any]:
    return {"mean": method["test"]["accuracy"], "ci95": method["test"]["ci95"]}


def _best(cells: Sequence[Any], equal: Sequence[bool], sign: int) -> set[int]:
    """Rows with the best mean, to the digits that are shown."""
    known = {
        row: float(f"{cell['mean']:.3g}")
        for row, cell in enumerate(cells)
        if equal[row] and cell is not None and cell["mean"] is not None
    }
    if sign == 0 or len(set(known.values())) < 2:
        return set()
    target = min(known.values(), key=lambda value: sign * value)
    return {row for row, value in known.items() if value == target}


def _cell(cell: Any, best: bool, factor: float) -> Markup:
    if cell is None or cell.get("mean") is None:
        return tag("td", "\u2013", data_value="")
    mean, width = factor * cell["mean"], cell.get("ci95")
    small = tag("small", f"± {factor * width:.2g}") if width is not None else ""
    return tag("td", f"{mean:.3g}", small, data_value=mean, class_="best" if best else None)


def _differences(comparison: Mapping[str, Any]) -> Markup:
    """Each method minus the best that is told nothing, seed by seed."""
    methods = comparison["methods"]
    measure = next(iter(methods.values()))["measure"]
    order = _best_first(methods, measure)
    reference = next((n for n in order if methods[n]["told"] == "nothing"), order[0])
    values = {name: _by_seed(comparison, name, measure) for name in order}
    factor = 100.0 if measure == "accuracy" else 1.0
    rows, colours = [], method_colours(in_order(methods))
    for name in order:
        if name == reference:
            continue
        seeds = sorted(set(values[name]) & set(values[reference]))
        pairs = [factor * (values[name][seed] - values[reference][seed]) for seed in seeds]
        row: dict[str, Any] = {
            "name": label_of(name),
            "colour": colours[name][0],
            "hollow": methods[name]["told"] != "nothing",
            "without": "diverged, or no seed in common",
        }
        if pairs:
            mean, width = float(np.mean(pairs)), over_seeds(pairs)
            row["mean"] = mean
            if width is not None:
                row |= {"low": mean - width, "high": mean + width}
        rows.append(row)
    better = "left" if measure == "error" else "right"
    unit = " in points" if measure == "accuracy" else ""
    bars = ""
    if any("low" in row for row in rows):
        bars = f" Bars: {OVER_SEEDS}; one that crosses the dashed line does not tell the two apart."
    caption = (
        f"Mean {measure} at the end minus that of {label_of(reference)}, on the same seeds, and so "
        f"on the same streams and test tasks.{bars} Further {better} is better. Hollow: told more "
        f"than the examples."
    )
    label = f"difference of the mean {measure}{unit} to {label_of(reference)}"
    spec = {"rows": rows, "line": 0, "label": label}
    return figure("whiskers", spec, f"Paired differences to {reference}", caption)


def _by_seed(comparison: Mapping[str, Any], method: str, measure: str) -> dict[int, float]:
    found = {}
    for summary in comparison["summaries"]:
        values = [one[measure] for one in summary["final"].values()]
        if summary["method"] == method and None not in values:
            found[int(summary["seed"])] = float(np.mean(values))
    return found


def _course(groups: Mapping[str, Sequence[Run]]) -> Markup:
    """A view for the mean, and one per family; a line per method, a band from least to most."""
    order = in_order(groups)
    first = groups[order[0]][0]
    colours = method_colours(order)
    quiet = set(_by_end(groups)[MOST_SHOWN:]) - {"nonparametric"}
    growing = [name for name in order if any(run.spawns or run.alarms for run in groups[name])]
    views = []
    families = [*(["mean of all families"] if len(first.families) > 1 else []), *first.families]
    for name in families:
        series, every = [], []
        for place, method in enumerate(order):
            values = np.stack([_of(run, name) for run in groups[method]])
            every.append(values)
            own: dict[str, Any] = {
                "name": label_of(method),
                "x": place,
                "y": values.mean(axis=0),
                "colour": colours[method][0],
                "dash": colours[method][1],
                "width": 3 if method == "nonparametric" else 1.8,
            }
            if method in quiet:
                own["off"] = True
            if len(values) > 1:
                own |= {"low": values.min(axis=0), "high": values.max(axis=0)}
            series.append(own)
        axis = value_axis(first, np.concatenate([one.ravel() for one in every]))
        views.append({"name": name, "series": series, "y": axis})
    spec = {
        "x": {"label": "iteration", "min": 0, "max": first.phases[-1].stop, "integer": True},
        "y": views[0]["y"],
        "xs": [groups[method][0].iterations for method in order],
        "bands": bands(first.phases),
        "marks": [mark for name in growing[:1] for run in groups[name] for mark in marks(run)],
        "views": views,
        "choice": "family",
        "legend": True,
    }
    several = any(len(group) > 1 for group in groups.values())
    caption = (
        "Held-out tasks; lines are means over seeds. Click a method to switch it off or on"
        + ("; at first, the best at the end are on." if quiet else ".")
        + (" Bands: from the lowest to the highest seed." if several else "")
    )
    label = f"{first.measure} of {len(order)} methods over the stream"
    if growing:
        caption += f" Births and alarms are those of {label_of(growing[0])}, all seeds."
    return figure("plot", spec, label, caption, numbers=True)


def _by_end(groups: Mapping[str, Sequence[Run]]) -> list[str]:
    """Methods by their mean error at the end, those that diverged last."""
    return sorted(
        groups,
        key=lambda name: float(
            np.nan_to_num(np.mean([run.error[:, -1].mean() for run in groups[name]]), nan=np.inf)
        ),
    )


def _of(run: Run, family: str) -> np.ndarray:
    values = in_measure(run, run.error)
    if family not in run.families:
        return np.asarray(values.mean(axis=0))
    return np.asarray(values[run.families.index(family)])
