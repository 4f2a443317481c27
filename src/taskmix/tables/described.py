"""What a saved table learner says of itself, taken apart and checked before it is believed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

import numpy as np

from taskmix.tables.blocks import Vocabulary
from taskmix.tables.columns import PARTS, Column, Made
from taskmix.tables.defaults import MOST_QUERY, MOST_SUPPORT
from taskmix.tables.encoding import MOST_ROUND, Becomes, Encoding, Feature
from taskmix.tables.grouping import Splitter
from taskmix.tables.kinds import Holds, Kind
from taskmix.tables.packing import BatchShape
from taskmix.tables.prepared import Prepared
from taskmix.tables.scaling import Scale
from taskmix.tables.schema import Schema

Choice = TypeVar("Choice", bound=str)
MADE: tuple[Made, ...] = get_args(Made)
HOLDS: tuple[Holds, ...] = get_args(Holds)
BECOMES: tuple[Becomes, ...] = get_args(Becomes)
MOST_LAYERS, MOST_UNITS = 16, 1 << 14
MOST_TASKS, MOST_UPDATES = 1 << 14, 1000
MOST_INPUTS = 1 << 14
"""Numbers per row; a learner of more would not fit in memory anyway."""
LARGEST_WHOLE = 2**31 - 1
YEAR_IN_SECONDS = 366 * 86400


def whole(value: Any, name: str, least: int, most: int = LARGEST_WHOLE) -> int:
    """A whole number within its bounds, or a ``ValueError`` that names it."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is {_short(value)}, not a whole number from {least} to {most}")
    return value


def text(value: Any, name: str) -> str:
    """A text, or a ``ValueError`` that names it."""
    if not isinstance(value, str):
        raise ValueError(f"{name} is {_short(value)}, not a text")
    return value


def one_of(value: Any, name: str, among: Sequence[Choice]) -> Choice:
    """The one of a few texts that it is."""
    found = [choice for choice in among if choice == text(value, name)]
    if not found:
        raise ValueError(f"{name} is {_short(value)}, not one of {', '.join(among)}")
    return found[0]


def listed(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{name} is {_short(value)}, not a list")
    return value


def held(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {_short(value)}, not an object")
    return value


def _short(value: Any) -> str:
    return repr(value)[:40]


def chosen_from_json(value: Any) -> dict[str, Any]:
    """The settings that a fit chose; those of the mixture are checked by the mixture."""
    chosen = held(value, "chosen")
    hidden = listed(chosen["hidden"], "hidden")
    whole(len(hidden), "the number of hidden layers", 0, MOST_LAYERS)
    return {
        **chosen,
        "hidden": tuple(whole(units, "a hidden layer", 1, MOST_UNITS) for units in hidden),
        "support": whole(chosen["support"], "support", 1),
        "batch": whole(chosen["batch"], "batch", 1, MOST_TASKS),
        "updates": whole(chosen["updates"], "updates", 1, MOST_UPDATES),
        "split": one_of(chosen["split"], "split", ("first", "random", "column")),
        "kind": one_of(chosen["kind"], "kind", ("regression", "classification")),
        "settings": held(chosen["settings"], "settings"),
    }


def prepared_from_json(value: Any) -> Prepared:
    """How rows become tasks."""
    prepared = held(value, "prepared")
    schema = schema_from_json(held(prepared["schema"], "schema"))
    split = held(prepared["split"], "split")
    splitter = Splitter(
        whole(split["support"], "support", 1),
        one_of(split["how"], "how", ("first", "random", "column")),
        whole(split["seed"], "seed", 0),
    )
    if (splitter.how == "column") != (schema.known is not None):
        raise ValueError("the column that splits support and query is missing")
    texts = {
        whole(int(number), "a column", 0, len(schema.inputs) - 1): {
            text(one, "a text"): code for code, one in enumerate(listed(known, "texts"))
        }
        for number, known in held(prepared["vocabulary"], "vocabulary").items()
    }
    return Prepared(schema, _labels(prepared["labels"]), splitter, Vocabulary(texts))


def _labels(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    labels = tuple(text(one, "a label") for one in listed(value, "labels"))
    if len(labels) < 2 or len(set(labels)) < len(labels):
        raise ValueError("labels are fewer than two, or not different")
    return labels


def schema_from_json(value: Mapping[str, Any]) -> Schema:
    """Which columns play which part."""
    kinds = {
        name: Kind(
            one_of(held(kind, "a kind")["name"], "a kind", HOLDS),
            text(kind["format"], "a format"),
        )
        for name, kind in held(value["kinds"], "kinds").items()
    }
    single = {
        name: None if value[name] is None else _column(value[name], kinds)
        for name in ("target", "time", "known")
    }
    if single["target"] is None:
        raise ValueError("there is no target")
    task, inputs = (
        tuple(_column(one, kinds) for one in listed(value[name], name))
        for name in ("task", "inputs")
    )
    if not task or not inputs:
        raise ValueError("there is no task column, or no input")
    return Schema(task, single["target"], single["time"], single["known"], inputs, kinds)


def _column(value: Any, kinds: Mapping[str, Kind]) -> Column:
    entry = held(value, "a column")
    made = one_of(entry["made"], "a column", MADE)
    sources = tuple(one_of(one, "a source", tuple(kinds)) for one in listed(entry["sources"], "it"))
    whole(len(sources), "the number of sources", *((2, 2) if made == "ratio" else (1, 1)))
    part = one_of(entry["part"], "a part", tuple(PARTS) if made == "part" else ("",))
    column = Column(text(entry["name"], "a name"), made, sources, part)
    column.check(kinds, "the saved learner")
    return column


def encoding_from_json(value: Any, columns: int) -> Encoding:
    """What each of so many columns becomes."""
    encoding = held(value, "encoding")
    features = [_feature(one, columns) for one in listed(encoding["features"], "features")]
    found = Encoding(features, scale_from_json(encoding["scale"], columns))
    whole(found.width, "the number of inputs per row", 1, MOST_INPUTS)
    return found


def _feature(value: Any, columns: int) -> Feature:
    entry = held(value, "a feature")
    kind = one_of(entry["kind"], "a feature", BECOMES)
    places = [_number(one, "a place") for one in listed(entry["places"], "places")]
    feature = Feature(
        whole(entry["column"], "a feature's column", 0, columns - 1),
        kind,
        _number(entry["period"], "a period"),
        whole(entry["waves"], "waves", 1, MOST_ROUND),
        places,
        whole(entry["room"], "room", 0, MOST_INPUTS),
    )
    if kind == "circle" and not 1 <= feature.period <= YEAR_IN_SECONDS:
        raise ValueError(f"a period is {feature.period}")
    if kind == "category" and len(places) >= feature.room:
        raise ValueError("a feature has more categories than room")
    return feature


def scale_from_json(value: Any, columns: int) -> Scale:
    """Units of so many columns."""
    parts = {}
    for name in ("count", "mean", "squares"):
        numbers = [_number(one, name) for one in listed(held(value, "scale")[name], name)]
        whole(len(numbers), f"the number of columns in {name}", columns, columns)
        parts[name] = np.array(numbers, dtype=float)
    if (parts["count"] < 0).any() or (parts["squares"] < 0).any():
        raise ValueError("a count, or a square, is negative")
    return Scale(**parts)


def shape_from_json(value: Any) -> BatchShape:
    """Of the batches that are learned from."""
    shape = held(value, "shape")
    return BatchShape(
        whole(shape["tasks"], "tasks", 1, MOST_TASKS),
        whole(shape["support"], "support", 1, MOST_SUPPORT),
        whole(shape["query"], "query", 1, MOST_QUERY),
    )


def _number(value: Any, name: str) -> float:
    if type(value) not in (int, float) or not math.isfinite(float(value)):
        raise ValueError(f"{name} is {_short(value)}, not a finite number")
    return float(value)
