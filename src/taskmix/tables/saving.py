"""A fitted table learner in a folder: arrays as safetensors, all else as JSON, with checksums."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import safetensors
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

import taskmix
from taskmix.files import LARGEST_JSON, explained, read_bytes, replace
from taskmix.tables.blocks import Vocabulary
from taskmix.tables.defaults import learner_for
from taskmix.tables.encoding import (
    encoding_from_json,
    encoding_to_json,
    scale_from_json,
    scale_to_json,
)
from taskmix.tables.engine import Engine
from taskmix.tables.flow import Prepared
from taskmix.tables.grouping import Splitter
from taskmix.tables.model import TableModel
from taskmix.tables.packing import Shape
from taskmix.tables.schema import schema_from_json, schema_to_json
from taskmix.training.checkpoints import as_arrays, from_arrays

if TYPE_CHECKING:
    from taskmix.estimator import TableLearner

FORMAT, VERSION = "taskmix table", 1
LARGEST = 1 << 26
LARGEST_ARRAYS = 1 << 30
"""Numbers in a batch; there is no telling what a damaged file says."""
ARRAYS, MODEL, CHECKSUMS = "model.safetensors", "model.json", "checksums.json"


def save(learner: TableLearner, folder: Path) -> Path:
    """Everything that ``partial_fit`` needs to go on as if nothing had been written."""
    described = {
        "format": FORMAT,
        "version": VERSION,
        "taskmix": taskmix.__version__,
        "params": learner.get_params(),
        "chosen": learner.chosen_,
        "prepared": _prepared_to_json(learner.prepared_),
        "model": _model_to_json(learner.model_),
    }
    try:
        text = json.dumps(described, indent=2, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise ValueError(f"The parameters cannot be written as JSON ({error}).") from None
    contents = {
        ARRAYS: save_arrays(as_arrays(learner.model_.engine.state, "state")),
        MODEL: text.encode(),
    }
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    contents[CHECKSUMS] = (json.dumps(sums, indent=2) + "\n").encode()
    with explained(f"create {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        replace(folder / name, content)
    return folder


def is_table(folder: Path) -> bool:
    """Whether a folder says that it holds a table learner."""
    try:
        described = json.loads(read_bytes(folder / MODEL))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(described, dict) and described.get("format") == FORMAT


def load(folder: Path) -> TableLearner:
    """What ``save`` wrote, or a ``ValueError`` if that is not what is there."""
    from taskmix.estimator import TableLearner

    try:
        sums = json.loads(read_bytes(folder / CHECKSUMS))
        contents = {
            name: read_bytes(folder / name, largest)
            for name, largest in ((ARRAYS, LARGEST_ARRAYS), (MODEL, LARGEST_JSON))
        }
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder} holds no table learner ({error}); save it again.") from None
    for name, content in contents.items():
        if hashlib.sha256(content).hexdigest() != sums.get(name):
            raise ValueError(f"{folder / name} is not what was saved (wrong checksum).")
    try:
        described = json.loads(contents[MODEL])
        if described["version"] != VERSION:
            raise ValueError(f"version {described['version']}, not {VERSION}")
        params, chosen = described["params"], described["chosen"]
        params["hidden"], chosen["hidden"] = tuple(params["hidden"]), tuple(chosen["hidden"])
        learner = TableLearner(**params)
        learner.chosen_ = chosen
        learner.prepared_ = _prepared_from_json(described["prepared"])
        learner.labels_ = learner.prepared_.labels
        arrays = load_arrays(contents[ARRAYS])
        learner.model_ = _model_from_json(described["model"], chosen, learner.labels_, arrays)
        learner.n_features_in_ = learner.model_.encoding.width
        return learner
    except (ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
        what = " ".join(str(error).split())[:200]
        raise ValueError(f"{folder} holds no table learner that can be used ({what}).") from None


def _prepared_to_json(prepared: Prepared) -> dict[str, Any]:
    return {
        "schema": schema_to_json(prepared.schema),
        "labels": prepared.labels,
        "split": dataclasses.asdict(prepared.split),
        "vocabulary": {str(n): list(codes) for n, codes in prepared.vocabulary.codes.items()},
    }


def _prepared_from_json(value: Mapping[str, Any]) -> Prepared:
    texts = {
        int(number): {text: code for code, text in enumerate(known)}
        for number, known in value["vocabulary"].items()
    }
    labels = value["labels"]
    return Prepared(
        schema_from_json(value["schema"]),
        None if labels is None else tuple(labels),
        Splitter(**value["split"]),
        Vocabulary(texts),
    )


def _model_to_json(model: TableModel) -> dict[str, Any]:
    engine = model.engine
    return {
        "encoding": encoding_to_json(model.encoding),
        "scale": scale_to_json(model.scale),
        "shape": dataclasses.asdict(engine.shape),
        "seed": engine.seed,
        "steps": engine.steps,
    }


def _model_from_json(
    value: Mapping[str, Any],
    chosen: Mapping[str, Any],
    labels: tuple[str, ...] | None,
    arrays: Mapping[str, Any],
) -> TableModel:
    encoding = encoding_from_json(value["encoding"])
    width, classes = encoding.width, len(labels or ())
    learner = learner_for(width, classes, chosen["updates"], chosen["hidden"], chosen["settings"])
    shape = Shape(**value["shape"])
    if not 0 < shape.tasks * (shape.support + shape.query) * width <= LARGEST:
        raise ValueError(f"{shape} is no shape of a batch")
    engine = Engine(learner, shape, width, bool(classes), value["seed"])
    first = jax.eval_shape(engine.first)
    state = from_arrays(learner, first, arrays, "state")
    engine.state = jax.tree.map(jnp.asarray, state)
    engine.steps = value["steps"]
    return TableModel(encoding, scale_from_json(value["scale"]), engine)
