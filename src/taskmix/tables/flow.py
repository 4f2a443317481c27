"""A table from end to end: read, prepare, predict, learn, record."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from taskmix.names import counted
from taskmix.tables.defaults import (
    MOST_AT_ONCE,
    MOST_QUERY,
    MOST_SUPPORT,
    learner_for,
    pace_for,
    rows_for,
    support_for,
)
from taskmix.tables.encoding import encoding_for
from taskmix.tables.engine import Engine
from taskmix.tables.grouping import LeftOut, RowTask, tasks_of, waves
from taskmix.tables.keeping import UNUSABLE, Keeper, Moment, moment_of
from taskmix.tables.model import TableModel
from taskmix.tables.packing import BatchShape
from taskmix.tables.prepared import Prepared
from taskmix.tables.problems import problem
from taskmix.tables.reading import Table
from taskmix.tables.recording import Recorder
from taskmix.tables.result import TableResult
from taskmix.tables.rivals import Rival
from taskmix.tables.rivals import rivals as all_rivals
from taskmix.tables.saving import model_from_json
from taskmix.tables.scaling import Scale
from taskmix.tables.schema import Schema
from taskmix.tables.survey import Survey, of_live, survey

Say = Callable[[str], None]
LINES = 10
"""Progress lines of a table whose number of tasks is known."""
EVERY = 1000
"""Tasks between two lines where it is not."""


def surveyed(table: Table, schema: Schema) -> Survey:
    """Its size and order; of a live table no more than the first rows say."""
    if table.again:
        return survey(table, schema)
    first = next(table.pieces(schema.sources))
    return of_live(schema.prepared(first, table.where))


def labels_for(
    kind: str | None, schema: Schema, found: Survey, where: str
) -> tuple[str, ...] | None:
    """Labels if the target is one of classes (asked for, or guessed), else None.

    Texts are classes, and so are numbers of which there are two different ones.
    """
    assert schema.target is not None
    holds, name = schema.target.kind(schema.kinds).name, schema.target.name
    if kind is None:
        two = found.labels is not None and len(found.labels) == 2
        kind = "classification" if holds == "text" or two else "regression"
    if kind == "regression":
        if holds != "number":
            what = "dates" if holds == "moment" else "texts"
            raise problem(where, f"the targets are {what}; regression needs numbers.", name)
        return None
    if found.labels is None:
        raise problem(
            where, "there are more than 100 different labels; is this the target column?", name
        )
    if len(found.labels) < 2:
        only = f"the only label is {found.labels[0]!r}" if found.labels else "all are missing"
        raise problem(where, f"{only}; classification needs at least two.", name)
    return found.labels


def model_for(
    wave: Sequence[RowTask], prepared: Prepared, pace: Mapping[str, Any], seed: int
) -> TableModel:
    """A model that has learned nothing, with shapes and rules from the first tasks."""
    rows = np.concatenate([side.x for task in wave for side in (task.support, task.query)])
    encoding = encoding_for(rows, [kind.name for kind in prepared.schema.input_kinds()])
    classes = len(prepared.labels or ())
    longest = max(len(task.query.x) for task in wave)
    support = min(prepared.split.support, MOST_SUPPORT)
    if prepared.split.how == "column":
        support = rows_for(max(len(task.support.x) for task in wave), MOST_SUPPORT)
    learner = learner_for(
        encoding.width, classes, pace["updates"], pace["hidden"], pace["settings"]
    )
    shape = BatchShape(pace["batch"], support, rows_for(longest, MOST_QUERY))
    engine = Engine(learner, shape, encoding.width, bool(classes), seed)
    engine.begin()
    return TableModel(encoding, Scale.begin(1), engine)


def chosen_for(
    found: Survey, support: int | None, split: str, batch: int | None, updates: int | None
) -> dict[str, Any]:
    """What the user gave, or else what the size of the data suggests."""
    pace = pace_for(found.tasks)
    return {
        "support": support_for(found) if support is None else int(support),
        "split": split,
        "batch": pace["batch"] if batch is None else int(batch),
        "updates": pace["updates"] if updates is None else int(updates),
    }


@dataclasses.dataclass
class Pass:
    """One pass over a table, with or without rivals."""

    prepared: Prepared
    pace: Mapping[str, Any]
    seed: int
    compare: bool
    say: Say

    def run(
        self, table: Table, found: Survey, model: TableModel | None, keeper: Keeper | None = None
    ) -> tuple[TableModel, TableResult]:
        """Predict every task, then learn from it; a model that is given goes on learning.

        With a ``keeper`` it goes on where its newest checkpoint was written.
        """
        left = LeftOut()
        recorder = Recorder(self.prepared.labels, target=self.prepared.target)
        classes = len(self.prepared.labels or ())
        rivals = all_rivals(classes, self.seed) if self.compare else []
        tasks = tasks_of(self.prepared.blocks(table, found), self.prepared.split, left)
        begun = None if keeper is None else self._begun(keeper, rivals)
        if begun is not None:
            model, recorder = begun.model, begun.recorder
            self.say(f"goes on after {len(recorder.names)} tasks")
        told, done = -1, 0 if begun is None else begun.waves
        every = enumerate(waves(tasks, self.pace["batch"], MOST_AT_ONCE), start=1)
        for number, wave in every:
            if number <= done:
                continue
            if model is None:
                model = model_for(wave, self.prepared, self.pace, self.seed)
                self.say("compiling: up to a minute, less the next time")
            self._wave(wave, model, recorder, rivals)
            told, done = self._progress(recorder, found, told), number
            if keeper is not None:
                keeper.passed(Moment(number, model, recorder, rivals), model.engine)
        if model is None:
            raise problem(table.where, _nothing(left, self.prepared.target))
        if keeper is not None:
            keeper.save(Moment(done, model, recorder, rivals))
        return model, recorder.result(dataclasses.asdict(left), {**self.pace, **_shape(model)})

    def _begun(self, keeper: Keeper, rivals: Sequence[Rival]) -> Moment | None:
        """What a checkpoint holds of this pass, if there is one."""
        found = keeper.newest()
        if found is None:
            return None

        def model(described: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> TableModel:
            return model_from_json(described, self.pace, self.prepared, arrays)

        try:
            return moment_of(found, self.prepared, rivals, model)
        except UNUSABLE as error:
            raise keeper.unusable(found, error) from None

    def _wave(
        self,
        wave: Sequence[RowTask],
        model: TableModel,
        recorder: Recorder,
        rivals: Sequence[Rival],
    ) -> None:
        """Predict these tasks, and only then learn from them."""
        sides = [side for task in wave for side in (task.support, task.query)]
        model.encoding.meet(np.concatenate([side.x for side in sides]))
        seen = model.sides(wave)
        found = model.forecast(seen)
        recorder.predicted(wave, model.said(wave, seen, found))
        self._compared(rivals, recorder, model, wave, seen)
        for line in recorder.learned(wave, model.learn(wave, seen, found)):
            self.say(line)

    def _compared(
        self,
        rivals: Sequence[Rival],
        recorder: Recorder,
        model: TableModel,
        wave: Sequence[RowTask],
        seen: Sequence[Any],
    ) -> None:
        for rival in rivals:
            means = rival.predict(seen)
            recorder.rival(rival.name, wave, model.in_table_units(wave, means))
            rival.learn(seen)

    def _progress(self, recorder: Recorder, found: Survey, told: int) -> int:
        done = len(recorder.names)
        step = EVERY if found.tasks is None else max(found.tasks // LINES, 1)
        if done // step == told:
            return told
        of = f" of {found.tasks}" if found.tasks is not None else ""
        self.say(
            f"{done}{of} tasks: error so far {recorder.error_so_far():.4f}, "
            f"{counted(len(recorder.alarms), 'alarm')}, {counted(recorder.clusters, 'regime')}"
        )
        return done // step


def _shape(model: TableModel) -> dict[str, Any]:
    shape = model.engine.shape
    return {
        "inputs_per_row": model.encoding.width,
        "support_rows_learned_from": shape.support,
        "query_rows_learned_from": shape.query,
    }


def _nothing(left: LeftOut, target: str) -> str:
    """Why no task was left."""
    if left.tasks_too_small:
        return (
            f"no task has two rows with a target ({target!r}), one to know and one to predict; "
            f"group rows by another task column, or complete the targets."
        )
    return "no row has a task; there is nothing to learn from."
