"""What is kept of one seed while it trains: lines for the run folder, sums for the summary."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from taskmix.evaluation import Evaluation, History, family_measures, prequential
from taskmix.learner import Info
from taskmix.streams import Phase
from taskmix.training.lives import Happening, Lives
from taskmix.training.moments import Chunk

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
    lives: Lives | None = None
    """Which cluster is which; None before the first chunk."""
    spawns: list[int] = dataclasses.field(default_factory=list)
    """Iterations whose batch opened a cluster."""
    removals: list[int] = dataclasses.field(default_factory=list)
    """Iterations that removed one."""
    alarms: list[int] = dataclasses.field(default_factory=list)
    """Iterations whose batch raised an alarm, while the one before did not."""
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
        if self.lives is None:
            self.lives = Lives.begin(_founders(self.evaluation))
        of_batches: Line = {
            "loss": None,
            "suspicion": None,
            "batch_responsibilities": [],
            "batch_background": None,
            "prequential": {},
        }
        events: list[Line] = []
        if info is not None and chunk.families is not None:
            start = chunk.iteration - len(info.loss)
            held, happenings = self.lives.follow(info)
            shares = self.lives.shares(held, info.responsibilities)
            family = chunk.families[self.position]
            self.history.add(start, info.error, family, shares)
            self._note(start, happenings)
            of_batches = _of_batches(info, shares, self.lives.ids)
            of_batches["prequential"] = prequential(info.error, family, self.families)
            events = _events(chunk, info, happenings, self.position)
        line: Line = {
            "iteration": chunk.iteration,
            "clusters": len(self.lives.ids),
            "cluster_ids": self.lives.ids,
            "seconds": round(chunk.seconds, 3),
            **of_batches,
            "families": family_measures(self.evaluation, self.families, self.lives.alive),
        }
        self.skipped_in_a_row = self._skipped_in_a_row(chunk)
        self._keep(line)
        return line, events

    def _note(self, start: int, happenings: Sequence[Happening]) -> None:
        lists = {"spawned": self.spawns, "removed": self.removals, "alarm": self.alarms}
        for one in happenings:
            lists[one.event].append(start + one.offset)

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
        assert self.lives is not None, "there is nothing to keep before the first chunk"
        return {
            "metrics": self.metrics,
            "lives": self.lives.facts(),
            "spawns": self.spawns,
            "removals": self.removals,
            "alarms": self.alarms,
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
            lives=Lives.restored(facts["lives"]),
            spawns=list(facts["spawns"]),
            removals=list(facts["removals"]),
            alarms=list(facts["alarms"]),
            skipped_in_a_row=int(facts["skipped_in_a_row"]),
            evaluation=Evaluation(**jax.tree.map(jnp.asarray, evaluation)),
        )


def _arrays_of(whole: type) -> list[str]:
    return [field.name for field in dataclasses.fields(whole) if field.name != "phases"]


SKIPPED = ("tasks skipped", "batch skipped")
"""Events: tasks that were left out of a batch, or a batch from which nothing was learned."""


def _founders(evaluation: Evaluation) -> Bool[np.ndarray, " rows"]:
    """Which clusters there are before the first step, when no step has said so yet.

    A learner begins with its first rows, at least one of them; the last that takes some
    responsibility for some task exists.
    """
    responsibilities = np.asarray(evaluation.responsibilities)
    takes = np.flatnonzero(np.any(responsibilities > 0, axis=(0, 1)))
    return np.arange(responsibilities.shape[-1]) <= (takes[-1] if takes.size else 0)


def _of_batches(
    info: Info, shares: Float[np.ndarray, "iterations tasks clusters"], ids: Sequence[int]
) -> Line:
    """Means over the batches of a chunk; tasks whose error is NaN were not learned from."""
    known = ~np.isnan(info.error)
    learned = np.isfinite(info.loss)
    line: Line = {
        "loss": float(info.loss[learned].mean()) if learned.any() else None,
        "suspicion": float(info.suspicion.max()),
        "batch_responsibilities": [0.0] * len(ids),
        "batch_background": None,
    }
    if known.any():
        mean = shares[known].mean(axis=0)
        line["batch_responsibilities"] = [float(value) for value in mean[list(ids)]]
        line["batch_background"] = max(1 - float(mean.sum()), 0.0)
    return line


def _events(chunk: Chunk, info: Info, happenings: Sequence[Happening], position: int) -> list[Line]:
    start = chunk.iteration - len(info.loss)
    events: list[Line] = []
    if chunk.grown:
        capacity = info.responsibilities.shape[-1]
        events.append({"iteration": start, "event": "capacity grown", "capacity": capacity})
    for one in happenings:
        event: Line = {"iteration": start + one.offset, "event": one.event}
        if one.event != "alarm":
            event |= {"clusters": one.clusters, "cluster": one.cluster}
        events.append(event)
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
