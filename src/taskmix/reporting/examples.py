"""Tasks that a run kept to be looked at, as pictures: curves, images or rows."""

from __future__ import annotations

import base64
import binascii
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from taskmix.names import percent
from taskmix.reporting.markup import Markup, chip, figure, join, paragraphs, tag
from taskmix.reporting.pictures import colour
from taskmix.training.run_folder import EXAMPLES, read_json

MOST = 200
"""Tasks that are shown of one folder."""
PNG = b"\x89PNG\r\n\x1a\n"
ROWS = 8
CURVES = (
    "Large dots are the known examples, small ones those that were asked for; a line with a band "
    "is the prediction with its 90 % interval."
)
IMAGES = (
    "Above one known image of each class, below one that was asked for: framed in green if it was "
    "told rightly, in red if not."
)


@dataclasses.dataclass(frozen=True)
class KeptExamples:
    """Tasks by the reason for which they were kept."""

    of_clusters: Mapping[int, Sequence[Mapping[str, Any]]]
    """Typical test tasks of each cluster."""
    unexplained: Sequence[Mapping[str, Any]]
    """Test tasks that no cluster explains at the end."""
    alarming: Sequence[Mapping[str, Any]]
    """Tasks of the stream that raised an alarm."""


def read_examples(folder: Path) -> KeptExamples | None:
    """Those of a run folder; None if it has none, as those of older versions."""
    if not (folder / EXAMPLES).exists():
        return None
    tasks = read_json(folder / EXAMPLES).get("tasks")
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise ValueError(f"{folder / EXAMPLES} holds no list of tasks; repeat the run.")
    of_clusters: dict[int, list[Mapping[str, Any]]] = {}
    for task in tasks[:MOST]:
        if task.get("why") == "cluster" and isinstance(task.get("cluster"), int):
            of_clusters.setdefault(task["cluster"], []).append(task)
    others = {
        why: [task for task in tasks[:MOST] if task.get("why") == why]
        for why in ("nothing", "alarm")
    }
    return KeptExamples(of_clusters, others["nothing"], others["alarm"])


def cluster_gallery(examples: KeptExamples) -> Markup:
    """Typical tasks of each cluster."""
    parts = []
    for number, tasks in sorted(examples.of_clusters.items()):
        parts.append(tag("h3", chip(colour(number)), f"Typical tasks of cluster {number + 1}"))
        parts.append(_gallery(tasks, colour(number)))
    every = [task for tasks in examples.of_clusters.values() for task in tasks]
    return join([*parts, _explained(every)])


def unexplained_gallery(examples: KeptExamples) -> Markup:
    """What raised alarms, and what no cluster explains at the end."""
    parts = []
    if examples.alarming:
        parts += [
            tag("h3", "Tasks of the stream that raised an alarm"),
            tag("p", "They came when the learner said: these fit nothing that I know."),
            _gallery(examples.alarming, "ink"),
        ]
    if examples.unexplained:
        parts += [
            tag("h3", "Test tasks that no cluster explains at the end"),
            _gallery(examples.unexplained, "none"),
        ]
    parts.append(_explained([*examples.alarming, *examples.unexplained]))
    if len(parts) == 1:
        return paragraphs(["No task raised an alarm, and no test task was left without a cluster."])
    return join(parts)


def _gallery(tasks: Sequence[Mapping[str, Any]], colour: str) -> Markup:
    return tag("div", *(_picture(task, colour) for task in tasks), class_="gallery")


def _explained(tasks: Sequence[Mapping[str, Any]]) -> Markup:
    images = any(isinstance(task.get("image"), str) for task in tasks)
    return tag("p", IMAGES if images else CURVES, class_="soft") if tasks else Markup("")


def _picture(task: Mapping[str, Any], colour: str) -> Markup:
    about = _about(task)
    try:
        if isinstance(task.get("image"), str):
            return _image(task["image"], about)
        support, query = task["support"], task["query"]
        x = np.asarray(support["x"], dtype=float)
        if x.ndim == 2 and x.shape[1] == 1:
            return _curve(support, query, colour, about)
        return tag("figure", _rows(support), tag("figcaption", about))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        return tag("p", f"A task is kept in a way that cannot be shown ({error}).", class_="soft")


def _about(task: Mapping[str, Any]) -> str:
    parts = [str(task.get("family", ""))]
    if isinstance(task.get("iteration"), int):
        parts.append(f"iteration {task['iteration']:,}")
    for name, word in (("share", "belongs to the cluster"), ("background", "to no cluster")):
        if isinstance(task.get(name), int | float):
            parts.append(f"{word} with {percent(task[name], 0)}")
    if isinstance(task.get("error"), int | float):
        parts.append(f"error {task['error']:.3g}")
    return ", ".join(filter(None, parts))


def _image(content: str, about: str) -> Markup:
    try:
        decoded = base64.b64decode(content, validate=True)
    except binascii.Error as error:
        raise ValueError(f"an image is not base64: {error}") from None
    if not decoded.startswith(PNG):
        raise ValueError("an image is no PNG")
    source = f"data:image/png;base64,{content}"
    alt = f"Images of a task: {about}"
    return tag("figure", Markup(tag("img", src=source, alt=alt)[:-6]), tag("figcaption", about))


def _curve(support: Mapping[str, Any], query: Mapping[str, Any], colour: str, about: str) -> Markup:
    x, y = (np.asarray(support[side], dtype=float).reshape(-1) for side in ("x", "y"))
    asked = np.asarray(query["x"], dtype=float).reshape(-1)
    order = np.argsort(asked)
    column = {
        name: np.asarray(query[name], dtype=float).reshape(-1)[order]
        for name in ("y", "mean", "low", "high")
        if query.get(name) is not None
    }
    series: list[dict[str, Any]] = []
    if "mean" in column:
        line: dict[str, Any] = {
            "name": "predicted",
            "x": asked[order],
            "y": column["mean"],
            "colour": colour,
            "width": 2,
        }
        if "low" in column:
            line |= {"name": "predicted, 90 %", "low": column["low"], "high": column["high"]}
        series.append(line)
    series.append(
        {
            "name": "asked",
            "kind": "dots",
            "x": asked[order],
            "y": column["y"],
            "colour": "c4",
            "width": 4,
        }
    )
    series.append({"name": "known", "kind": "dots", "x": x, "y": y, "colour": "ink", "width": 7})
    spec = {
        "x": {"label": "input", "pad": 0.03},
        "y": {"label": "target", "fit": True},
        "series": series,
        "mini": True,
        "zoom": False,
        "height": 190,
    }
    return figure("plot", spec, f"A task: {about}", about)


def _rows(support: Mapping[str, Any]) -> Markup:
    """Known rows of a task with several inputs."""
    x = np.asarray(support["x"], dtype=float)
    y = np.asarray(support["y"], dtype=float).reshape(len(x), -1)
    inputs = min(x.shape[1], 6)
    head = [tag("th", f"x{place + 1}", scope="col") for place in range(inputs)]
    head += [tag("th", "target", scope="col")]
    rows = [
        tag("tr", *(tag("td", f"{value:.3g}") for value in [*given[:inputs], own[0]]))
        for given, own in zip(x[:ROWS], y[:ROWS], strict=True)
    ]
    table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows))
    return tag("div", table, class_="scroll", tabindex=0)
