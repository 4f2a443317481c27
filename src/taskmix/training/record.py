"""What is kept of one seed while it trains: lines for the run folder, sums for the summary."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from taskmix.evaluation import Details, Evaluation, History, family_measures, prequential
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
    alarmed: dict[int, list[int]] = dataclasses.field(default_factory=dict)
    """By iteration of an alarm, the tasks of its batch that no cluster explains, worst first."""
    skipped: dict[str, int] = dataclasses.field(default_factory=lambda: {"tasks": 0, "batches": 0})
    """How many tasks of how many batches were not learned from."""
    growths: int = 0
    """How often the learner was given more capacity."""
    test: dict[str, np.ndarray] | None = None
    """The first test tasks of every family, as ``Chunk.test``."""
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
        if chunk.test is not None:
            self.test = {name: leaf[self.position] for name, leaf in chunk.test.items()}
        self.growths += chunk.grown
        if chunk.skips is not None:
            self.skipped["tasks"] += int(chunk.skips.task[self.position].sum())
            self.skipped["batches"] += int(chunk.skips.any[self.position].sum())
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
            clusters, shares = self.lives.shares(held, info.responsibilities)
            family = chunk.families[self.position]
            self.history.add(start, info.error, family, shares, clusters)
            self._note(start, happenings)
            self._note_alarming(start, happenings, np.asarray(info.error), shares)
            alive = np.searchsorted(clusters, self.lives.ids)
            of_batches = _of_batches(info, shares, alive)
            of_batches["prequential"] = prequential(info.error, family, self.families)
            events = _events(chunk, info, happenings, self.position, self.alarmed)
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

    def _note_alarming(
        self,
        start: int,
        happenings: Sequence[Happening],
        error: Float[np.ndarray, "iterations tasks"],
        shares: Float[np.ndarray, "iterations tasks clusters"],
    ) -> None:
        for one in happenings:
            if one.event == "alarm" and len(self.alarmed) < MOST_ALARMS:
                rest = 1 - shares[one.offset].sum(axis=-1)
                strange = (rest > 0.5) & ~np.isnan(error[one.offset])
                order = np.argsort(-rest, kind="stable")
                self.alarmed[start + one.offset] = [int(t) for t in order if strange[t]]

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
        if self.evaluation.details is not None:
            parts["details"] = self.evaluation.details
        arrays = {
            f"{part}.{name}": np.asarray(getattr(whole, name))
            for part, whole in parts.items()
            for name in _arrays_of(type(whole))
        }
        return arrays | {f"test.{name}": leaf for name, leaf in (self.test or {}).items()}

    def facts(self) -> dict[str, Any]:
        """What JSON can say."""
        assert self.lives is not None, "there is nothing to keep before the first chunk"
        return {
            "metrics": self.metrics,
            "lives": self.lives.facts(),
            "spawns": self.spawns,
            "removals": self.removals,
            "alarms": self.alarms,
            "alarmed": list(self.alarmed.items()),
            "skipped": self.skipped,
            "growths": self.growths,
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
        evaluation, history, details, test = (
            {name: np.array(arrays[f"{part}.{name}"]) for name in names}
            for part, names in (
                ("evaluation", _arrays_of(Evaluation)),
                ("history", _arrays_of(History)),
                ("details", _arrays_of(Details) if "details.mean" in arrays else []),
                ("test", [name[5:] for name in arrays if name.startswith("test.")]),
            )
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
            alarmed={int(at): list(tasks) for at, tasks in facts["alarmed"]},
            skipped=dict(facts["skipped"]),
            growths=int(facts["growths"]),
            test=test or None,
            skipped_in_a_row=int(facts["skipped_in_a_row"]),
            evaluation=Evaluation(
                **jax.tree.map(jnp.asarray, evaluation),
                details=Details(**jax.tree.map(jnp.asarray, details)) if details else None,
            ),
        )


def _arrays_of(whole: type) -> list[str]:
    return [
        field.name for field in dataclasses.fields(whole) if field.name not in ("phases", "details")
    ]


MOST_ALARMS = 1000
"""Of which the tasks are remembered; a record must not grow with time."""
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
    info: Info,
    shares: Float[np.ndarray, "iterations tasks clusters"],
    alive: Int[np.ndarray, " alive"],
) -> Line:
    """Means over the batches of a chunk, of those clusters that are alive at its end.

    Tasks whose error is NaN were not learned from.
    """
    known = ~np.isnan(info.error)
    learned = np.isfinite(info.loss)
    line: Line = {
        "loss": float(info.loss[learned].mean()) if learned.any() else None,
        "suspicion": float(info.suspicion.max()),
        "batch_responsibilities": [0.0] * len(alive),
        "batch_background": None,
    }
    if known.any():
        mean = shares[known].mean(axis=0)
        line["batch_responsibilities"] = [float(value) for value in mean[alive]]
        line["batch_background"] = max(1 - float(mean.sum()), 0.0)
    return line


def _events(
    chunk: Chunk,
    info: Info,
    happenings: Sequence[Happening],
    position: int,
    alarmed: Mapping[int, Sequence[int]],
) -> list[Line]:
    start = chunk.iteration - len(info.loss)
    events: list[Line] = []
    if chunk.grown:
        capacity = info.responsibilities.shape[-1]
        events.append({"iteration": start, "event": "capacity grown", "capacity": capacity})
    for one in happenings:
        event: Line = {"iteration": start + one.offset, "event": one.event}
        if one.event != "alarm":
            event |= {"clusters": one.clusters, "cluster": one.cluster}
        elif alarmed.get(start + one.offset):
            event["tasks"] = list(alarmed[start + one.offset])
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
