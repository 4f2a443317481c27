"""What is kept of one seed while it trains: lines for the run folder, arrays for the summary."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from taskmix.evaluation import Evaluation, family_measures, prequential
from taskmix.learner import Info
from taskmix.training.loop import Chunk

Line = dict[str, Any]


@dataclasses.dataclass
class Record:
    """Everything measured of one seed so far; ``position`` is its place among the seeds."""

    families: Sequence[str]
    position: int
    metrics: list[Line] = dataclasses.field(default_factory=list)
    events: list[Line] = dataclasses.field(default_factory=list)
    evaluation: Evaluation | None = None
    _errors: list[np.ndarray] = dataclasses.field(default_factory=list)
    _family: list[np.ndarray] = dataclasses.field(default_factory=list)
    _responsibilities: list[np.ndarray] = dataclasses.field(default_factory=list)

    def add(self, chunk: Chunk) -> tuple[Line, list[Line]]:
        """The chunk's line of ``metrics.jsonl`` and its lines of ``events.jsonl``."""
        info, self.evaluation = jax.tree.map(
            lambda leaf: leaf[self.position], (chunk.info, chunk.evaluation)
        )
        alive = _alive(info, self.evaluation)
        line: Line = {
            "iteration": chunk.iteration,
            "clusters": int(alive.sum()),
            "loss": None,
            "suspicion": None,
            "seconds": round(chunk.seconds, 3),
            "batch_responsibilities": [],
            "prequential": {},
            "families": family_measures(self.evaluation, self.families, alive),
        }
        if info is not None and chunk.families is not None:
            family = chunk.families[self.position]
            share = info.responsibilities.mean(axis=(0, 1))
            learned = np.isfinite(info.loss)
            line["loss"] = float(info.loss[learned].mean()) if learned.any() else None
            line["suspicion"] = float(info.suspicion.max())
            line["batch_responsibilities"] = [float(value) for value in share[alive]]
            line["prequential"] = prequential(info.error, family, self.families)
            self._errors.append(info.error)
            self._family.append(family)
            self._responsibilities.append(info.responsibilities)
        events = _events(chunk, info, self.position)
        self.metrics.append(line)
        self.events.extend(events)
        return line, events

    @property
    def clusters(self) -> int:
        """Clusters alive at the last evaluation."""
        return int(self.metrics[-1]["clusters"])

    @property
    def spawns(self) -> list[int]:
        return [event["iteration"] for event in self.events if event["event"] == "spawned"]

    @property
    def skipped_in_a_row(self) -> int:
        """Batches with tasks left out just before the last evaluation, one after the other."""
        skipped = {e["iteration"] for e in self.events if e["event"] in SKIPPED}
        last = self.metrics[-1]["iteration"] - 1
        return next(n for n in count() if last - n not in skipped)

    @property
    def errors(self) -> Float[np.ndarray, "iterations tasks"]:
        """Error of every task of the stream, predicted before it was learned from.

        NaN for the tasks that were skipped.
        """
        return np.concatenate(self._errors)

    @property
    def family(self) -> Int[np.ndarray, "iterations tasks"]:
        """The true family of every task of the stream."""
        return np.concatenate(self._family)

    @property
    def responsibilities(self) -> Float[np.ndarray, "iterations tasks clusters"]:
        """How much of each task of the stream each cluster took; 0 before its birth."""
        clusters = self._responsibilities[-1].shape[-1]
        return np.concatenate(
            [
                np.pad(part, ((0, 0), (0, 0), (0, clusters - part.shape[-1])))
                for part in self._responsibilities
            ]
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything that is not in the lines."""
        assert self.evaluation is not None, "there is nothing to keep before the first chunk"
        evaluation = {
            f"evaluation.{field.name}": np.asarray(getattr(self.evaluation, field.name))
            for field in dataclasses.fields(Evaluation)
        }
        return {**evaluation, **{name: getattr(self, name) for name in HISTORY}}

    @staticmethod
    def restored(
        families: Sequence[str],
        position: int,
        arrays: Mapping[str, np.ndarray],
        metrics: Sequence[Line],
        events: Sequence[Line],
    ) -> Record:
        """The record whose ``arrays`` and lines these were."""
        evaluation = {
            field.name: jnp.asarray(arrays[f"evaluation.{field.name}"])
            for field in dataclasses.fields(Evaluation)
        }
        history = ([arrays[name]] for name in HISTORY)
        return Record(
            families, position, list(metrics), list(events), Evaluation(**evaluation), *history
        )


SKIPPED = ("tasks skipped", "batch skipped")
"""Events: tasks that were left out of a batch, or a batch from which nothing was learned."""
HISTORY = ("errors", "family", "responsibilities")
"""What a record keeps of every iteration, in the order of its fields."""


def _alive(info: Info | None, evaluation: Evaluation) -> Bool[np.ndarray, " clusters"]:
    """Which clusters are alive: they are born in order, and none has died.

    Before the first step nothing says how many there are, but a cluster that exists takes
    some responsibility for some task.
    """
    capacity = evaluation.responsibilities.shape[-1]
    if info is None:
        return np.any(np.asarray(evaluation.responsibilities) > 0, axis=(0, 1))
    return np.arange(capacity) < int(info.clusters[-1])


def _events(chunk: Chunk, info: Info | None, position: int) -> list[Line]:
    if info is None:
        return []
    start = chunk.iteration - len(info.loss)
    events: list[Line] = []
    if chunk.grown:
        capacity = info.responsibilities.shape[-1]
        events.append({"iteration": start, "event": "capacity grown", "capacity": capacity})
    events.extend(
        {"iteration": int(start + i), "event": "spawned", "clusters": int(info.clusters[i])}
        for i in np.flatnonzero(info.spawned)
    )
    if chunk.skips is not None:
        batch, task = chunk.skips.batch[position], chunk.skips.task[position]
        events.extend(
            {
                "iteration": int(start + i),
                "event": SKIPPED[int(batch[i])],
                "tasks": [int(index) for index in np.flatnonzero(task[i])],
            }
            for i in np.flatnonzero(chunk.skips.any[position])
        )
    return sorted(events, key=lambda event: event["iteration"])
