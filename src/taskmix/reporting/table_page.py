"""The report of a table: predictions against truth, regimes and alarms over the tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from taskmix.names import percent
from taskmix.reporting.markup import (
    Markup,
    Section,
    chip,
    facts,
    figure,
    join,
    notes_box,
    settings_list,
    tag,
)
from taskmix.reporting.pictures import colour, dash
from taskmix.reporting.run_page import repeating, settings_of
from taskmix.reporting.table_tasks import (
    MOST_TASKS,
    regime_colour,
    regime_name,
    rows_figure,
    tasks_figure,
)
from taskmix.tables.result import TableResult, notes_of_table

WINDOW = 30
MOST_ALARMS = 50


def table_sections(
    result: TableResult, config: Mapping[str, Any], command: Sequence[str] | None
) -> list[Section]:
    """What was predicted, how well, of which kinds the tasks are, and when alarms were raised."""
    return [
        Section("summary", "In short", _summary(result), "summary"),
        Section("errors", "Error over the tasks", _errors(result), "errors"),
        Section("tasks", "Prediction and truth, task by task", tasks_figure(result), "tasks"),
        Section("rows", "Prediction against truth, row by row", rows_figure(result), "rows"),
        Section("regimes", "Regimes and alarms", _regimes(result), "regimes"),
        Section("calibration", "Calibration", _calibration(result), "calibration"),
        Section("settings", "Settings", _all_settings(result, config), "settings"),
        Section("repeat", "How to repeat it", repeating(config, command), "repeat"),
    ]


def _summary(result: TableResult) -> Markup:
    kinds = sum(regime.number >= 0 for regime in result.regimes)
    said = [
        f"taskmix went through {result.tasks.height:,} tasks with {result.predictions.height:,} "
        f"rows to predict; every task was predicted from its known rows before anything was "
        f"learned from it."
    ]
    if result.baselines:
        best = min(result.baselines, key=lambda name: result.baselines[name].value)
        other = result.baselines[best].value
        which = "below" if result.error.value < other else "not below"
        scale = "" if result.labels else " (a constant prediction has about 1)"
        said.append(
            f"Its error is {result.error.value:.3g}{scale}, {which} that of the best of "
            f"{len(result.baselines)} simple alternatives ({best}, {other:.3g})."
        )
    said.append(
        f"It told {kinds} kind{'s' * (kinds != 1)} of tasks apart and raised "
        f"{len(result.alarms):,} alarm{'s' * (len(result.alarms) != 1)}."
    )
    shown = [
        (
            "error",
            f"{result.error.value:.3g}",
            f"{result.error.low:.3g} to {result.error.high:.3g}",
        ),
        ("tasks", f"{result.tasks.height:,}", f"{result.predictions.height:,} rows predicted"),
        ("regimes", f"{kinds}", "kinds of tasks told apart"),
        ("alarms", f"{len(result.alarms):,}", "times tasks fitted nothing"),
    ]
    if result.coverage is not None:
        shown.append(("in 90 % intervals", percent(result.coverage), "90 % is right"))
    return join(
        [
            tag("p", " ".join(said), class_="lead"),
            facts(shown),
            notes_box("To be aware of", notes_of_table(result)),
            _rivals(result),
        ]
    )


def _rivals(result: TableResult) -> Markup:
    every = {"taskmix": result.error, **result.baselines}
    rows = [
        {
            "name": name,
            "mean": one.value,
            "low": one.low,
            "high": one.high,
            "colour": "c4" if name == "taskmix" else "c6",
        }
        for name, one in every.items()
    ]
    spec = {"rows": rows, "label": f"{result.measure} (lower is better)"}
    label = "; ".join(f"{name} {one.value:.4g}" for name, one in every.items())
    return figure("whiskers", spec, f"Errors: {label}", "Bars: 95 % intervals over tasks.")


def _errors(result: TableResult) -> Markup:
    tasks = result.tasks[:MOST_TASKS]
    window = max(1, min(WINDOW, tasks.height // 10))
    names = {"error": "taskmix"} | {f"error of {name}": name for name in result.baselines}
    series: list[dict[str, Any]] = []
    for place, (column, name) in enumerate(names.items()):
        values = np.convolve(tasks[column].to_numpy(), np.full(window, 1 / window), mode="valid")
        own: dict[str, Any] = {"x": 0, "y": values, "name": name, "dash": dash(place)}
        own |= {"colour": "c4", "width": 3} if place == 0 else {"colour": colour((place - 1) % 4)}
        series.append(own)
    # A window stands at its last task: a value says nothing about what comes later.
    places = np.arange(len(series[0]["y"])) + window - 1
    spec = {
        "x": {"label": "task", "min": 0, "max": max(tasks.height - 1, 1), "integer": True},
        "y": {"label": result.measure, "min": 0, "max": _top([one["y"] for one in series])},
        "xs": [places],
        "series": series,
        "marks": _marks(result),
        "group": "tasks",
        "legend": True,
    }
    said = f"Means over the last {window} tasks. " if window > 1 else ""
    caption = f"{said}Alarms and births of regimes are marked. Drag to zoom."
    return figure("plot", spec, "Running error of taskmix and alternatives", caption, numbers=True)


def _top(values: Sequence[np.ndarray]) -> float:
    every = np.concatenate(values)
    finite = every[np.isfinite(every)]
    return float(1.1 * np.quantile(finite, 0.995)) if finite.size else 1.0


def _marks(result: TableResult) -> list[dict[str, Any]]:
    place = {name: at for at, name in enumerate(result.tasks["task"].to_list()[:MOST_TASKS])}
    found = [
        {"x": place[name], "kind": "birth", "label": f"a new regime: {name}"}
        for name in result.births
        if name in place
    ]
    found += [
        {"x": place[alarm.tasks[0]], "kind": "alarm", "label": f"alarm: {alarm.tasks[0]}"}
        for alarm in result.alarms
        if alarm.tasks and alarm.tasks[0] in place
    ]
    return found


def _regimes(result: TableResult) -> Markup:
    tasks = result.tasks[:MOST_TASKS]
    own, novelty = tasks["regime"].to_numpy(), tasks["novelty"].to_numpy().astype(float)
    names = np.array(tasks["task"].to_list(), dtype=object)
    series = [
        {
            "name": regime_name(number),
            "kind": "dots",
            "x": np.flatnonzero(own == number),
            "y": novelty[own == number],
            "names": names[own == number],
            "colour": regime_colour(number),
            "width": 5,
        }
        for number in np.unique(own).tolist()
    ]
    spec = {
        "x": {"label": "task", "min": 0, "max": max(tasks.height - 1, 1), "integer": True},
        "y": {"label": "novelty (1: unlike anything known)", "min": 0, "max": 1.04},
        "series": series,
        "sorted": True,
        "marks": _marks(result),
        "group": "tasks",
        "hover": "dot",
        "legend": True,
    }
    caption = (
        "One dot per task: its colour is the regime that it belongs to. Novelty is 0 until enough "
        "tasks have been seen."
    )
    drawn = figure("plot", spec, "Regimes and novelty over the tasks", caption)
    return join([drawn, _regime_table(result), _alarms(result)])


def _regime_table(result: TableResult) -> Markup:
    columns: dict[str, str | None] = {"regime": None, "tasks": None, "error": None}
    columns |= dict.fromkeys(("first task", "last task"), "text")
    head = [tag("th", name, scope="col", class_=kind) for name, kind in columns.items()]
    rows = [
        tag(
            "tr",
            tag(
                "th",
                chip(regime_colour(one.number)),
                regime_name(one.number),
                scope="row",
            ),
            tag("td", f"{one.tasks:,}", data_value=one.tasks),
            tag("td", f"{one.error:.3g}", data_value=one.error),
            tag("td", one.first, class_="text"),
            tag("td", one.last, class_="text"),
        )
        for one in result.regimes
    ]
    table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows), class_="sortable")
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label="regimes")


def _alarms(result: TableResult) -> Markup:
    if not result.alarms:
        return tag("p", "No alarm was raised: every task fitted something that was known.")
    entries = []
    for alarm in result.alarms[:MOST_ALARMS]:
        some = ", ".join(alarm.tasks[:5]) + (" …" if len(alarm.tasks) > 5 else "")
        rows = f"rows {min(alarm.rows):,} to {max(alarm.rows):,}" if alarm.rows else ""
        entries.append(tag("li", f"{some} ({len(alarm.tasks)} tasks, {rows})"))
    more = len(result.alarms) - MOST_ALARMS
    rest = tag("p", f"{more:,} more alarms are in result.json.") if more > 0 else ""
    return join([tag("h3", "Alarms: tasks that fitted nothing"), tag("ul", *entries), rest])


def _calibration(result: TableResult) -> Markup:
    if result.labels:
        return _of_classes(result)
    if result.coverage is None:
        return tag("p", "This learner does not say how uncertain it is: there are no intervals.")
    frame = result.predictions
    inside = (frame["low"] <= frame["target"]) & (frame["target"] <= frame["high"])
    by_task = (
        pl.DataFrame({"task": frame["task"].cast(pl.String), "inside": inside.cast(pl.Float64)})
        .group_by("task", maintain_order=True)
        .mean()
    )
    values = by_task["inside"].to_numpy()[:MOST_TASKS]
    window = max(1, min(3 * WINDOW, len(values) // 5))
    running = np.convolve(values, np.full(window, 1 / window), mode="valid")
    spec = {
        "x": {"label": "task", "min": 0, "max": max(len(values) - 1, 1), "integer": True},
        "y": {
            "label": "share of targets in 90 % intervals",
            "percent": True,
            "cap": 1,
            "line": 0.9,
        },
        "series": [
            {
                "name": "inside",
                "x": np.arange(len(running)) + window - 1,
                "y": running,
                "colour": "c0",
            }
        ],
        "group": "tasks",
    }
    caption = (
        f"Over all rows, 90 % intervals held {percent(result.coverage)} of the targets; the line "
        f"is the mean over the last {window} tasks. Below the dashed line intervals are too narrow."
    )
    return figure("plot", spec, "Share of targets inside their intervals over the tasks", caption)


def _of_classes(result: TableResult) -> Markup:
    frame = result.predictions
    sure = frame["probability"].to_numpy().astype(float)
    right = (frame["target"].cast(pl.String) == frame["label"].cast(pl.String)).to_numpy()
    bins = np.minimum((10 * sure).astype(int), 9)
    counts = np.bincount(bins, minlength=10)
    some = counts > 0
    mean_sure = np.bincount(bins, sure, 10)[some] / counts[some]
    mean_right = np.bincount(bins, right.astype(float), 10)[some] / counts[some]
    spec = {
        "x": {"label": "probability of the predicted label", "percent": True, "min": 0, "max": 1},
        "y": {"label": "share that is right", "percent": True, "min": 0, "max": 1},
        "series": [{"name": "labels", "x": mean_sure, "y": mean_right, "colour": "c0"}],
        "diagonal": True,
        "zoom": False,
    }
    caption = "On the dashed line, predictions are as often right as they say."
    return figure("plot", spec, "Calibration of the predicted labels", caption, numbers=True)


def _all_settings(result: TableResult, config: Mapping[str, Any]) -> Markup:
    """What was chosen for this table, and what was given."""
    return join([settings_list(_settings(result)), settings_of(config)])


def _settings(result: TableResult) -> dict[str, Any]:
    left = {f"left out: {name}": count for name, count in result.left_out.items() if count}
    found = {"kind": result.kind, "measure": result.measure, **result.chosen, **left}
    return {name.replace("_", " "): value for name, value in found.items()}
