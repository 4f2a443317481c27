"""Runs as data of charts: series, phases and marks. How they look is up to the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from taskmix.reporting.runs import Run
from taskmix.reporting.style import METHODS, top_of
from taskmix.streams.stream import Phase

COLOURS = 8
DASHES = (None, "7 3", "2 4", "9 3 2 3")
FAINTEST = 0.01
"""Share of a family's tasks, at any time, with which a cluster is worth a colour."""
MOST_MARKS = 5000

Spec = dict[str, Any]


def colour(place: int) -> str:
    """The name of a colour; a ninth series takes the first one again, and other dashes."""
    return f"c{place % COLOURS}"


def dash(place: int) -> str | None:
    return DASHES[place // COLOURS % len(DASHES)]


def bands(phases: Sequence[Phase]) -> list[Spec]:
    """The phases of a stream, by the names of their families."""
    return [{"from": p.start, "to": p.stop, "label": " + ".join(p.families)} for p in phases]


def marks(run: Run) -> list[Spec]:
    """Births, alarms and removals."""
    found = [
        {"x": at, "kind": "birth", "label": f"birth of cluster {number + 1} at {at:,}"}
        for at, number in run.births
    ]
    found += [{"x": at, "kind": "alarm", "label": f"alarm at {at:,}"} for at in run.alarms]
    found += [
        {"x": at, "kind": "removal", "label": f"cluster {number + 1} removed at {at:,}"}
        for at, number in run.removals
    ]
    return found[:MOST_MARKS]


def value_axis(run: Run, shown: np.ndarray) -> Spec:
    """The axis of errors or accuracies; one that diverges does not flatten the others."""
    if run.measure == "accuracy":
        return {"label": "accuracy", "percent": True, "cap": 1.0}
    finite = shown[np.isfinite(shown)]
    axis: Spec = {"label": "error (lower is better)"}
    if finite.size and finite.min() >= 0:
        axis |= {"min": 0, "max": top_of(shown)}
    return axis


def in_measure(run: Run, error: np.ndarray) -> np.ndarray:
    """Errors, or accuracies as shares."""
    return error if run.measure == "error" else 1 - error


def course(run: Run) -> Spec:
    """Error or accuracy of every family over the stream: on held-out tasks, and before learning."""
    held_out = in_measure(run, run.error)
    before = in_measure(run, run.prequential)
    views: list[Spec] = [
        {"name": "held-out tasks", "series": _of_families(run, held_out, run.ci95)}
    ]
    if np.isfinite(before).any():
        views.append({"name": "the stream itself, before learning", "series": _gaps(run, before)})
    for view, values in zip(views, (held_out, before), strict=False):
        view["y"] = value_axis(run, values)
    return {
        **_over_time(run),
        "choice": "which tasks",
        "xs": [run.iterations],
        "y": views[0]["y"],
        "views": views,
        "legend": True,
    }


def _over_time(run: Run) -> Spec:
    return {
        "x": {"label": "iteration", "min": 0, "max": run.phases[-1].stop, "integer": True},
        "bands": bands(run.phases),
        "marks": marks(run),
        "group": "stream",
    }


def _of_families(
    run: Run, values: np.ndarray, spread: Float[np.ndarray, "families evaluations"]
) -> list[Spec]:
    return [
        {
            "name": family,
            "x": 0,
            "y": values[f],
            "low": values[f] - spread[f],
            "high": values[f] + spread[f],
            "colour": colour(f),
            "dash": dash(f),
            "width": 2.4,
        }
        for f, family in enumerate(run.families)
    ]


def _gaps(run: Run, values: np.ndarray) -> list[Spec]:
    """A family has values while it is active; the first evaluation of a phase stands alone."""
    return [
        {"name": family, "x": 0, "y": values[f], "colour": colour(f), "dash": dash(f), "width": 2.4}
        for f, family in enumerate(run.families)
        if np.isfinite(values[f]).any()
    ]


def responsibilities(run: Run) -> Spec:
    """Which clusters take the test tasks of each family over time, and what none explains."""
    views = []
    for f, family in enumerate(run.families):
        shares = np.nan_to_num(run.responsibilities[f])
        series = [
            {
                "name": f"cluster {c + 1}",
                "kind": "area",
                "x": 0,
                "y": shares[:, c],
                "colour": colour(c),
            }
            for c in range(shares.shape[-1])
            if shares[:, c].max(initial=0) >= FAINTEST
        ]
        if run.background[f].max(initial=0) > 0:
            nobody = np.nan_to_num(run.background[f])
            series.append(
                {"name": "no cluster", "kind": "area", "x": 0, "y": nobody, "colour": "none"}
            )
        active = [
            {**band, "active": family in phase.families}
            for band, phase in zip(bands(run.phases), run.phases, strict=True)
        ]
        views.append({"name": family, "series": series, "bands": active})
    return {
        **_over_time(run),
        "choice": "family",
        "xs": [run.iterations],
        "y": {"label": "share of the test tasks", "percent": True, "min": 0, "max": 1},
        "views": views,
        "legend": True,
    }


def lives(run: Run) -> Spec:
    """When each cluster was born and removed."""
    end = int(run.phases[-1].stop)
    births, removals = {n: at for at, n in run.births}, {n: at for at, n in run.removals}
    count = run.responsibilities.shape[-1]
    entries = []
    for c in range(max([count, *(n + 1 for n in births)])):
        born, gone = births.get(c, 0), removals.get(c)
        until = f"removed at {gone:,}" if gone is not None else "alive at the end"
        entries.append(
            {
                "name": f"cluster {c + 1}",
                "from": born,
                "to": end if gone is None else gone,
                "removed": gone is not None,
                "colour": colour(c),
                "title": f"cluster {c + 1}: from {born:,}, {until}",
            }
        )
    return {"lives": entries, "end": end, "bands": bands(run.phases), "label": "iteration"}


def cluster_map(run: Run) -> Spec | None:
    """Clusters alive at the end as discs; the nearer two are, the more alike are their errors.

    How alike: the mean ratio of the larger to the smaller error, over the families.
    None if there are fewer than two.
    """
    profile, ids = profiles(run)
    if len(ids) < 2:
        return None
    ratio = ratios(profile)
    taken = run.responsibilities[:, -1, ids].sum(axis=0)
    places = _spread_out(np.log(ratio))
    largest = max(float(taken.max()), 1e-9)
    discs = [
        {
            "x": places[i, 0],
            "y": places[i, 1],
            "size": max(float(taken[i]) / largest, 0.05),
            "name": str(number + 1),
            "families": ", ".join(_main_families(run, number)),
            "colour": colour(number),
            "title": f"cluster {number + 1}: {', '.join(_main_families(run, number))}",
        }
        for i, number in enumerate(ids)
    ]
    nearest = max(float(np.log(ratio)[~np.eye(len(ids), dtype=bool)].max()), 1e-9)
    links = [
        {
            "from": i,
            "to": j,
            "strength": 1 - float(np.log(ratio[i, j])) / nearest,
            "label": f"clusters {ids[i] + 1} and {ids[j] + 1}: errors differ by a factor of "
            f"{ratio[i, j]:.2f}",
        }
        for i in range(len(ids))
        for j in range(i)
    ]
    return {"discs": discs, "links": links}


def profiles(run: Run) -> tuple[Float[np.ndarray, "families clusters"], list[int]]:
    """What each cluster alone would err at the end, and the numbers of those that are alive."""
    last = run.component_error[:, -1]
    alive = np.isfinite(run.responsibilities[:, -1]).all(axis=0)
    return last[:, alive], np.flatnonzero(alive).tolist()


def ratios(profile: Float[np.ndarray, "families clusters"]) -> Float[np.ndarray, "clusters more"]:
    """By which factor the errors of two clusters differ, as a geometric mean over families."""
    largest = np.nanmax(profile, initial=1.0, where=np.isfinite(profile))
    known = np.where(np.isfinite(profile), profile, 10 * largest)
    logs = np.log(np.maximum(known, 1e-6))
    return np.exp(np.abs(logs[:, :, None] - logs[:, None, :]).mean(axis=0))


def _main_families(run: Run, cluster: int) -> list[str]:
    """Those of whose test tasks it takes more than any other cluster does, or a part of one."""
    shares = np.nan_to_num(run.responsibilities[:, -1])
    most = shares.argmax(axis=-1)
    found = [family for family, one in zip(run.families, most, strict=True) if one == cluster]
    return found or [f"part of {run.families[int(shares[:, cluster].argmax())]}"]


def _spread_out(distance: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n 2"]:
    """Places in the plane whose distances are about these, by classical scaling, within -1 to 1.

    W. S. Torgerson: Multidimensional scaling. Psychometrika 17, 1952.
    """
    count = len(distance)
    centre = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-0.5 * centre @ np.square(distance) @ centre)
    places = vectors[:, -2:][:, ::-1] * np.sqrt(np.maximum(values[-2:][::-1], 0))
    largest = np.abs(places).max(axis=0)
    return places / np.maximum(largest, 1e-9) * np.where(largest > 1e-6 * largest.max(), 1, 0)


def method_colours(methods: Sequence[str]) -> Mapping[str, tuple[str, str | None]]:
    """A colour and dashes per method, in the order of tables; ours has its own."""
    order = [name for name in methods if name == "nonparametric"]
    order += [name for name in methods if name not in order]
    start = 4 if order[:1] == ["nonparametric"] else 0
    return {name: (colour(start + place), dash(place)) for place, name in enumerate(order)}


def label_of(method: str) -> str:
    """What a legend calls a method."""
    return METHODS[method].label if method in METHODS else method
