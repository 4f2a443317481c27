"""Task batches as they come: no stream, no end, one step per batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from taskmix.files import write_json
from taskmix.learner import Growing, Info, Learner, Prediction, State, visible
from taskmix.tasks import Examples, Hints, TaskBatch, check_batch
from taskmix.training.checkpoints import (
    Checkpoint,
    Checkpoints,
    as_arrays,
    check_finite,
    from_arrays,
    newest_common,
)
from taskmix.training.lock import owning
from taskmix.training.run_folder import (
    CONFIG,
    as_json,
    check_unchanged,
    claim,
    fingerprint,
    read_json,
    software,
)
from taskmix.training.step import step

KEPT = 2
"""Checkpoints; the older one is used if the newest is damaged."""
LARGEST = 1 << 28
"""Numbers in a batch; there is no telling what a damaged file says."""


class Live:
    """A learner that follows task batches of any iterator, and can be asked in between.

    Every batch is checked before anything is learned from it. One with fewer tasks than the first
    is filled up with padding, so that nothing is compiled twice. For rows of a table, live or
    not, see ``TableLearner``.

    Parameters
    ----------
    learner
        Any learner that is told nothing of the tasks, or batches that come with their hints.
    seed
        Decides the initialisation, and what is random in the learner.

    Examples
    --------
    >>> import taskmix as tm
    >>> stream = tm.streams.regression(("linear",), (3,), tasks=2)
    >>> key = jax.random.key(0)
    >>> live = Live(tm.MAML(tm.MLP(hidden=(4,)), adaptation=tm.Adaptation(steps=1)))
    >>> infos = live.follow(stream.batch(key, i) for i in range(3))
    >>> [bool(info.loss > 0) for info in infos], live.batches
    ([True, True, True], 3)
    """

    def __init__(self, learner: Learner, seed: int = 0) -> None:
        self.learner = learner
        self.batches = 0
        """How many have been learned from."""
        self.state: State | None = None
        """What has been learned; None before the first batch."""
        self.seed = seed
        self._key = jax.random.key(seed)
        self._example: TaskBatch | None = None
        self._predict: Any = jax.jit(learner.predict)

    def follow(self, batches: Iterable[TaskBatch]) -> Iterator[Info]:
        """Learn from each batch when it is asked for, and give what the learner says of it.

        Parameters
        ----------
        batches
            Batches of one shape, but for the number of tasks; each is taken when the one before
            it has been learned from.

        Returns
        -------
        iterator of Info
            Loss, error, responsibilities, alarm; one per batch.
        """
        for batch in batches:
            yield self.learn(batch)

    def learn(self, batch: TaskBatch) -> Info:
        """Learn from one batch.

        Parameters
        ----------
        batch
            Tasks with support and query sets.

        Returns
        -------
        Info
            What the learner says of it. If the loss is NaN, nothing was learned.
        """
        batch = visible(self.learner, check_batch(batch))
        batch = jax.tree.map(jnp.asarray, batch)
        if self._example is None or self.state is None:
            self._example = jax.eval_shape(lambda: batch)
            self.state = jax.jit(self.learner.init)(self._key, batch)
        elif batch.query.mask.shape[0] < (tasks := self._example.query.mask.shape[0]):
            batch = batch.padded(tasks)
        if isinstance(self.learner, Growing) and not self.learner.has_room(self.state, 1):
            self.state = self.learner.grow(self.state)
        key = jax.random.fold_in(self._key, self.batches + 1)
        self.state, info = step(self.learner, self.state, batch, key)
        self.batches += 1
        return info

    def predict(self, support: Examples, query_x: Array) -> Prediction:
        """Predict one task from its support set; nothing is learned.

        Parameters
        ----------
        support
            Known examples of the task.
        query_x
            Inputs to predict the targets of.

        Returns
        -------
        Prediction
            Means, intervals, responsibilities, novelty.
        """
        if self.state is None:
            raise ValueError("Nothing has been learned yet; give a batch to learn or follow first.")
        found: Prediction = self._predict(self.state, support, query_x)
        return found

    def save(self, folder: str | Path) -> Path:
        """Write all that was learned, the whole of it or nothing; ``Live.load`` goes on from it.

        Parameters
        ----------
        folder
            Folder to create, or that was saved into before: the one before stays as well, in case
            the newest is damaged.

        Returns
        -------
        Path
            The folder.
        """
        if self.state is None or self._example is None:
            raise ValueError("Nothing has been learned yet; there is nothing to save.")
        folder = Path(folder)
        claim(folder)
        with owning(folder):
            self._write(folder, self.state, _described(self._example))
        return folder

    def _write(self, folder: Path, state: State, example: Mapping[str, Any]) -> None:
        config = _config(self.learner)
        if (folder / CONFIG).exists():
            before = {**read_json(folder / CONFIG), "software": None}
            check_unchanged(folder, before, {**config, "software": None}, ())
        else:
            write_json(folder / CONFIG, {**config, "software": software()})
        facts = {"seed": self.seed, "example": example}
        checkpoints = _checkpoints(self.learner, folder)
        checkpoints.save(Checkpoint(self.batches, as_arrays(state, "state"), facts))
        checkpoints.prune(KEPT)

    @classmethod
    def load(cls, learner: Learner, folder: str | Path) -> Live:
        """Go on where ``save`` was called, bit for bit; the next batch is number ``batches``.

        Parameters
        ----------
        learner
            The same as before.
        folder
            What was saved into.

        Returns
        -------
        Live
            With all that was learned.
        """
        folder, problems = Path(folder), list[str]()
        found = newest_common([_checkpoints(learner, folder)], problems)
        if found is None:
            raise ValueError(f"{folder} holds nothing that was saved; begin with a new Live.")
        facts, arrays = found[0].facts, found[0].arrays
        try:
            live = cls(learner, facts["seed"])
            live._example = example = _example(facts["example"])

            def first() -> State:
                blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), example)
                return learner.init(live._key, blank)

            state = from_arrays(learner, jax.eval_shape(first), arrays, "state")
            check_finite(state, first)
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            what = " ".join(str(error).split())[:200]
            raise ValueError(f"{folder} does not fit this learner ({what}).") from None
        live.state, live.batches = jax.tree.map(jnp.asarray, state), found[0].iteration
        return live


def _config(learner: Learner) -> dict[str, Any]:
    return {"experiment": "live", "learner": as_json(learner)}


def _checkpoints(learner: Learner, folder: Path) -> Checkpoints:
    return Checkpoints(folder / "checkpoints", (fingerprint(_config(learner)),))


def _described(example: TaskBatch) -> dict[str, Any]:
    """Shapes and types of a batch, and which hints came with it."""
    hints = example.hints
    return {
        "leaves": [[list(leaf.shape), str(leaf.dtype)] for leaf in jax.tree.leaves(example)],
        "hints": None if hints is None else [hints.family is not None, hints.boundary is not None],
    }


def _example(value: Mapping[str, Any]) -> TaskBatch:
    """What ``_described`` said, of shapes alone."""
    blank = jnp.zeros((1, 1), dtype=bool)
    side, hints = Examples(blank, blank, blank), None
    if value["hints"] is not None:
        family, boundary = value["hints"]
        hints = Hints(
            jnp.zeros(1, dtype=int) if family else None, blank[0, 0] if boundary else None
        )
    leaves = [jax.ShapeDtypeStruct(tuple(shape), dtype) for shape, dtype in value["leaves"]]
    if sum(leaf.size for leaf in leaves) > LARGEST:
        raise ValueError("a batch of that size cannot be")
    found: TaskBatch = jax.tree.unflatten(jax.tree.structure(TaskBatch(side, side, hints)), leaves)
    return found
