"""What a run has learned, in a folder that can be shared: arrays, JSON and a card to read.

``model.safetensors`` holds the learner's state, ``model.json`` what it is the state of,
``checksums.json`` the SHA-256 of both. Loading it runs no code that is not taskmix's own.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
from jaxtyping import Array, Shaped
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

import taskmix
from taskmix.experiments.model_card import model_card
from taskmix.experiments.settings_json import learner_from_json
from taskmix.files import explained, read_bytes, replace
from taskmix.learner import Learner, Prediction, State, Told, visible
from taskmix.likelihood import Categorical
from taskmix.names import unknown
from taskmix.tasks import Examples, Hints, TaskBatch, unusable, usable
from taskmix.training.checkpoints import (
    Checkpoint,
    Checkpoints,
    check_finite,
    from_arrays,
    newest_common,
)
from taskmix.training.run_folder import fingerprint, read_json

FORMAT = "taskmix model"
VERSION = 1
ARRAYS, MODEL, CHECKSUMS, CARD = "model.safetensors", "model.json", "checksums.json", "README.md"
LARGEST = {ARRAYS: 16 << 30, MODEL: 1 << 20}
"""Bytes; a real description has a few thousand."""


@dataclasses.dataclass(frozen=True)
class Predictor:
    """A trained learner. It adapts to each task anew and learns nothing from it for good.

    ``tm.load`` and ``Fitted.predictor`` give one.

    Examples
    --------
    >>> import taskmix as tm
    >>> stream = tm.streams.regression(("linear",), (3,), tasks=2)
    >>> predictor = tm.fit("alpaca", stream, iterations=1).predictor()
    >>> prediction = predictor.predict([[0.0], [1.0]], [[0.0], [2.0]], [[3.0]])
    >>> low, high = prediction.interval(0.9)
    >>> bool((low < prediction.mean).all())
    True
    """

    learner: Learner
    """What was trained."""
    state: State
    """What it learned."""
    facts: Mapping[str, Any]
    """Contents of ``model.json``."""

    def predict(
        self,
        support_x: Shaped[np.ndarray | Array, ...],
        support_y: Shaped[np.ndarray | Array, ...],
        query_x: Shaped[np.ndarray | Array, ...],
        family: str | None = None,
    ) -> Prediction:
        """Predict the targets of ``query_x`` from a few examples of the same task.

        Parameters
        ----------
        support_x, support_y
            Inputs and targets of the known examples. Images are floats from 0 to 1 with axes
            (examples, rows, columns, channels), their targets class numbers from 0.
        query_x
            Inputs to predict the targets of.
        family
            For methods that are told the family of a task.

        Returns
        -------
        Prediction
            Mean or probabilities, intervals, responsibilities, novelty.
        """
        shapes = self.facts["example"]["support"]
        support = Examples.full(
            _checked("support_x", support_x, shapes["x"]),
            _checked("support_y", support_y, shapes["y"]),
            input_axes=len(shapes["x"]["shape"]) - 1,
        )
        query = _checked("query_x", query_x, shapes["x"])
        if len(support.x) != len(support.y):
            raise ValueError(
                f"support_x has {len(support.x)} examples but support_y {len(support.y)}."
            )
        hints = self._hints(family)
        classes = isinstance(self.learner.likelihood, Categorical)
        if classes and not 0 <= int(support.y.min()) <= int(support.y.max()) < self.outputs:
            raise ValueError(f"support_y must hold class numbers from 0 to {self.outputs - 1}.")
        prediction = self._compiled(self.state, support, query, hints)
        if not np.all(np.isfinite(prediction.mean)):
            raise ValueError("The prediction is not finite; scale support_x, support_y or query_x.")
        return prediction

    @cached_property
    def outputs(self) -> int:
        """Numbers, or classes, of a prediction."""
        example = _example(self.facts["example"])
        found: int = jax.eval_shape(lambda: _predicted(self, example)).mean.shape[-1]
        return found

    @cached_property
    def _compiled(self) -> Callable[..., Prediction]:
        """Compiled once for each number of examples, however many tasks are predicted."""
        return jax.jit(self.learner.predict)

    def _hints(self, family: str | None) -> Hints | None:
        if self.learner.told is Told.NOTHING:
            return None
        families = list(self.facts["families"])
        if self.learner.told is Told.FAMILY and family not in families:
            raise unknown("family", str(family), families)
        if self.learner.told is Told.BOUNDARIES:
            return Hints(boundary=jnp.asarray(False))
        return Hints(family=jnp.asarray(families.index(str(family))))


def export(run: str | Path, out: str | Path) -> None:
    """Write what a run had learned at its newest checkpoint (or at its best validation).

    Parameters
    ----------
    run
        A run folder.
    out
        Folder to create; what is in it can be shared.

    Examples
    --------
    >>> import tempfile
    >>> import taskmix as tm
    >>> stream = tm.streams.regression(("linear",), (3,), tasks=2)
    >>> learner = tm.MAML(tm.MLP(hidden=(4,)), adaptation=tm.Adaptation(steps=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = tm.fit(learner, stream, out=f"{folder}/run")
    ...     tm.export(f"{folder}/run", f"{folder}/model")
    ...     method = tm.load(f"{folder}/model").facts["method"]
    >>> method
    'MAML'
    """
    run, out = Path(run), Path(out)
    config = read_json(run / "config.json")
    checkpoint = newest_checkpoint(run)
    try:
        described, arrays = _described(config, checkpoint)
        card = model_card(described, checkpoint.facts["metrics"][-1])
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"{run} is of another version, or not of a run ({error}).") from error
    _restored(described, arrays, run)
    if out.exists() and any(out.iterdir()):
        raise FileExistsError(f"{out} exists and is not empty; choose another folder.")
    with explained(f"create {out}"):
        out.mkdir(parents=True, exist_ok=True)
    contents = {
        ARRAYS: save_arrays(arrays),
        MODEL: (json.dumps(described, indent=2, allow_nan=False) + "\n").encode(),
    }
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    contents[CARD] = card.encode()
    # Last, as a folder without it is one that was not finished.
    contents[CHECKSUMS] = (json.dumps(sums, indent=2) + "\n").encode()
    for name, content in contents.items():
        replace(out / name, content)


def predictor_of(folder: str | Path) -> Predictor:
    """What ``export`` wrote, or what a run has learned so far, read from its own folder."""
    folder = Path(folder)
    if (folder / MODEL).exists() or not (folder / "config.json").exists():
        return load(folder)
    try:
        described, arrays = _described(read_json(folder / "config.json"), newest_checkpoint(folder))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder} is of another version, or not of a run ({error}).") from error
    return _restored(described, arrays, folder)


def newest_checkpoint(run: Path) -> Checkpoint:
    """The last checkpoint of a run that can be read."""
    config = read_json(run / "config.json")
    earlier = config.pop("continues", [])
    if not isinstance(earlier, list):
        raise ValueError(f"{run / 'config.json'} is not of a run; restore it.")
    checkpoints = Checkpoints(run / "checkpoints", (fingerprint(config), *earlier))
    found = newest_common([checkpoints], [])
    if found is None:
        raise ValueError(f"{run} has no checkpoint; let the run get to one, or to its end.")
    return found[0]


def _described(
    config: Mapping[str, Any], checkpoint: Checkpoint
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What is exported of a run: ``model.json``, and the arrays of its last or best state."""
    prefix = "best" if "best" in checkpoint.facts else "state"
    described = {
        "format": FORMAT,
        "version": VERSION,
        "taskmix": taskmix.__version__,
        **{name: config[name] for name in ("experiment", "method", "seed", "measure", "families")},
        "iteration": checkpoint.facts["best"][1] if prefix == "best" else checkpoint.iteration,
        "example": checkpoint.facts["example"],
        "learner": config["learner"],
    }
    arrays = {
        "state" + name.removeprefix(prefix): array
        for name, array in checkpoint.arrays.items()
        if name.startswith(prefix)
    }
    return described, arrays


def load(folder: str | Path) -> Predictor:
    """What ``export`` wrote, or a ``ValueError`` if that is not what is there.

    Nothing in the folder is run as code: it can name parts that are registered, and no others.
    """
    folder = Path(folder)
    sums = read_json(folder / CHECKSUMS)
    contents = {}
    for name in (ARRAYS, MODEL):
        try:
            contents[name] = read_bytes(folder / name, LARGEST[name])
        except OSError as error:
            raise ValueError(f"{folder / name} cannot be read ({error.strerror}).") from None
        if hashlib.sha256(contents[name]).hexdigest() != sums.get(name):
            raise ValueError(f"{folder / name} is not what was exported (wrong checksum).")
    try:
        described = json.loads(contents[MODEL])
        arrays = load_arrays(contents[ARRAYS])
        if (described["format"], described["version"]) != (FORMAT, VERSION):
            raise ValueError(f"it is no {FORMAT} of version {VERSION}")
    except (ValueError, KeyError, TypeError, RecursionError, safetensors.SafetensorError) as error:
        raise ValueError(f"{folder} holds no model ({error}); export it again.") from None
    return _restored(described, arrays, folder)


def _restored(
    described: Mapping[str, Any], arrays: Mapping[str, np.ndarray], where: Path
) -> Predictor:
    try:
        learner = learner_from_json(described["learner"])
        shapes = described["example"]
        # Shapes only, as there is no telling how large a hostile file says they are.
        first = jax.eval_shape(
            lambda: learner.init(jax.random.key(0), visible(learner, _example(shapes)))
        )
        state = from_arrays(learner, first, arrays, "state")
        check_finite(
            state, lambda: learner.init(jax.random.key(0), visible(learner, _example(shapes)))
        )
        predictor = Predictor(learner, jax.tree.map(jnp.asarray, state), described)
        # It shows whether the parts fit together.
        _ = predictor.outputs
        return predictor
    except Exception as error:
        # Whatever it is that goes wrong with a learner which the file describes.
        what = " ".join(str(error).split())[:200]
        raise ValueError(f"{where} holds no model that this version can use: {what}.") from error


def _predicted(predictor: Predictor, tasks: TaskBatch) -> Prediction:
    """Of the first task."""
    task = tasks.task(0)
    hints = predictor._hints(next(iter(predictor.facts["families"]), None))
    return predictor.learner.predict(predictor.state, task.support, task.query.x, hints)


def _example(shapes: Mapping[str, Any]) -> TaskBatch:
    """One task of zeros, which has the shapes that a learner was made for."""

    def zeros(shape: Any, dtype: str) -> Array:
        if not isinstance(shape, list) or not shape:
            raise ValueError(f"{str(shape)[:60]} is no shape of examples")
        return jnp.zeros((1, *shape), dtype)

    def examples(part: Mapping[str, Any]) -> Examples:
        x, y = (zeros(part[field]["shape"], part[field]["dtype"]) for field in "xy")
        return Examples(x, y, jnp.ones(x.shape[:2], dtype=bool))

    hints = Hints(jnp.zeros(1, dtype=int), jnp.asarray(False))
    return TaskBatch(examples(shapes["support"]), examples(shapes["query"]), hints)


def _checked(name: str, values: Any, wanted: Mapping[str, Any]) -> Array:
    """Values of the right type and shape; their number is free."""
    array = np.asarray(values)
    shape = tuple(wanted["shape"][1:])
    whole = np.issubdtype(wanted["dtype"], np.integer)
    if array.shape[1:] != shape or array.ndim != len(shape) + 1 or not len(array):
        raise ValueError(f"{name} has shape {array.shape}; it needs (examples, *{shape}).")
    if array.dtype.kind not in ("iu" if whole else "fiu"):
        raise ValueError(f"{name} holds {array.dtype}; it needs {wanted['dtype']}.")
    # Before the cast, which wraps class numbers around and makes infinities of large numbers.
    given = array if whole else array.astype(float)
    if not usable(given).all():
        raise ValueError(f"{name} holds numbers that are {unusable(given)}; remove those examples.")
    return jnp.asarray(array, wanted["dtype"])
