"""Numbers for the learner: what each column becomes, by rules that look at the first tasks.

- A number is scaled. Where it is missing it is the mean; a column in which values are missing
  from the start has a flag for that, all others share one.
- Whole numbers that fill a range from 0 or 1 with 6 to 64 places (an hour, a weekday) are also
  taken as places on a circle.
- Whole numbers with 3 to 12 different values are also taken as categories.
- A text is a category. There is room for as many more as were seen at first; whatever comes
  when that is used up shares the last place.
- A moment is a number, and the time of day, day of week and day of year on circles.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from taskmix.tables.scaling import Scale

LEAST_ROUND, MOST_ROUND = 6, 64
MOST_CATEGORIES = 12
MOST_PLACES = 64
"""Of one text column."""
DAY = 86400.0
WEEK = 7 * DAY
YEAR = 365.25 * DAY


Becomes = Literal["number", "circle", "category", "flag"]


@dataclasses.dataclass
class Feature:
    """One column, and what it becomes."""

    column: int
    kind: Becomes
    period: float = 0.0
    """Of a circle."""
    waves: int = 1
    """How many times around at most."""
    places: list[float] = dataclasses.field(default_factory=list)
    """Of categories: the value at each place, in order of appearance."""
    room: int = 0
    """Places there are; the last one is for all others."""

    @property
    def width(self) -> int:
        return {"circle": 2 * self.waves, "category": self.room}.get(self.kind, 1)


@dataclasses.dataclass
class Encoding:
    """Features of all columns; ``scale`` is of tasks that are past."""

    features: list[Feature]
    scale: Scale

    @property
    def width(self) -> int:
        """Numbers per row: of all features and of the shared flag for missing values."""
        return 1 + sum(feature.width for feature in self.features)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """(rows, columns) as they are to (rows, width)."""
        scaled = np.nan_to_num(self.scale.scaled(x), nan=0.0)
        parts = [self._feature(feature, x[:, feature.column], scaled) for feature in self.features]
        flagged = {feature.column for feature in self.features if feature.kind == "flag"}
        others = [column for column in range(x.shape[1]) if column not in flagged]
        missing = np.isnan(x[:, others]).any(axis=1).astype(float)
        return np.concatenate([*parts, missing[:, None]], axis=1).astype(np.float32)

    def meet(self, x: np.ndarray) -> None:
        """Give categories that are new a place, while there is one."""
        for feature in self.features:
            if feature.kind == "category" and len(feature.places) < feature.room - 1:
                values = x[:, feature.column]
                _, first = np.unique(values[~np.isnan(values)], return_index=True)
                for value in values[~np.isnan(values)][np.sort(first)].tolist():
                    if value not in feature.places and len(feature.places) < feature.room - 1:
                        feature.places.append(value)

    def learn(self, x: np.ndarray) -> None:
        self.scale = self.scale.carefully(x)

    def _feature(self, feature: Feature, values: np.ndarray, scaled: np.ndarray) -> np.ndarray:
        if feature.kind == "number":
            return scaled[:, [feature.column]]
        if feature.kind == "flag":
            return np.isnan(values)[:, None].astype(float)
        if feature.kind == "circle":
            turns = 2 * np.pi * np.nan_to_num(values / feature.period, nan=0.0)
            turns = np.outer(turns, 1 + np.arange(feature.waves))
            around = np.concatenate([np.sin(turns), np.cos(turns)], axis=1)
            return np.where(np.isnan(values)[:, None], 0, around)
        at = np.array(feature.places)
        found = values[:, None] == at[None, :]
        rest = (~found.any(axis=1) & ~np.isnan(values))[:, None]
        empty = np.zeros((len(values), feature.room - len(at) - 1))
        return np.concatenate([found, empty, rest], axis=1).astype(float)


def encoding_for(x: np.ndarray, kinds: Sequence[str]) -> Encoding:
    """By the rules above, from the rows of the first tasks."""
    features: list[Feature] = []
    for column, kind in enumerate(kinds):
        values = x[:, column]
        given = values[~np.isnan(values)]
        if kind == "text":
            room = min(MOST_PLACES, 2 * max(len(np.unique(given)), 1) + 1)
            features.append(Feature(column, "category", room=room))
        elif kind == "moment":
            features += _of_moments(column, given)
        else:
            features += _of_numbers(column, given)
        if len(given) < len(values):
            features.append(Feature(column, "flag"))
    return Encoding(features, Scale.begin(x.shape[1]))


def _of_numbers(column: int, given: np.ndarray) -> list[Feature]:
    features = [Feature(column, "number")]
    different = np.unique(given)
    if not len(different) or np.any(different % 1):
        return features
    places = different[-1] - different[0] + 1
    fills = different[0] in (0, 1) and len(different) > 0.9 * places
    if fills and LEAST_ROUND <= places <= MOST_ROUND:
        features.append(Feature(column, "circle", period=float(places), waves=4))
    if 3 <= len(different) <= MOST_CATEGORIES:
        features.append(Feature(column, "category", room=len(different) + 3))
    return features


def _of_moments(column: int, given: np.ndarray) -> list[Feature]:
    features = [Feature(column, "number"), Feature(column, "circle", period=YEAR)]
    if np.any(given % DAY):
        features.append(Feature(column, "circle", period=DAY, waves=4))
    features.append(Feature(column, "circle", period=WEEK, waves=2))
    return features


def encoding_to_json(encoding: Encoding) -> dict[str, Any]:
    return {
        "features": [dataclasses.asdict(feature) for feature in encoding.features],
        "scale": scale_to_json(encoding.scale),
    }


def scale_to_json(scale: Scale) -> dict[str, list[float]]:
    return {name: leaf.tolist() for name, leaf in vars(scale).items()}
