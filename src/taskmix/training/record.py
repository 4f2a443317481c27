"""What is kept of one seed while it trains: lines for the run folder, sums for the summary."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from taskmix.evaluation import Evaluation, History, family_measures, prequential
from taskmix.learner import Info
from taskmix.streams import Phase
from taskmix.training.loop import Chunk

Line = dict[str, Any]


@dataclasses.dataclass
class Record:
    """What is measured of one seed, as far as its summary needs it; it does not grow with time.

    ``position`` is the place among the seeds that are trained side by side.
    """

    families: Sequence[str]
    phases: Sequence[Phase]
    position: int
    history: History
    metrics: list[Line] = dataclasses.field(default_factory=list)
    """Lines of ``metrics.jsonl``: those of the ends of phases, and the last one."""
    spawns: list[int] = dataclasses.field(default_factory=list)
    """Iterations whose batch opened a cluster."""
    skipped_in_a_row: int = 0
    """Batches with tasks left out just before the last evaluation, one after the other."""
    evaluation: Evaluation | None = None

    @staticmethod
    def begin(families: Sequence[str], phases: Sequence[Phase], position: int) -> Record:
        return Record(families, phases, position, History.begin(phases, len(families)))

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
            start = chunk.iteration - len(info.loss)
            self.history.add(start, info.error, family, info.responsibilities)
            self.spawns += [int(start + i) for i in np.flatnonzero(info.spawned)]
        self.skipped_in_a_row = self._skipped_in_a_row(chunk)
        self._keep(line)
        return line, _events(chunk, info, self.position)

    def _keep(self, line: Line) -> None:
        ends = {0, *(phase.stop for phase in self.phases)}
        if self.metrics and self.metrics[-1]["iteration"] not in ends:
            self.metrics.pop()
        self.metrics.append(line)

    def _skipped_in_a_row(self, chunk: Chunk) -> int:
        if chunk.skips is None:
            return 0
        learned = np.flatnonzero(~chunk.skips.any[self.position][::-1])
        length = chunk.skips.batch.shape[1]
        return int(learned[0]) if learned.size else self.skipped_in_a_row + length

    @property
    def clusters(self) -> int:
        """Clusters alive at the last evaluation."""
        return int(self.metrics[-1]["clusters"])

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything that ``facts`` do not hold."""
        assert self.evaluation is not None, "there is nothing to keep before the first chunk"
        parts = {"evaluation": self.evaluation, "history": self.history}
        return {
            f"{part}.{name}": np.asarray(getattr(whole, name))
            for part, whole in parts.items()
            for name in _arrays_of(type(whole))
        }

    def facts(self) -> dict[str, Any]:
        """What JSON can say."""
        return {
            "metrics": self.metrics,
            "spawns": self.spawns,
            "skipped_in_a_row": self.skipped_in_a_row,
        }

    @staticmethod
    def restored(
        families: Sequence[str],
        phases: Sequence[Phase],
        position: int,
        arrays: Mapping[str, np.ndarray],
        facts: Mapping[str, Any],
    ) -> Record:
        """The record whose ``arrays`` and ``facts`` these were."""
        # A copy, as the history is added to in place.
        evaluation, history = (
            {name: np.array(arrays[f"{part}.{name}"]) for name in _arrays_of(whole)}
            for part, whole in (("evaluation", Evaluation), ("history", History))
        )
        return Record(
            families,
            phases,
            position,
            History(phases, **history),
            metrics=list(facts["metrics"]),
            spawns=list(facts["spawns"]),
            skipped_in_a_row=int(facts["skipped_in_a_row"]),
            evaluation=Evaluation(**jax.tree.map(jnp.asarray, evaluation)),
        )


def _arrays_of(whole: type) -> list[str]:
    return [field.name for field in dataclasses.fields(whole) if field.name != "phases"]


SKIPPED = ("tasks skipped", "batch skipped")
"""Events: tasks that were left out of a batch, or a batch from which nothing was learned."""


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
