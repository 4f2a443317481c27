"""taskmix learns to learn from a stream of small tasks whose kind changes without notice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskmix.estimator import TableLearner as TableLearner
    from taskmix.experiments.sharing import Predictor

__version__ = "0.1.0"


def load(folder: str | Path) -> Predictor | TableLearner:
    """What ``taskmix export`` or ``TableLearner.save`` wrote; nothing in it is run as code."""
    # Imported here, so that the help of the command line need not wait for JAX.
    from taskmix.tables import saving

    if saving.is_table(Path(folder)):
        return saving.load(Path(folder))
    from taskmix.experiments.sharing import load

    return load(folder)


def __getattr__(name: str) -> Any:
    """Names that are imported when they are first asked for: importing taskmix is instant."""
    if name == "TableLearner":
        from taskmix.estimator import TableLearner

        return TableLearner
    raise AttributeError(f"module 'taskmix' has no attribute {name!r}")
