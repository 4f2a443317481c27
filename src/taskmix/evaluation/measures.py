"""Measures of a whole run as objects: a name, what computes it, and which way is better."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from taskmix.evaluation.clustering import (
    adjusted_rand_index,
    normalised_mutual_information,
    purity,
)
from taskmix.evaluation.continual import forgetting, last_active
from taskmix.evaluation.protocol import Evaluation
from taskmix.registry import Registry
from taskmix.streams.stream import Phase


@dataclasses.dataclass(frozen=True)
class Course:
    """What a run came to, as measures see it.

    Evaluations are in step: ``iterations[e]`` had been learned from at evaluation ``e``.
    """

    families: Sequence[str]
    phases: Sequence[Phase]
    iterations: Int[np.ndarray, " evaluations"]
    error: Float[np.ndarray, "evaluations families"]
    """Mean test error of each family; NaN where it was not finite."""
    evaluation: Evaluation
    """The last one, task by task."""
    prequential: Mapping[str, float]
    """Mean error of each family's tasks of the stream, predicted before they were learned from."""
    clusters: int
    """How many there are at the end."""
    spawns: Sequence[int]
    """Iterations that opened a cluster."""
    alarms: Sequence[int]
    """Iterations that raised the alarm."""


@dataclasses.dataclass(frozen=True)
class Measure:
    """A number that says how good a run was.

    Parameters
    ----------
    name
        What ``summary.json`` and ``comparison.json`` call it.
    compute
        From a ``Course`` to a number; None where it is not known.
    better
        Whether the larger or the smaller number is the better one.
    title
        Of its column in tables; the name if there is none.

    Examples
    --------
    >>> worst = Measure("worst", lambda course: float(course.error[-1].max()), "smaller")
    >>> worst.heading
    'worst'
    """

    name: str
    compute: Callable[[Course], float | None]
    better: Literal["larger", "smaller"] = "smaller"
    title: str = ""

    @property
    def heading(self) -> str:
        return self.title or self.name


def computed(measure: Measure, course: Course) -> float | None:
    """The number; None, and a warning, where the measure of somebody else fails.

    A run may have taken days: it is not lost for one column of a table.
    """
    try:
        value = measure.compute(course)
        return None if value is None or not math.isfinite(value) else float(value)
    except Exception as error:
        warnings.warn(f"The measure {measure.name!r} failed: {error}", stacklevel=2)
        return None


def _assigned(agreement: Callable[[Any, Any], float]) -> Callable[[Course], float]:
    """How well the cluster that takes most of a test task tells its family.

    The background counts as one more cluster: a task belongs to it if it takes more of it than
    any cluster does.
    """

    def compute(course: Course) -> float:
        last = course.evaluation
        shares = (last.responsibilities, last.background[..., None])
        responsibilities = np.concatenate([np.asarray(part) for part in shares], axis=-1)
        families, tasks, _ = responsibilities.shape
        true = np.repeat(np.arange(families), tasks)
        return agreement(true, np.argmax(responsibilities, axis=-1).ravel())

    return compute


def _mean_forgetting(course: Course) -> float:
    """Over the families that are not active at the end: the others had no time to be forgotten."""
    inactive = [
        place
        for place, family in enumerate(course.families)
        if last_active(course.phases, family) != course.phases[-1]
    ]
    if not inactive:
        return 0.0
    each = [
        forgetting(course.iterations, course.error[:, place], course.phases, course.families[place])
        for place in inactive
    ]
    return float(np.mean(each))


NMI = Measure("nmi", _assigned(normalised_mutual_information), "larger", "NMI")
ARI = Measure("ari", _assigned(adjusted_rand_index), "larger", "ARI")
PURITY = Measure("purity", _assigned(purity), "larger")
FORGETTING = Measure("mean_forgetting", _mean_forgetting, "smaller", "forgetting")
OWN = (NMI, ARI, PURITY, FORGETTING)


def as_measure(name: str, thing: Any) -> Measure:
    if not isinstance(thing, Measure):
        raise ValueError(f"{name} is a {type(thing).__name__}; register a taskmix.Measure.")
    return dataclasses.replace(thing, name=name)


MEASURES: Registry[Measure] = Registry("measure", "taskmix.measures", as_measure)
"""Every measure by its name."""
for _measure in OWN:
    MEASURES.register(_measure.name, _measure)


def further_measures() -> tuple[Measure, ...]:
    """Those that are not our own, which every summary has as well."""
    own = {measure.name for measure in OWN}
    return tuple(measure for name, measure in MEASURES.items() if name not in own)
