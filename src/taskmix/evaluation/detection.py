"""Whether a learner notices what is new: spawns and alarms after shifts, novel tasks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from taskmix.streams.stream import Phase


@dataclasses.dataclass(frozen=True)
class Detection:
    """How the spawns, or the alarms, of a run answer the shifts of its stream."""

    delays: tuple[int, ...]
    """Iterations from the first batch of each noticed shift to the signal."""
    missed: int
    """Shifts that ended without a signal."""
    false: int
    """Signals that answer no shift."""


def shifts(phases: Sequence[Phase]) -> tuple[Phase, ...]:
    """The stretches that a signal should open, each with the families that are new in it.

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


ALARM_GRACE = 100
"""Iterations of a shift in which an alarm is true, however many there were before it."""


def detection(phases: Sequence[Phase], signals: Sequence[int], grace: int = 0) -> Detection:
    """Match signals, which are spawns or alarms, with shifts.

    The first signal inside a shift detects it. Every further one there is false, but for
    those within the first ``grace`` iterations, and so is every one outside of shifts.
    ``signals`` are the iterations whose batch gave them, so a signal with the first batch of
    a shift has delay 0.
    """
    found = shifts(phases)
    inside = [sorted(one for one in signals if s.start <= one < s.stop) for s in found]
    delays = tuple(own[0] - shift.start for shift, own in zip(found, inside, strict=True) if own)
    true = sum(
        place == 0 or one < shift.start + grace
        for shift, own in zip(found, inside, strict=True)
        for place, one in enumerate(own)
    )
    return Detection(delays, len(found) - len(delays), len(signals) - true)


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
