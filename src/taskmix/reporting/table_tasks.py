"""Every task and every row of a table, prediction beside truth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from taskmix.names import percent
from taskmix.reporting.markup import Markup, figure, tag
from taskmix.reporting.pictures import colour
from taskmix.tables.result import TableResult

MOST_ROWS = 100_000
"""Query rows that a page holds; of a larger table it shows some of the tasks."""
MOST_TASKS = 100_000


def regime_name(number: int) -> str:
    """With the number that it has in frames and files."""
    return "no regime" if number < 0 else f"regime {number}"


def regime_colour(number: int) -> str:
    return "none" if number < 0 else colour(number)


def tasks_figure(result: TableResult) -> Markup:
    """Any task: its known rows, what was predicted, with intervals, and what was true."""
    shown, all_of_them = _chosen(result)
    predictions = result.predictions.filter(pl.col("task").cast(pl.String).is_in(shown))
    known = result.support.filter(pl.col("task").cast(pl.String).is_in(shown))
    asked = _columns(predictions, result)
    spans, before = _spans(predictions), _spans(known)
    entries = []
    for row in result.tasks.filter(pl.col("task").is_in(shown)).iter_rows(named=True):
        name = row["task"]
        start, stop = spans.get(name, (0, 0))
        first, last = before.get(name, (0, 0))
        entries.append(
            {
                "name": name,
                "start": start,
                "stop": stop,
                "from": first,
                "until": last,
                "error": row["error"],
                "about": _about(row),
            }
        )
    spec = {
        "tasks": entries,
        "first": int(np.argsort([one["error"] for one in entries])[len(entries) // 2]),
        "target": "target" if not result.target else result.target,
        "known": {"row": known["row"].to_numpy(), "target": _numbers(known["target"], result)},
        "asked": asked,
        "labels": list(result.labels or ()),
    }
    count = (
        "" if all_of_them else f"{len(shown):,} of {result.tasks.height:,} tasks are on this page. "
    )
    caption = (
        f"{count}Choose a task by the slider or by its name; “next worst” goes through those with "
        f"the largest errors."
    )
    if result.labels:
        numbered = ", ".join(f"{place}: {name}" for place, name in enumerate(result.labels))
        caption += f" Labels are numbered ({numbered})."
    return figure("tasks", spec, "Known rows, prediction and truth of one task", caption)


def _about(row: Mapping[str, Any]) -> str:
    regime = "no regime (like no other)" if row["regime"] < 0 else regime_name(row["regime"])
    alarm = ", came with an alarm" if row["alarm"] else ""
    novelty = f", novelty {row['novelty']:.2f}" if row["novelty"] is not None else ""
    return f"Task {row['task']}: {regime}, error {row['error']:.3g}{novelty}{alarm}."


def _chosen(result: TableResult) -> tuple[list[str], bool]:
    """All tasks, or of many those with alarms, the worst, and others evenly over time."""
    tasks = result.tasks
    names = tasks["task"].to_list()
    if result.predictions.height <= MOST_ROWS and len(names) <= MOST_TASKS // 10:
        return names, True
    per_task = max(1, result.predictions.height // len(names))
    room = max(20, min(MOST_ROWS // per_task, MOST_TASKS // 10))
    alarmed = np.flatnonzero(tasks["alarm"].to_numpy())[: room // 4]
    worst = np.argsort(-np.nan_to_num(tasks["error"].to_numpy()))[: room // 4]
    evenly = np.linspace(0, len(names) - 1, room // 2).astype(int)
    return [names[place] for place in sorted({*alarmed, *worst, *evenly})], False


def _columns(predictions: pl.DataFrame, result: TableResult) -> dict[str, Any]:
    mean = "label" if result.labels else "mean"
    found = {
        "row": predictions["row"].to_numpy(),
        "target": _numbers(predictions["target"], result),
        "mean": _numbers(predictions[mean], result),
    }
    for name in ("low", "high"):
        if name in predictions.columns:
            found[name] = predictions[name].to_numpy()
    return found


def _numbers(values: pl.Series, result: TableResult) -> np.ndarray:
    """As they are, or the numbers of labels."""
    if not result.labels:
        return values.to_numpy().astype(float)
    place = {name: at for at, name in enumerate(result.labels)}
    return np.array([place.get(str(one), -1) for one in values.to_list()])


def _spans(frame: pl.DataFrame) -> dict[str, tuple[int, int]]:
    """First and last row of each task in a frame, whose tasks are stretches of rows."""
    names = frame["task"].cast(pl.String).to_numpy()
    if not len(names):
        return {}
    starts = np.flatnonzero(np.concatenate([[True], names[1:] != names[:-1]]))
    stops = np.concatenate([starts[1:], [len(names)]])
    pairs = zip(starts.tolist(), stops.tolist(), strict=True)
    return {str(names[start]): (start, stop) for start, stop in pairs}


def rows_figure(result: TableResult) -> Markup:
    frame = result.predictions
    step = max(1, -(-frame.height // MOST_ROWS))
    frame = frame.gather_every(step)
    if result.labels:
        return _confusion(result)
    target, mean = (frame[name].to_numpy().astype(float) for name in ("target", "mean"))
    regime = dict(
        zip(result.tasks["task"].to_list(), result.tasks["regime"].to_list(), strict=True)
    )
    names = frame["task"].cast(pl.String).to_list()
    own = np.array([regime.get(name, -1) for name in names])
    series = [
        {
            "name": regime_name(number),
            "kind": "dots",
            "x": mean[own == number],
            "y": target[own == number],
            "names": [name for name, one in zip(names, own, strict=True) if one == number],
            "colour": regime_colour(number),
            "width": 3,
        }
        for number in np.unique(own).tolist()
    ]
    both = np.concatenate([target, mean])
    low, high = float(np.nanmin(both)), float(np.nanmax(both))
    spec = {
        "x": {"label": "predicted", "min": low, "max": high},
        "y": {"label": "true", "min": low, "max": high},
        "series": series,
        "diagonal": True,
        "hover": "dot",
        "legend": True,
    }
    part = "" if step == 1 else f" One row of every {step} is shown."
    caption = (
        f"One dot per row that was predicted, by the regime of its task. On the dashed line, "
        f"predictions are right.{part}"
    )
    return figure("plot", spec, "Truth against prediction", caption)


def _confusion(result: TableResult) -> Markup:
    labels = list(result.labels or ())
    counts = result.predictions.group_by("target", "label").len()
    found = {(str(t), str(p)): n for t, p, n in counts.iter_rows()}
    head = [tag("th", "true \\ predicted", scope="col")]
    head += [tag("th", name, scope="col") for name in labels]
    rows = []
    for truth in labels:
        total = max(1, sum(found.get((truth, one), 0) for one in labels))
        cells = [
            tag(
                "td",
                f"{found.get((truth, one), 0):,}",
                tag("small", f"{percent(found.get((truth, one), 0) / total, 0)}"),
            )
            for one in labels
        ]
        rows.append(tag("tr", tag("th", truth, scope="row"), *cells))
    table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows))
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label="labels")
