"""Whether a learner notices what is new: spawns after shifts, novel tasks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from taskmix.streams.stream import Phase


@dataclasses.dataclass(frozen=True)
class Detection:
    """How the spawns of a run answer the shifts of its stream."""

    delays: tuple[int, ...]
    """Iterations from the first batch of each noticed shift to the spawn."""
    missed: int
    """Shifts that ended without a spawn."""
    false: int
    """Spawns that answer no shift."""


def shifts(phases: Sequence[Phase]) -> tuple[Phase, ...]:
    """The stretches that a spawn should open, each with the families that are new in it.

    A shift starts with a phase that brings a family not active before (the first phase is
    none). It lasts until the next shift, or until a phase without the new families: so a
    gradual change, whose transition is a phase of its own, is one shift.
    """
    seen = set(phases[0].families)
    found: list[Phase] = []
    for phase in phases[1:]:
        new = tuple(family for family in phase.families if family not in seen)
        if new:
            found.append(Phase(phase.start, phase.stop, new))
        elif found and _goes_on(found[-1], phase):
            found[-1] = dataclasses.replace(found[-1], stop=phase.stop)
        seen.update(phase.families)
    return tuple(found)


def _goes_on(shift: Phase, phase: Phase) -> bool:
    return shift.stop == phase.start and not set(shift.families).isdisjoint(phase.families)


def detection(phases: Sequence[Phase], spawns: Sequence[int]) -> Detection:
    """Match spawns with shifts.

    The first spawn inside a shift detects it; every further one there, and every spawn
    outside of shifts, is false. ``spawns`` are the iterations whose batch opened a cluster,
    so a spawn on the first batch of a shift has delay 0.
    """
    first_spawns = [
        (shift, min((spawn for spawn in spawns if shift.start <= spawn < shift.stop), default=None))
        for shift in shifts(phases)
    ]
    delays = tuple(spawn - shift.start for shift, spawn in first_spawns if spawn is not None)
    return Detection(delays, len(first_spawns) - len(delays), len(spawns) - len(delays))


def area_under_roc(
    known: Sequence[float] | np.ndarray, novel: Sequence[float] | np.ndarray
) -> float:
    """Probability that a novel task scores higher than a known one, ties counting half.

    J. A. Hanley, B. J. McNeil: The meaning and use of the area under a ROC curve.
    Radiology 143, 1982.
    """
    known, novel = np.ravel(known), np.ravel(novel)
    if known.size == 0 or novel.size == 0:
        raise ValueError(
            f"There are {known.size} known and {novel.size} novel scores; both must occur."
        )
    below, not_above = (
        np.searchsorted(np.sort(known), novel, side=side) for side in ("left", "right")
    )
    return float((below + not_above).mean() / (2 * known.size))
