"""What has been learned from a table: units, categories and the learner's state."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from taskmix.learner import Info
from taskmix.tables.correction import Correction
from taskmix.tables.distances import Distances
from taskmix.tables.encoding import Encoding
from taskmix.tables.engine import LEVEL, Engine, Forecast
from taskmix.tables.grouping import RowTask
from taskmix.tables.packing import Sides
from taskmix.tables.scaling import Scale

FARTHEST_TARGET = 50.0
"""Deviations beyond which a target is not learned from as it is: float32 has its limits."""


@dataclasses.dataclass
class TableModel:
    """Tasks of a table in, predictions in the table's own units out."""

    encoding: Encoding
    scale: Scale
    """Of the target, over the rows that were learned from."""
    engine: Engine
    correction: Correction = dataclasses.field(default_factory=Correction)
    """Of predicted numbers, by the errors of the past."""
    distances: Distances = dataclasses.field(default_factory=Distances)
    """Of past targets, which say how wide intervals have to be."""

    @property
    def classes(self) -> bool:
        return self.engine.classes

    def sides(self, wave: Sequence[RowTask]) -> list[Sides]:
        """Tasks as the learner sees them, in the units of what is past.

        Before anything was learned, the units are those of the support sets at hand.
        """
        encoding, scale = self._units(wave)
        rows = np.concatenate([side.x for task in wave for side in (task.support, task.query)])
        encoded = encoding(rows)
        found, at = [], 0
        for task in wave:
            middle = at + len(task.support.x)
            end = middle + len(task.query.x)
            support_y, query_y = task.support.y, task.query.y
            if not self.classes:
                support_y, query_y = (_in_units(scale, y) for y in (support_y, query_y))
            found.append(
                Sides(task.name, encoded[at:middle], support_y, encoded[middle:end], query_y)
            )
            at = end
        return found

    def forecast(self, sides: Sequence[Sides]) -> list[Forecast]:
        """Of the query rows of each task, in the learner's units; nothing is learned."""
        found = self.engine.predict(sides)
        if not self.classes:
            return found
        return [dataclasses.replace(one, low=None, high=None) for one in found]

    def said(
        self,
        wave: Sequence[RowTask],
        sides: Sequence[Sides],
        found: Sequence[Forecast],
    ) -> list[Forecast]:
        """The same as the table has it: corrected, and in its units."""
        if self.classes:
            return list(found)
        shifts = self.correction.shifts(sides, found)
        factor = self.distances.factor(LEVEL)
        moved = [_moved(one, by, factor) for one, by in zip(found, shifts, strict=True)]
        bounds = {
            side: self.in_table_units(wave, [getattr(one, side) for one in moved])
            for side in ("mean", "low", "high")
            if getattr(found[0], side) is not None
        }
        return [
            dataclasses.replace(one, **dict(zip(bounds, own, strict=True)))
            for one, *own in zip(found, *bounds.values(), strict=True)
        ]

    def in_table_units(
        self, wave: Sequence[RowTask], means: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Means in the learner's units as the table has them; scores of classes as they are."""
        if self.classes:
            return list(means)
        _, scale = self._units(wave)
        return [scale.mean[0] + scale.deviation[0] * mean for mean in means]

    def learn(
        self, wave: Sequence[RowTask], sides: Sequence[Sides], found: Sequence[Forecast]
    ) -> list[Info]:
        """One step per batch; afterwards the units know these tasks, too.

        ``found`` is what was forecast of them.
        """
        if not self.classes:
            self.distances.learn(sides, found, self.correction.shifts(sides, found))
            self.correction.learn(sides, found)
        infos = self.engine.learn(sides)
        both = [side for task in wave for side in (task.support, task.query)]
        self.encoding.learn(np.concatenate([side.x for side in both]))
        self.scale = self.scale.carefully(np.concatenate([side.y for side in both])[:, None])
        return infos

    def _units(self, wave: Sequence[RowTask]) -> tuple[Encoding, Scale]:
        if self.scale.count.any():
            return self.encoding, self.scale
        x = np.concatenate([task.support.x for task in wave])
        y = np.concatenate([task.support.y for task in wave])[:, None]
        first = Encoding(self.encoding.features, self.encoding.scale.observed(x))
        return first, self.scale.observed(y)


def _moved(found: Forecast, shift: np.ndarray, factor: float) -> Forecast:
    """All by ``shift``, and the bounds away from their middle by ``factor``."""
    if found.low is None or found.high is None:
        return dataclasses.replace(found, mean=found.mean + shift)
    middle = (found.low + found.high) / 2 + shift
    half = factor * (found.high - found.low) / 2
    return dataclasses.replace(
        found, mean=found.mean + shift, low=middle - half, high=middle + half
    )


def _in_units(scale: Scale, y: np.ndarray) -> np.ndarray:
    scaled = (y - scale.mean[0]) / scale.deviation[0]
    return np.clip(scaled, -FARTHEST_TARGET, FARTHEST_TARGET)
