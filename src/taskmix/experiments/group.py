"""The runs that are trained side by side: what is kept of them, and how they go on."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from taskmix.experiments.few_shot import EarlyStopping
from taskmix.learner import Info, Learner
from taskmix.streams import Stream
from taskmix.training import Chunk, Pause, Record, RunFolder, Start
from taskmix.training.checkpoints import (
    Broken,
    Checkpoint,
    Checkpoints,
    as_arrays,
    check_finite,
    from_arrays,
    newest_common,
)
from taskmix.training.lock import Refused
from taskmix.training.moments import Given
from taskmix.training.programs import first_state
from taskmix.training.run_folder import CONFIG, read_json
from taskmix.training.skips import Skips
from taskmix.training.writers import WRITERS, Following


@dataclasses.dataclass(frozen=True)
class Keeping:
    """How runs are kept, so that they can go on after an interruption.

    Examples
    --------
    >>> Keeping(checkpoint_minutes=1.0).keep
    2
    """

    checkpoint_minutes: float = 5.0
    """Minutes between two checkpoints."""
    checkpoint_iterations: int = 0
    """Iterations between two checkpoints; 0: the clock alone decides."""
    keep: int = 2
    """Checkpoints to keep; an older one is used if the newest is damaged."""
    accept: tuple[str, ...] = ()
    """Settings by which a run may differ from what it was begun with, named as in config.json."""
    cache: bool = True
    """Whether compiled programs are kept in the user's cache folder, for a quicker next start."""
    writers: tuple[str, ...] = ()
    """Programs that follow the run: `tensorboard`, `wandb` (offline unless WANDB_MODE says
    otherwise), `mlflow`."""

    def __post_init__(self) -> None:
        if not 0 <= self.checkpoint_minutes < math.inf:
            raise ValueError(
                f"checkpoint_minutes is {self.checkpoint_minutes}; it must be at least 0."
            )
        for name, least in (("checkpoint_iterations", 0), ("keep", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least {least}.")
        for name in self.writers:
            WRITERS.find(name)


def shapes_of(stream: Stream) -> dict[str, Any]:
    """Shapes and types of the examples of a batch, without the axis of tasks."""
    batch = jax.eval_shape(lambda: stream.batch(jax.random.key(0), 0))
    return {
        part: {
            field: {"shape": list(values.shape[1:]), "dtype": str(values.dtype)}
            for field, values in (("x", examples.x), ("y", examples.y))
        }
        for part, examples in (("support", batch.support), ("query", batch.query))
    }


class Resumed(NamedTuple):
    """Where runs that were interrupted go on."""

    start: Start | None
    """None at the beginning."""
    found: list[Checkpoint] | None
    """What it was made from."""
    problems: list[str]
    """What was wrong with later checkpoints."""


class Group:
    """One run per seed: folders, records, best states, which go on together or not at all."""

    def __init__(
        self,
        learner: Learner,
        stream: Stream,
        folders: Sequence[RunFolder],
        keeping: Keeping,
        stops_early: bool,
    ) -> None:
        self.learner = learner
        self.stream = stream
        self.folders = folders
        self.keeping = keeping
        self.records = [
            Record.begin(stream.families, stream.phases, position)
            for position in range(len(folders))
        ]
        self.best = EarlyStopping(len(folders)) if stops_early else None
        self._checkpoints = [
            Checkpoints(folder.path / "checkpoints", folder.runs) for folder in folders
        ]
        self._followers = [
            Following(keeping.writers, folder.path, read_json(folder.path / CONFIG))
            for folder in folders
            if keeping.writers
        ]
        self._example = shapes_of(stream)
        self._saved = 0
        self._since = time.monotonic()

    def resume(self) -> Resumed:
        """Where to go on."""
        problems: list[str] = []
        found = newest_common(self._checkpoints, problems)
        start = None if found is None else self.restored(found)
        if start is None:
            self._check_nothing_is_lost(problems)
        iteration = start.iteration if start else 0
        for checkpoints in self._checkpoints:
            checkpoints.forget_after(iteration)
            checkpoints.prune(self.keeping.keep)
        for position, folder in enumerate(self.folders):
            folder.begin(found[position].files if found else {})
        self._saved = iteration
        return Resumed(start, found, problems)

    def _check_nothing_is_lost(self, problems: list[str]) -> None:
        """Seeds side by side begin anew together: say so, or refuse where some have ended."""
        kept = [str(f.path) for f in self.folders if f.has_results]
        without = [str(c.path.parent) for c in self._checkpoints if not c.iterations()]
        if kept:
            raise Refused(
                f"{without[0]} has no checkpoint to go on from, and to begin anew would take the "
                f"place of the results in {kept[0]}; put a copy of it back, or remove the folders "
                f"of all seeds that were trained side by side."
            )
        if len(without) < len(self.folders):
            problems.append(f"{without[0]} has none, so all seeds side by side begin anew")

    def add(self, chunk: Chunk) -> None:
        """Take a chunk into the records, and its lines into the folders."""
        if self.best is not None:
            self.best.see(chunk)
        failed: list[OSError] = []
        for place, (folder, record) in enumerate(zip(self.folders, self.records, strict=True)):
            line, events = record.add(chunk)
            for follower in self._followers[place : place + 1]:
                follower.add(line, events)
            added = [(folder.metrics, line), *((folder.events, event) for event in events)]
            for lines, one in added:
                try:
                    lines.add(one)
                except OSError as error:
                    # A checkpoint holds it all the same, so the others must have theirs, too.
                    failed.append(error)
        if failed:
            raise failed[0]

    def close(self, summaries: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Tell those who follow that the runs have ended, or have stopped for now."""
        for place, follower in enumerate(self._followers):
            follower.close(None if summaries is None else summaries[place])
        self._followers = []

    def due(self, iteration: int) -> bool:
        """Whether it is time for a checkpoint."""
        done = iteration - self._saved
        every = self.keeping.checkpoint_iterations
        minutes = (time.monotonic() - self._since) / 60
        return done > 0 and (0 < every <= done or minutes >= self.keeping.checkpoint_minutes)

    def save(self, moment: Chunk | Pause) -> None:
        """Write a checkpoint of every seed; older ones go when all of the new are there."""
        if moment.iteration == self._saved:
            return
        states = as_arrays(moment.state, "state")
        failed: list[OSError] = []
        for position, (checkpoints, record) in enumerate(
            zip(self._checkpoints, self.records, strict=True)
        ):
            arrays = {name: leaf[position] for name, leaf in states.items()} | record.arrays()
            facts = {
                "seconds": moment.seconds,
                "example": self._example,
                **record.facts(),
            }
            if isinstance(moment, Pause):
                arrays |= _since_as_arrays(moment.since, position)
                facts["grown"] = moment.grown
            files = {lines.path.name: lines.content() for lines in self.folders[position].lines}
            if self.best is not None:
                arrays |= as_arrays(self.best.state[position], "best")
                facts["best"] = [self.best.error[position], self.best.iteration[position]]
            try:
                checkpoints.save(Checkpoint(moment.iteration, arrays, facts), files)
            except OSError as error:
                # The others may lie on a disk with room.
                failed.append(error)
        if failed:
            raise failed[0]
        for checkpoints in self._checkpoints:
            checkpoints.prune(self.keeping.keep)
        self._saved, self._since = moment.iteration, time.monotonic()

    def restored(self, found: Sequence[Checkpoint]) -> Start:
        """The runs as they were at their checkpoints."""
        try:
            return self._start(found)
        except (Broken, KeyError, TypeError, ValueError) as error:
            where = f" in {self.folders[0].path}" if self.folders else ""
            raise ValueError(
                f"The checkpoint of iteration {found[0].iteration}{where} does not fit this "
                f"version or these settings ({error}); choose another folder."
            ) from error

    def _start(self, found: Sequence[Checkpoint]) -> Start:
        first = first_state(self.learner, self.stream)
        self.records = [
            Record.restored(
                self.stream.families, self.stream.phases, position, one.arrays, one.facts
            )
            for position, one in enumerate(found)
        ]
        for position, one in enumerate(found):
            if self.best is not None:
                error, iteration = one.facts["best"]
                state = from_arrays(self.learner, first, one.arrays, "best")
                self.best.restore(position, error, iteration, state)
        states = [from_arrays(self.learner, first, one.arrays, "state") for one in found]
        example = self.stream.batch(jax.random.key(0), 0)
        for state in states:
            check_finite(state, lambda: self.learner.init(jax.random.key(0), example))
        return Start(
            iteration=found[0].iteration,
            state=jax.tree.map(lambda *leaves: jnp.stack(leaves), *states),
            seconds=found[0].facts["seconds"],
            skipped=tuple(record.skipped_in_a_row for record in self.records),
            since=_since([one.arrays for one in found]),
            grown=found[0].facts.get("grown", False),
            alive=_alive(self.records),
        )


def _alive(records: Sequence[Record]) -> Bool[np.ndarray, "seeds clusters"]:
    """Which clusters every seed had at its last evaluation."""
    every = [record.lives.alive for record in records if record.lives is not None]
    return np.stack(every)


def _since_as_arrays(given: Given, position: int) -> dict[str, np.ndarray]:
    """What the iterations since the last evaluation gave to one seed."""
    parts = {field.name: getattr(given.info, field.name) for field in dataclasses.fields(Info)}
    parts["families"] = given.families
    if given.skips is not None:
        parts |= {f"skips.{name}": part for name, part in given.skips._asdict().items()}
    return {f"since.{name}": np.asarray(part[position]) for name, part in parts.items()}


def _since(every: Sequence[Mapping[str, np.ndarray]]) -> Given | None:
    """The same of all seeds, from the arrays of each; None where there were no iterations."""

    def part(name: str) -> np.ndarray:
        return np.stack([arrays[f"since.{name}"] for arrays in every])

    if "since.families" not in every[0]:
        return None
    # Of one step; what there is to restore has axes of seeds and iterations before its own.
    nothing = Info(
        loss=jnp.zeros(()),
        error=jnp.zeros(1),
        responsibilities=jnp.zeros((1, 1)),
        alive=jnp.zeros(1, dtype=bool),
        spawned=jnp.zeros((), dtype=bool),
        alarm=jnp.zeros((), dtype=bool),
        suspicion=jnp.zeros(()),
    )
    leaves = [part(field.name) for field in dataclasses.fields(Info)]
    skipped = "since.skips.batch" in every[0]
    return Given(
        jax.tree.unflatten(jax.tree.structure(nothing), leaves),
        part("families"),
        Skips(part("skips.batch"), part("skips.task")) if skipped else None,
    )
