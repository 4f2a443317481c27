"""Models from folders, whoever wrote them."""

from __future__ import annotations

from pathlib import Path

from taskmix.estimator import TableLearner
from taskmix.experiments import sharing
from taskmix.experiments.sharing import Predictor
from taskmix.tables import saving


def load(folder: str | Path) -> Predictor | TableLearner:
    """What ``export`` or ``TableLearner.save`` wrote, or a ``ValueError`` if it is neither.

    Nothing in the folder is run as code: it can name parts that are registered, and no others.

    Parameters
    ----------
    folder
        What ``export``, ``taskmix export`` or ``TableLearner.save`` wrote.

    Returns
    -------
    Predictor or TableLearner
        A learner and its state, ready to predict; a table learner can learn on, too.

    Examples
    --------
    >>> import tempfile
    >>> import taskmix as tm
    >>> stream = tm.streams.regression(("linear",), (3,), tasks=2)
    >>> learner = tm.MAML(tm.MLP(hidden=(4,)), adaptation=tm.Adaptation(steps=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = tm.fit(learner, stream, out=f"{folder}/run")
    ...     tm.export(f"{folder}/run", f"{folder}/model")
    ...     predictor = tm.load(f"{folder}/model")
    >>> predictor.predict([[0.0]], [[0.0]], [[3.0]]).mean.shape
    (1, 1)
    """
    if saving.is_table(Path(folder)):
        return saving.load(Path(folder))
    return sharing.load(folder)
