"""The front door for tables: rows in, predictions, regimes and alarms out."""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from taskmix.compiled import keep_programs
from taskmix.numerics import known_faults
from taskmix.tables.answers import TablePrediction, answer
from taskmix.tables.defaults import in_words, settings_for
from taskmix.tables.flow import Pass, chosen_for, labels_for, surveyed
from taskmix.tables.grouping import Splitter
from taskmix.tables.keeping import Keeper
from taskmix.tables.model import TableModel
from taskmix.tables.parameters import check
from taskmix.tables.prepared import Prepared
from taskmix.tables.problems import problem
from taskmix.tables.reading import Table, table_of
from taskmix.tables.result import TableResult
from taskmix.tables.saving import save
from taskmix.tables.schema import Schema, schema_of

LOG = logging.getLogger("taskmix")


class NotFittedError(ValueError, AttributeError):
    """Asked for what only a fitted learner has; scikit-learn's error of this name is the model."""


class TableLearner:
    """Learns from the tasks of a table, one after the other, and says when a new kind comes.

    A task is a group of rows: a day, a shop, a patient. Some of its rows are known (the support
    set), the others are predicted from them (the query).

    Parameters
    ----------
    task
        Column, or several, whose values together name the task of a row.
    target
        Column to predict. Columns may be made of others: ``"log(count)"``,
        ``"taken/capacity"``, ``"date:day"`` (also hour, week, month, year).
    time
        Column that gives the order of tasks, and of rows in a task; without it they come in
        the order of the table.
    inputs
        Columns to predict from; without it all but the target and the task.
    support
        Rows of a task that are known; by default a quarter of a task, at most 16.
    split
        ``"first"`` rows are known, ``"random"`` ones, or the name of a column that says so.
    kind
        ``"regression"``, ``"classification"``, or None: texts, and numbers of which there
        are only two, are classes.
    seed
        Decides what is random, also which rows are known.
    batch, updates
        Tasks per batch, and updates per batch; by default from the number of tasks.
    hidden
        Units of the hidden layers.
    settings
        Further settings of the ``OnlineMixture``.

    After a fit: ``chosen_`` (settings that were chosen), ``result_`` (of the last fit),
    ``labels_`` (classes, or None), ``n_features_in_`` (numbers per row).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> frame = {"shop": np.repeat(np.arange(8), 6), "hour": np.tile(np.arange(6), 8)}
    >>> frame["sold"] = frame["hour"] * 2.0 + frame["shop"] + rng.normal(size=48)
    >>> learner = TableLearner(task="shop", target="sold", support=3, hidden=(8,), batch=4)
    >>> learner = learner.set_params(settings={"capacity": 2, "reservoir": 8, "reference": 8})
    >>> result = learner.fit_online(frame, rivals=False)
    >>> result.tasks.height, learner.chosen_["batch"]
    (8, 4)
    """

    def __init__(
        self,
        task: str | Sequence[str] = "task",
        target: str = "target",
        time: str | None = None,
        inputs: Sequence[str] | None = None,
        support: int | None = None,
        split: str = "first",
        kind: str | None = None,
        seed: int = 0,
        batch: int | None = None,
        updates: int | None = None,
        hidden: tuple[int, ...] = (64, 64),
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.task = task
        self.target = target
        self.time = time
        self.inputs = inputs
        self.support = support
        self.split = split
        self.kind = kind
        self.seed = seed
        self.batch = batch
        self.updates = updates
        self.hidden = hidden
        self.settings = settings

    def fit_online(
        self,
        frame: Any,
        rivals: bool = True,
        progress: Callable[[str], None] | None = None,
        kept: Callable[[Table], Keeper | None] | None = None,
    ) -> TableResult:
        """Begin anew: predict every task of a table before learning from it.

        Parameters
        ----------
        frame
            Path of a CSV (compressed or not) or Parquet file, a frame of pandas, polars or
            pyarrow, or an iterator of rows (dictionaries) or of frames.
        rivals
            Whether to measure what one would try instead on the same tasks.
        progress
            Gets lines to show.
        kept
            Called when the table has been looked at: gives what writes checkpoints, and goes on
            from them. ``taskmix.run_table`` has one.

        Returns
        -------
        TableResult
            Error with interval, that of rivals, regimes, alarms, one row per task and prediction.
        """
        check(self.get_params())
        table = table_of(frame)
        known = None if self.split in ("first", "random") else self.split
        schema = schema_of(table, self.task, self.target, self.time, self.inputs, known)
        found = surveyed(table, schema)
        self.labels_ = labels_for(self.kind, schema, found, table.where)
        how = self.split if known is None else "column"
        chosen = chosen_for(found, self.support, how, self.batch, self.updates)
        chosen |= {
            "kind": "regression" if self.labels_ is None else "classification",
            "hidden": tuple(int(units) for units in self.hidden),
            "settings": settings_for(found.tasks, self.settings),
        }
        say = LOG.info if progress is None else progress
        size = "rows as they come" if found.rows is None else f"{found.rows} rows"
        of = "" if found.tasks is None else f", {found.tasks} tasks"
        say(f"{table.where}: {size}{of}; {in_words(chosen)}")
        split = Splitter(chosen["support"], how, int(self.seed))
        self.prepared_ = Prepared(schema, self.labels_, split)
        self.chosen_ = chosen
        return self._run(table, found, None, rivals, say, None if kept is None else kept(table))

    def fit(self, frame: Any, y: None = None) -> TableLearner:
        """``fit_online`` without rivals, as scikit-learn's estimators have it.

        Parameters
        ----------
        frame
            A table as in ``fit_online``.
        y
            Not used: the target is a column of the table.

        Returns
        -------
        TableLearner
            Itself.
        """
        self.fit_online(frame, rivals=False)
        return self

    def partial_fit(
        self, frame: Any, y: None = None, progress: Callable[[str], None] | None = None
    ) -> TableLearner:
        """Go on with more tasks of the same columns; ``result_`` is of these alone.

        Parameters
        ----------
        frame
            A table as in ``fit_online``.
        y
            Not used: the target is a column of the table.
        progress
            Gets lines to show.

        Returns
        -------
        TableLearner
            Itself.
        """
        if not hasattr(self, "model_"):
            self.fit_online(frame, rivals=False, progress=progress)
            return self
        table = table_of(frame)
        self._check_columns(table, self.prepared_.schema)
        found = surveyed(table, self.prepared_.schema)
        self._run(table, found, self.model_, False, LOG.info if progress is None else progress)
        return self

    def predict(self, support: Any, query: Any) -> TablePrediction:
        """Predict the rows of ``query`` from those of ``support`` with the same task.

        Nothing is learned. A task without a known row is an error.

        Parameters
        ----------
        support
            A table as in ``fit_online`` with known rows, of thousands of tasks if need be.
        query
            A table with the rows to predict; it needs no target.

        Returns
        -------
        TablePrediction
            Mean, interval, regime and novelty of each row of the query, in their order.
        """
        model = self._fitted()
        keep_programs()
        tables = table_of(support, "the support table"), table_of(query, "the query table")
        schema = dataclasses.replace(self.prepared_.schema, known=None, time=None)
        self._check_columns(tables[0], schema)
        self._check_columns(tables[1], dataclasses.replace(schema, target=None))
        return answer(model, dataclasses.replace(self.prepared_, schema=schema), *tables)

    def save(self, path: str | Path) -> Path:
        """Write everything that was learned into a folder; ``taskmix.load`` reads it.

        Parameters
        ----------
        path
            Folder to create.

        Returns
        -------
        Path
            The folder.
        """
        self._fitted()
        return save(self, Path(path))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name, as scikit-learn asks for them.

        Parameters
        ----------
        deep
            Makes no difference: no parameter is an estimator with parameters of its own.

        Returns
        -------
        dict of str to anything
            What the learner was made with.
        """
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> TableLearner:
        """Change parameters; an unknown name is an error.

        Parameters
        ----------
        **params
            New values by name.

        Returns
        -------
        TableLearner
            Itself.
        """
        for name, value in params.items():
            if name not in self._names():
                raise ValueError(
                    f"TableLearner has no parameter {name!r}; it has {', '.join(self._names())}."
                )
            setattr(self, name, value)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        """What scikit-learn's ``check_is_fitted`` asks."""
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks before it checks an estimator: this one takes tables."""
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            input_tags=InputTags(two_d_array=False, string=True, allow_nan=True),
            no_validation=True,
        )

    def __repr__(self) -> str:
        usual = {
            name: given.default
            for name, given in inspect.signature(type(self).__init__).parameters.items()
        }
        changed = {n: v for n, v in self.get_params().items() if v != usual[n]}
        return f"TableLearner({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    @classmethod
    def _names(cls) -> list[str]:
        return list(inspect.signature(cls.__init__).parameters)[1:]

    def _run(
        self,
        table: Table,
        found: Any,
        model: TableModel | None,
        rivals: bool,
        say: Callable[[str], None],
        keeper: Keeper | None = None,
    ) -> TableResult:
        keep_programs()
        for fault in known_faults():
            LOG.warning(fault)
        over = Pass(self.prepared_, self.chosen_, int(self.seed), rivals, say)
        self.model_, self.result_ = over.run(table, found, model, keeper)
        self.n_features_in_ = self.model_.encoding.width
        return self.result_

    def _fitted(self) -> TableModel:
        if not hasattr(self, "model_"):
            raise NotFittedError("This TableLearner is not fitted yet; call fit_online first.")
        return self.model_

    @staticmethod
    def _check_columns(table: Table, schema: Schema) -> None:
        for name in schema.sources:
            if name not in table.names:
                raise problem(table.where, "there is no such column, but it was learned.", name)
