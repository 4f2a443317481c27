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
from taskmix.files import LARGEST_JSON, explained, read_bytes, replace_all
from taskmix.tables.defaults import learner_for
from taskmix.tables.described import (
    chosen_from_json,
    encoding_from_json,
    held,
    listed,
    prepared_from_json,
    scale_from_json,
    shape_from_json,
    whole,
)
from taskmix.tables.encoding import encoding_to_json, scale_to_json
from taskmix.tables.engine import Engine
from taskmix.tables.model import TableModel
from taskmix.tables.parameters import plain
from taskmix.tables.prepared import Prepared
from taskmix.tables.schema import schema_to_json
from taskmix.training.checkpoints import as_arrays, check_finite, from_arrays
from taskmix.training.lock import NAME, owning

if TYPE_CHECKING:
    from taskmix.estimator import TableLearner

FORMAT, VERSION = "taskmix table", 2
LARGEST = 1 << 26
LARGEST_ARRAYS = 1 << 30
"""Numbers in a batch; there is no telling what a damaged file says."""
REFUSALS = (ValueError, KeyError, TypeError, OverflowError, RecursionError, MemoryError)
"""What settings of somebody else make of the parts that they are for."""
PARTS = ("correction", "distances")
"""Of a model beside its learner; the names of their arrays begin with theirs."""
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
        "model": model_to_json(learner.model_),
    }
    try:
        text = json.dumps(described, indent=2, allow_nan=False, default=plain) + "\n"
    except (TypeError, ValueError) as error:
        raise ValueError(f"The parameters cannot be written as JSON ({error}).") from None
    contents = {
        ARRAYS: save_arrays(model_arrays(learner.model_)),
        MODEL: text.encode(),
    }
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    contents[CHECKSUMS] = (json.dumps(sums, indent=2) + "\n").encode()
    if folder.exists() and not is_table(folder) and not _free(folder):
        raise ValueError(f"{folder} exists and holds no table learner; choose another folder.")
    with explained(f"create {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    with owning(folder):
        replace_all(folder, contents)
    return folder


def _free(folder: Path) -> bool:
    """Whether nothing but what an interruption left of a learner is there."""
    names = {entry.name.removesuffix(".partial") for entry in folder.iterdir()}
    return names <= {ARRAYS, MODEL, CHECKSUMS, NAME} and not (folder / MODEL).exists()


def is_table(folder: Path) -> bool:
    """Whether a folder says that it holds a table learner."""
    try:
        described = json.loads(read_bytes(folder / MODEL))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(described, dict) and described.get("format") == FORMAT


def load(folder: Path) -> TableLearner:
    """What ``save`` wrote, or a ``ValueError`` if that is not what is there."""
    try:
        sums = json.loads(read_bytes(folder / CHECKSUMS))
        contents = {
            name: read_bytes(folder / name, largest)
            for name, largest in ((ARRAYS, LARGEST_ARRAYS), (MODEL, LARGEST_JSON))
        }
    except FileNotFoundError as missing:
        name = Path(missing.filename).name
        raise ValueError(
            f"{folder} holds no table learner ({name} is missing); give a folder that "
            f"`taskmix run table` or `save` wrote."
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{folder} holds no table learner ({error}); save it again.") from None
    for name, content in contents.items():
        if not isinstance(sums, dict) or hashlib.sha256(content).hexdigest() != sums.get(name):
            raise ValueError(f"{folder / name} is not what was saved (wrong checksum).")
    try:
        return _restored(held(json.loads(contents[MODEL]), "model.json"), contents[ARRAYS])
    except (*REFUSALS, safetensors.SafetensorError) as error:
        what = " ".join(str(error).split())[:200]
        raise ValueError(f"{folder} holds no table learner that can be used ({what}).") from None


def _restored(described: Mapping[str, Any], content: bytes) -> TableLearner:
    from taskmix.estimator import TableLearner

    if described["version"] != VERSION:
        raise ValueError(f"version {described['version']!r}, not {VERSION}")
    params = held(described["params"], "params")
    learner = TableLearner(**{**params, "hidden": tuple(listed(params["hidden"], "hidden"))})
    learner.chosen_ = chosen_from_json(described["chosen"])
    learner.prepared_ = prepared_from_json(described["prepared"])
    learner.labels_ = learner.prepared_.labels
    arrays = load_arrays(content)
    model = held(described["model"], "model")
    learner.model_ = model_from_json(model, learner.chosen_, learner.prepared_, arrays)
    learner.n_features_in_ = learner.model_.encoding.width
    return learner


def _prepared_to_json(prepared: Prepared) -> dict[str, Any]:
    return {
        "schema": schema_to_json(prepared.schema),
        "labels": prepared.labels,
        "split": dataclasses.asdict(prepared.split),
        "vocabulary": {str(n): list(codes) for n, codes in prepared.vocabulary.codes.items()},
    }


def model_arrays(model: TableModel) -> dict[str, Any]:
    """Those of its state, and of what it learned beside."""
    own = {
        f"{part} {name}": leaf
        for part in PARTS
        for name, leaf in getattr(model, part).arrays().items()
    }
    return {**as_arrays(model.engine.state, "state"), **own}


def model_to_json(model: TableModel) -> dict[str, Any]:
    """All but its arrays."""
    engine = model.engine
    return {
        "encoding": encoding_to_json(model.encoding),
        "scale": scale_to_json(model.scale),
        "shape": dataclasses.asdict(engine.shape),
        "seed": engine.seed,
        "steps": engine.steps,
    }


def model_from_json(
    value: Mapping[str, Any],
    chosen: Mapping[str, Any],
    prepared: Prepared,
    arrays: Mapping[str, Any],
) -> TableModel:
    """What ``model_to_json`` described, with its arrays; whatever does not fit is an error."""
    encoding = encoding_from_json(value["encoding"], len(prepared.schema.inputs))
    width, classes = encoding.width, len(prepared.labels or ())
    learner = learner_for(width, classes, chosen["updates"], chosen["hidden"], chosen["settings"])
    shape = shape_from_json(value["shape"])
    if not shape.tasks * (shape.support + shape.query) * width <= LARGEST:
        raise ValueError(f"{shape} is no shape of a batch")
    engine = Engine(learner, shape, width, bool(classes), whole(value["seed"], "seed", 0))
    state = from_arrays(learner, jax.eval_shape(engine.first), arrays, "state")
    check_finite(state, engine.first)
    engine.state = jax.tree.map(jnp.asarray, state)
    engine.steps = whole(value["steps"], "steps", 0)
    model = TableModel(encoding, scale_from_json(value["scale"], 1), engine)
    model.correction.restore(_of_part("correction", arrays), width)
    model.distances.restore(_of_part("distances", arrays))
    return model


def _of_part(part: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    own = f"{part} "
    return {n.removeprefix(own): leaf for n, leaf in arrays.items() if n.startswith(own)}
