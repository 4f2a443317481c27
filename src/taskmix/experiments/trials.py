"""What a search has tried so far: a file that is whole or not there, and checked when read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from taskmix.experiments.spaces import Space
from taskmix.files import inside, write_json
from taskmix.training.run_folder import read_json

STUDY = "study.json"
WORST = 1e30
"""What a search is told of a trial whose error is not finite: it needs a number, however bad."""

Trial = Mapping[str, Any]
"""``settings``, the ``error`` that they came to (None if it was not finite), and ``seconds``."""


def read_trials(folder: Path, protocol: Mapping[str, Any], space: Space) -> list[Trial]:
    """Trials of a search that was begun with this protocol; none if there was no search.

    A trial that was interrupted is not among them. What is drawn next follows from those before,
    so that the same settings come again, and its runs go on.
    """
    path = inside(folder, STUDY)
    if not path.exists():
        return []
    found = read_json(path)
    if found.get("protocol") != json.loads(json.dumps(protocol)):
        raise ValueError(
            f"{folder} holds a search with another experiment, other seeds or another space; "
            f"choose another folder, or give what it was begun with."
        )
    trials = found.get("trials")
    if not isinstance(trials, list) or not all(_is_trial(one, space) for one in trials):
        raise ValueError(f"{path} holds what no search writes; restore it, or begin anew.")
    return trials


def write_trials(folder: Path, protocol: Mapping[str, Any], trials: Sequence[Trial]) -> None:
    write_json(inside(folder, STUDY), {"protocol": protocol, "trials": list(trials)})


def value_of(trial: Trial) -> float:
    """What the search is told of a trial."""
    return WORST if trial["error"] is None else min(trial["error"], WORST)


def _is_trial(value: Any, space: Space) -> bool:
    if not isinstance(value, dict) or set(value) != {"settings", "error", "seconds"}:
        return False
    settings = value["settings"]
    return (
        isinstance(settings, dict)
        and set(settings) == set(space)
        and all(space[name].holds(one) for name, one in settings.items())
        and (value["error"] is None or _is_number(value["error"]))
        and _is_number(value["seconds"])
    )


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < math.inf and abs(value) <= 1e300
