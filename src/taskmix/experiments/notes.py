"""What has to be said of a run in words, since no number of a table says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def notes_of(summary: Mapping[str, Any], phases: int = 0) -> list[str]:
    """Sentences on what went wrong, or is missing, in a run that has ended.

    Parameters
    ----------
    summary
        As in ``summary.json``; what older versions did not write is not spoken of.
    phases
        How many phases the stream had; 0 if that is not known.

    Returns
    -------
    list of str
        Empty if there is nothing to say.

    Examples
    --------
    >>> notes_of({"measure": "error", "final": {"sinusoid": {"error": None}}})
    ['Diverged: the error on sinusoid is not a finite number at the end.']
    """
    notes = _diverged(summary) + _skipped(summary.get("skipped") or {})
    if summary.get("grows"):
        notes += _alarms(summary.get("alarm_detection") or {})
    elif summary.get("grows") is False and phases > 1:
        notes.append("No alarms: nothing is said when tasks come that fit nothing known.")
    if summary.get("growths"):
        notes.append(
            f"Full: the room for clusters ran out, and was doubled until there was room for "
            f"{summary['capacity']}; each doubling compiles the program again."
        )
    coverage = summary.get("coverage")
    if summary.get("measure") == "error" and coverage and None in coverage.values():
        notes.append(
            "No uncertainty: this learner gives no intervals, so nothing is known about its "
            "calibration."
        )
    return notes


def _diverged(summary: Mapping[str, Any]) -> list[str]:
    measure = summary.get("measure", "error")
    lost = [name for name, one in summary.get("final", {}).items() if one.get(measure) is None]
    if not lost:
        return []
    return [f"Diverged: the {measure} on {_listed(lost)} is not a finite number at the end."]


def _skipped(skipped: Mapping[str, Any]) -> list[str]:
    batches, tasks = skipped.get("batches", 0), skipped.get("tasks", 0)
    if not batches:
        return []
    return [
        f"Not finite: {tasks:,} tasks of {batches:,} batches were not learned from, as they would "
        f"have left numbers that are not finite."
    ]


def _alarms(detection: Mapping[str, Any]) -> list[str]:
    missed, delays = detection.get("missed", 0), detection.get("delays", ())
    notes = []
    if missed:
        notes.append(
            f"Missed alarm: {missed} of {missed + len(delays)} changes to a new family raised none."
        )
    if detection.get("false"):
        count = detection["false"]
        which = "one alarm answers" if count == 1 else f"{count:,} alarms answer"
        notes.append(f"False alarm: {which} no change of the stream.")
    return notes


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def notes_by_method(comparison: Mapping[str, Any]) -> dict[str, list[str]]:
    """The notes of every method of a comparison, each once, with the seeds that they are of."""
    found: dict[str, dict[str, list[int]]] = {}
    runs: dict[str, int] = {}
    for summary in comparison["summaries"]:
        method = summary["method"]
        runs[method] = runs.get(method, 0) + 1
        for note in summary.get("notes", notes_of(summary)):
            found.setdefault(method, {}).setdefault(note, []).append(summary["seed"])
    return {
        method: [_with_seeds(note, seeds, runs[method]) for note, seeds in notes.items()]
        for method, notes in found.items()
    }


def _with_seeds(note: str, seeds: Sequence[int], runs: int) -> str:
    if len(seeds) == runs:
        return note
    which = "seed" if len(seeds) == 1 else "seeds"
    return f"{note.removesuffix('.')} ({which} {', '.join(map(str, seeds))})."
