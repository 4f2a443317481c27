"""Settings that follow from the size of the data, where the user gives none.

docs/tables.md says how they were chosen, and what was not measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from taskmix.adaptation import BayesianHead
from taskmix.likelihood import Categorical, Gaussian
from taskmix.mixture import OnlineMixture
from taskmix.models import MLP
from taskmix.names import counted
from taskmix.tables.survey import Survey

MOST_AT_ONCE = 256
"""Tasks that are predicted before any of them is learned from, even if more overlap in time."""
MOST_QUERY, MOST_SUPPORT = 48, 64
"""Rows of a task that are learned from at a time; predictions have no such limit on queries."""
MOST_BESIDE = 96
"""Inputs up to which they stand beside the features in the last layer; more would make its
covariance too large."""
USUAL_SUPPORT = 5
FEATURES = 32


def support_for(found: Survey) -> int:
    """A quarter of a task's rows, from 1 to 16."""
    if found.rows is None or found.tasks is None:
        return USUAL_SUPPORT
    return min(16, max(1, round(found.rows / found.tasks / 4)))


SHORT_STREAM = {"held_out": 0.2, "reference": 60, "patience": 30}
"""Of the mixture, for fewer than 5000 tasks. With its own settings a tenth of the tasks is held out
to compare new ones with, so that a few hundred tasks are too few to notice a change; and a cluster
waits 100 batches after an alarm before it learns on."""


def pace_for(tasks: int | None) -> dict[str, int]:
    """Tasks per batch and updates per batch: few tasks are learned from again and again."""
    if tasks is None:
        return {"batch": 8, "updates": 4}
    if tasks < 1000:
        return {"batch": 5, "updates": 10}
    if tasks < 5000:
        return {"batch": 8, "updates": 10}
    if tasks < 50_000:
        return {"batch": 16, "updates": 2}
    return {"batch": 64, "updates": 1}


def settings_for(tasks: int | None, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Settings of the mixture: for short streams their own, and whatever the user gave."""
    short = SHORT_STREAM if tasks is not None and tasks < 5000 else {}
    return {**short, **(given or {})}


def learner_for(
    width: int,
    classes: int,
    updates: int,
    hidden: tuple[int, ...],
    settings: Mapping[str, Any],
) -> OnlineMixture:
    """The online mixture with Bayesian heads over ``width`` inputs."""
    features = MLP(width, hidden, FEATURES, activation="tanh", init_scale=0.0)
    head = BayesianHead(
        features,
        likelihood=Categorical() if classes else Gaussian(),
        outputs=max(classes, 1),
        inputs=width if width <= MOST_BESIDE else 0,
        width=FEATURES,
    )
    given = {"rehearsed": 16, "updates": updates, "youth": 3, **settings}
    try:
        return OnlineMixture(task_model=head, **given)
    except TypeError as error:
        raise ValueError(f"settings: {str(error).split(') ')[-1]}; see OnlineMixture.") from None


def rows_for(longest: int, most: int) -> int:
    """Room for the longest of the first tasks, in steps of 4."""
    return min(most, 4 * math.ceil(max(longest, 1) / 4))


def in_words(chosen: Mapping[str, Any]) -> str:
    """The settings that were chosen."""
    return (
        f"{chosen['kind']}, support {chosen['support']} ({chosen['split']}), "
        f"{counted(chosen['batch'], 'task')} and {counted(chosen['updates'], 'update')} per batch"
    )
