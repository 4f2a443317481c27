"""Checkpoints of one pass over a table: what has been learned and said so far, and how far it is.

The table itself is not kept: whoever goes on reads it from the start, and passes over the tasks
that were learned from. So it has to be the same table; its fingerprint is among the settings.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from taskmix.files import BLOCK, open_plain
from taskmix.tables.engine import Engine
from taskmix.tables.model import TableModel
from taskmix.tables.prepared import Prepared
from taskmix.tables.reading import Table
from taskmix.tables.recording import Recorder
from taskmix.tables.rivals import Rival
from taskmix.tables.saving import model_arrays, model_to_json
from taskmix.training.checkpoints import Broken, Checkpoint, Checkpoints, newest_common
from taskmix.training.watch import Stopped, Watch

RECORDS, RIVAL = "records ", "rival "
UNUSABLE = (Broken, ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError)
"""What a checkpoint of somebody else may make of the parts that it is for."""


@dataclasses.dataclass
class Moment:
    """How far a pass over a table has come, at the end of a wave of tasks."""

    waves: int
    model: TableModel
    recorder: Recorder
    rivals: Sequence[Rival]

    def checkpoint(self) -> Checkpoint:
        arrays = model_arrays(self.model)
        arrays |= {RECORDS + name: own for name, own in self.recorder.arrays().items()}
        for rival in self.rivals:
            arrays |= {f"{RIVAL}{rival.name} {n}": own for n, own in rival.arrays().items()}
        return Checkpoint(self.waves, arrays, {"model": model_to_json(self.model)})


def moment_of(
    found: Checkpoint,
    prepared: Prepared,
    rivals: Sequence[Rival],
    model: Callable[[Mapping[str, Any], Mapping[str, np.ndarray]], TableModel],
) -> Moment:
    """What a checkpoint holds; ``rivals`` go on from it, too."""
    for rival in rivals:
        rival.restore(_named(found.arrays, f"{RIVAL}{rival.name} "))
    recorder = Recorder.restored(prepared.labels, prepared.target, _named(found.arrays, RECORDS))
    if set(recorder.rivals) != {rival.name for rival in rivals}:
        raise Broken("it was measured beside other rivals")
    recorder.rivals = {rival.name: recorder.rivals[rival.name] for rival in rivals}
    others = (RECORDS, RIVAL)
    own = {name: a for name, a in found.arrays.items() if not name.startswith(others)}
    return Moment(found.iteration, model(found.facts["model"], own), recorder, rivals)


def _named(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}


@dataclasses.dataclass
class Keeper:
    """Writes checkpoints of a pass over a table, and stops it when that is asked for."""

    checkpoints: Checkpoints
    minutes: float
    """Between two checkpoints."""
    waves: int
    """The same; 0: the clock alone decides."""
    keep: int
    watch: Watch
    say: Callable[[str], None]
    reached: int = 0
    """Waves that are safe on disk."""
    since: float = dataclasses.field(default_factory=time.monotonic)

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint in good order; None where there is none at all."""
        problems: list[str] = []
        found = newest_common([self.checkpoints], problems)
        for what in problems:
            self.say(f"checkpoint not used: {what}")
        self.reached = 0 if found is None else found[0].iteration
        self.checkpoints.forget_after(self.reached)
        self.checkpoints.prune(self.keep)
        return None if found is None else found[0]

    def unusable(self, found: Checkpoint, why: BaseException) -> ValueError:
        """A checkpoint that is whole, but is not one of this table and this learner."""
        return ValueError(
            f"The checkpoint of batch {found.iteration} in {self.checkpoints.path.parent} does "
            f"not fit this version or these settings ({why}); choose another folder."
        )

    def passed(self, moment: Moment, engine: Engine) -> None:
        """At the end of every wave. What takes long, such as to compile anew, comes after it."""
        asked = self.watch.asked
        late = (time.monotonic() - self.since) / 60 >= self.minutes
        many = 0 < self.waves <= moment.waves - self.reached
        if asked or late or many or engine.full:
            self.save(moment)
        self.watch.progressed()
        if asked:
            raise Stopped(asked, moment.waves)

    def save(self, moment: Moment) -> None:
        if moment.waves > self.reached:
            self.checkpoints.save(moment.checkpoint())
            self.checkpoints.prune(self.keep)
            self.reached, self.since = moment.waves, time.monotonic()


def fingerprint(table: Table, source: Any) -> dict[str, Any]:
    """What tells one table from another: of a file its bytes, of a frame all that is in it.

    Where the file lies makes no difference; rows that come live have none.
    """
    if not table.again:
        return {"live": True}
    digest = hashlib.sha256()
    if isinstance(source, str | Path):
        with open_plain(Path(source), follow=True) as file:
            while block := file.read(16 * BLOCK):
                digest.update(block)
        return {"file": Path(source).name, "sha256": digest.hexdigest()}
    for piece in table.pieces(table.names):
        digest.update(piece.frame.write_ipc_stream(None).getvalue())
    return {"columns": list(table.names), "sha256": digest.hexdigest()}
