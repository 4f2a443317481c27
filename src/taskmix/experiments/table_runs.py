"""A table from a file to a folder of results, and from a saved learner to a file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from taskmix.estimator import TableLearner
from taskmix.experiments.group import Keeping
from taskmix.files import apart, explained, inside
from taskmix.tables.example import example_table
from taskmix.tables.keeping import Keeper, fingerprint
from taskmix.tables.reading import Table, table_of
from taskmix.tables.result import TableResult
from taskmix.tables.saving import is_table, load
from taskmix.training import RunFolder
from taskmix.training.checkpoints import Checkpoints
from taskmix.training.lock import Refused, owning
from taskmix.training.run_folder import as_json, claim
from taskmix.training.watch import Request, Stopped, StopRequest, Watch, abandon, watching


def run_table(
    source: Any,
    out: str | Path,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
    keeping: Keeping | None = None,
    request: Request | None = None,
    begun: Callable[[], None] | None = None,
    **columns: Any,
) -> TableResult:
    """Fit a ``TableLearner`` and write all that came out into a folder, as ``taskmix run table``.

    If it is interrupted, the same call goes on from its last checkpoint and ends with the same
    bits. Rows that come live cannot be read again, so there nothing is kept on the way.

    Parameters
    ----------
    source
        A table as in ``TableLearner.fit_online``; None for an example.
    out
        Folder for result.json, tasks.csv, predictions.csv, result.png and, in ``model``, the
        learner; or one to go on in.
    seed
        Decides what is random, also which rows are known.
    progress
        Gets lines to show.
    keeping
        How often checkpoints are written.
    request
        Something that can ask the run to stop in good order.
    begun
        Called when the table has been looked at, before anything is written.
    **columns
        Further parameters of ``TableLearner``: at least ``task`` and ``target``.

    Returns
    -------
    TableResult
        Error with interval, that of rivals, regimes, alarms.

    Examples
    --------
    >>> run_table({"shop": [1, 1], "sold": [2, 3]}, "runs/shops", task="shop")
    Traceback (most recent call last):
    ValueError: No target column is given; the table has shop, sold.
    """
    if source is None:
        if columns.get("target"):
            raise ValueError("Columns are given but no table; give the file of the table first.")
        example = example_table()
        if progress is not None:
            progress(f"no file is given, so this is an example: {example.name}")
        source, columns = example.frame, example.columns
    for name in ("task", "target"):
        if not columns.get(name):
            known = ", ".join(table_of(source).names[:20])
            raise ValueError(f"No {name} column is given; the table has {known}.")
    learner = TableLearner(**columns, seed=seed)
    say = progress or (lambda line: None)
    folder, keeping = Path(out), keeping or Keeping()
    with contextlib.ExitStack() as stack:

        def kept(table: Table) -> Keeper | None:
            claim(folder)
            if begun is not None:
                begun()
            stack.enter_context(owning(folder))
            config = {"experiment": "table", "table": fingerprint(table, source)}
            config["learner"] = as_json(learner.get_params())
            if not table.again and inside(folder, "result.json").exists():
                raise Refused(f"{folder} holds results of rows that came live; choose another.")
            runs = RunFolder.open(folder, config, keeping.accept).runs
            keeper = _keeper(folder, runs, keeping, request or StopRequest(), say)
            stack.enter_context(watching(keeper.watch))
            return keeper if table.again else None

        result = learner.fit_online(source, progress=progress, kept=kept)
        result.save(folder)
        learner.save(inside(folder, "model"))
    return result


def _keeper(
    folder: Path,
    runs: tuple[str, ...],
    keeping: Keeping,
    request: Request,
    say: Callable[[str], None],
) -> Keeper:
    def leave(signum: int) -> None:
        """It compiles, or computes for long: what was checkpointed before is all there is."""
        abandon(Stopped(signum, keeper.reached))

    keeper = Keeper(
        Checkpoints(folder / "checkpoints", runs),
        keeping.checkpoint_minutes,
        keeping.checkpoint_iterations,
        keeping.keep,
        Watch(request, say, leave),
        say,
    )
    return keeper


def is_table_model(folder: Path) -> bool:
    """Whether a folder holds a learner of tables, or is that of a run with one.

    >>> is_table_model(Path("runs/none"))
    False
    """
    return is_table(folder) or is_table(folder / "model")


def predict_table(
    model: str | Path, support: Any, query: Any, out: str | Path, level: float = 0.9
) -> Path:
    """Predict by a saved learner, into a CSV or Parquet file, as ``taskmix predict`` does.

    Parameters
    ----------
    model
        Folder that ``run_table`` or ``TableLearner.save`` wrote.
    support, query
        Known rows of tasks, and rows to predict, as in ``TableLearner.predict``.
    out
        File to write, one row per row of the query; not one of those that are read, nor in the
        folder of the model.
    level
        Probability that an interval should hold the target.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> predict_table("runs/none", "known.csv", "asked.csv", "said.csv")
    Traceback (most recent call last):
    ValueError: runs/none ...
    """
    path, out = Path(model), apart(Path(out), model, support, query)
    if not is_table(path) and is_table(path / "model"):
        path = path / "model"
    found = load(path).predict(support, query).frame(level)
    with explained(f"write {out}"):
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("wb") as file:
            if out.suffix == ".parquet":
                found.write_parquet(file)
            else:
                found.write_csv(file)
    return out
