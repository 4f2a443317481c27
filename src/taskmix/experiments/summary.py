"""What came out of a run, and of several: the contents of summary.json and comparison.json."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from taskmix.evaluation import (
    ALARM_GRACE,
    OVER_SEEDS,
    OVER_TASKS,
    Course,
    Measure,
    calibration,
    computed,
    detection,
    forgetting,
    last_active,
    over_seeds,
    over_tasks,
    own_cluster_error,
)
from taskmix.evaluation.measures import ARI, FORGETTING, NMI, PURITY
from taskmix.experiments.notes import notes_of
from taskmix.likelihood import Reported
from taskmix.streams import Phase
from taskmix.training import Record

Summary = dict[str, Any]


def summarise(
    record: Record,
    phases: Sequence[Phase],
    measure: Reported = "error",
    further: Sequence[Measure] = (),
    grows: bool | None = None,
) -> Summary:
    """What one seed came to, in the measure that is reported, and in ``further`` ones.

    ``grows`` is whether the learner opens clusters, and so raises alarms; None if it is not known.

    Forgetting is positive where a family got worse, whatever the measure.
    ``mean_forgetting`` is over the families that are not active at the end: the others
    have had no time to be forgotten. It is 0 if there are none.
    """
    families = record.families
    if record.evaluation is None:
        raise ValueError("The record holds no evaluation; add a chunk to it first.")
    last = record.metrics[-1]
    course = course_of(record, phases)
    iterations = course.iterations
    forgotten = {
        family: forgetting(iterations, _errors(record, family), phases, family)
        for family in families
    }
    summary = _as_json(
        {
            "measure": measure,
            "grows": grows,
            "iterations": last["iteration"],
            "clusters": record.clusters,
            "spawns": record.spawns,
            "removals": record.removals,
            "alarms": record.alarms,
            "capacity": record.evaluation.responsibilities.shape[-1],
            "growths": record.growths,
            "skipped": record.skipped,
            "final": {
                family: {
                    measure: reported(last["families"][family]["error"], measure),
                    "ci95": last["families"][family]["ci95"],
                }
                for family in families
            },
            "coverage": {family: last["families"][family]["coverage"] for family in families},
            "calibration": calibration(record.evaluation, families),
            "forgetting": forgotten,
            "mean_forgetting": FORGETTING.compute(course),
            "own_cluster": {
                family: _own_cluster(record, phases, family, measure) for family in families
            },
            "prequential": {
                family: reported(error, measure)
                for family, error in record.history.prequential(families).items()
            },
            "assignment": {one.name: one.compute(course) for one in (NMI, ARI, PURITY)},
            "measures": {one.name: computed(one, course) for one in further},
            "detection": dataclasses.asdict(detection(phases, record.spawns)),
            "alarm_detection": dataclasses.asdict(detection(phases, record.alarms, ALARM_GRACE)),
            "return_delays": record.history.return_delays(),
            "seconds": last["seconds"],
            "iterations_per_second": last["iteration"] / last["seconds"],
        }
    )
    return {**summary, "notes": notes_of(summary, len(phases))}


def reported(error: float | None, measure: Reported) -> float | None:
    """An error in the measure that tables show."""
    return error if error is None or measure == "error" else 1 - error


def course_of(record: Record, phases: Sequence[Phase]) -> Course:
    """A record as measures see it."""
    assert record.evaluation is not None, "checked by the caller"
    return Course(
        families=record.families,
        phases=phases,
        iterations=_iterations(record),
        error=np.stack([_errors(record, family) for family in record.families], axis=-1),
        evaluation=record.evaluation,
        prequential=record.history.prequential(record.families),
        clusters=record.clusters,
        spawns=record.spawns,
        alarms=record.alarms,
    )


def combined(
    experiment: str,
    told: Mapping[str, str],
    summaries: Iterable[Summary],
    further: Sequence[Measure] = (),
) -> dict[str, Any]:
    """Every summary, and per method a mean over its seeds with an interval.

    ``told`` says, by method, what it was told beyond the examples. What tables need to know of
    ``further`` measures stands beside them, so that whoever draws them need not have these.
    """
    summaries = list(summaries)
    runs = {
        method: [summary for summary in summaries if summary["method"] == method]
        for method in dict.fromkeys(summary["method"] for summary in summaries)
    }
    reference = next(iter(runs), None)
    methods = {}
    for method, own in runs.items():
        methods[method] = {"told": told[method], **_across_seeds(own)}
        if "test" in methods[method] and method != reference:
            methods[method]["test"]["against"] = _against(own, runs[reference])
    described = {one.name: {"title": one.heading, "better": one.better} for one in further}
    return {
        "experiment": experiment,
        "measures": described,
        "summaries": summaries,
        "methods": methods,
    }


def can_be_compared(summary: Summary) -> bool:
    """Whether a summary that was read from a file has all that a comparison needs of it."""
    try:
        found = combined("", {summary["method"]: ""}, [summary])
        test = summary.get("test", {"iteration": 0, "parameters": 0})
        json.dumps(found, allow_nan=False)
        return all(type(test[name]) is int for name in ("iteration", "parameters"))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
        return False


def _against(runs: Sequence[Summary], reference: Sequence[Summary]) -> dict[str, Any] | None:
    """How much more accurate a method is than another on the very same tasks.

    The interval is over these tasks. None unless both have the same seeds, and so the same tasks.
    """
    if [run["seed"] for run in runs] != [run["seed"] for run in reference]:
        return None
    own, other = (
        np.concatenate([run["test"]["by_episode"] for run in group]) for group in (runs, reference)
    )
    return {
        "method": reference[0]["method"],
        "mean": float(np.mean(own - other)),
        "ci95": over_tasks(own - other),
    }


def _across_seeds(runs: Sequence[Summary]) -> dict[str, Any]:
    families = list(runs[0]["final"])
    measure = runs[0]["measure"]
    values = [[run["final"][family][measure] for family in families] for run in runs]
    return {
        "measure": measure,
        "seeds": [run["seed"] for run in runs],
        "interval": OVER_SEEDS,
        "final": {
            family: _interval(run["final"][family][measure] for run in runs) for family in families
        },
        f"mean_{measure}": _interval(None if None in each else _mean(each) for each in values),
        "coverage": {
            family: _interval(run["coverage"][family] for run in runs) for family in families
        },
        "forgetting": {
            family: _interval(run["forgetting"][family] for run in runs) for family in families
        },
        "mean_forgetting": _interval(run["mean_forgetting"] for run in runs),
        "prequential": {
            family: _interval(run["prequential"].get(family) for run in runs) for family in families
        },
        "nmi": _interval(run["assignment"]["nmi"] for run in runs),
        "measures": {
            name: _interval(run.get("measures", {}).get(name) for run in runs)
            for name in runs[0].get("measures", {})
        },
        "clusters": _interval(run["clusters"] for run in runs),
        "removals": _interval(len(run["removals"]) for run in runs),
        "alarms": _interval(len(run["alarms"]) for run in runs),
        **{kind: _detections(runs, kind) for kind in ("detection", "alarm_detection")},
        "seconds": _interval(run["seconds"] for run in runs),
        **_test(runs),
    }


def _detections(runs: Sequence[Summary], kind: str) -> dict[str, list[Any]]:
    """What each seed noticed, and what it only seemed to notice."""
    return {name: [run[kind][name] for run in runs] for name in ("delays", "missed", "false")}


def _test(runs: Sequence[Summary]) -> dict[str, Any]:
    """The final test on new classes, where an experiment has one.

    One run has an interval over its tasks, several have one over seeds.
    """
    if "test" not in runs[0]:
        return {}
    accuracy: dict[str, Any] = _interval(run["test"]["accuracy"] for run in runs)
    interval = OVER_SEEDS
    if len(runs) == 1:
        accuracy["ci95"], interval = runs[0]["test"]["ci95"], OVER_TASKS
    return {
        "test": {
            **{name: value for name, value in runs[0]["test"].items() if name != "by_episode"},
            "accuracy": accuracy["mean"],
            "ci95": accuracy["ci95"],
            "interval": interval,
        }
    }


def _interval(values: Iterable[float | int | None]) -> dict[str, float | None]:
    """A mean with its interval; unknown as a whole if it is unknown for one seed."""
    values = list(values)
    known = [float(value) for value in values if value is not None]
    if len(known) < len(values):
        return {"mean": None, "ci95": None}
    return {"mean": _mean(known), "ci95": over_seeds(known)}


def _errors(record: Record, family: str) -> Float[np.ndarray, " evaluations"]:
    """Test error at the evaluations that are kept; NaN where it was not finite."""
    return np.array([line["families"][family]["error"] for line in record.metrics], dtype=float)


def _iterations(record: Record) -> Int[np.ndarray, " evaluations"]:
    return np.array([line["iteration"] for line in record.metrics])


def _own_cluster(
    record: Record, phases: Sequence[Phase], family: str, measure: Reported
) -> dict[str, float | int | None] | None:
    """None if no cluster had a task of the family in the stretch that decides who owns it.

    Measured on the tasks that the owner answers for: where several clusters share a family, each
    knows its part alone. An owner that was removed, or has lost its tasks, has no error any more.
    """
    phase = last_active(phases, family)
    cluster = record.history.owner(phase, list(record.families).index(family))
    if cluster is None:
        return None
    ids = [line["cluster_ids"] for line in record.metrics]
    clusters = 1 + max(cluster, *(one for some in ids for one in some))
    error = np.full((len(ids), clusters), np.nan)
    for row, own, line in zip(error, ids, record.metrics, strict=True):
        row[own] = line["families"][family]["held_error"]
    own = dataclasses.asdict(own_cluster_error(_iterations(record), error, cluster, phase))
    return {
        name: reported(value, measure) if name in ("at_phase_end", "final") else value
        for name, value in own.items()
    }


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def _as_json(value: Any) -> Any:
    """The same with None for what is not a number, which JSON cannot express."""
    if isinstance(value, dict):
        return {key: _as_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(entry) for entry in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
