"""Tables go through everything but the mixture, which takes long to compile."""

import numpy as np
import polars as pl
import pytest

from taskmix.adaptation import BayesianHead
from taskmix.baselines import SingleModel
from taskmix.likelihood import Categorical, Gaussian
from taskmix.models import MLP


def small_learner(width, classes, updates, hidden, settings):
    head = BayesianHead(
        MLP(width, (3,), 2, activation="tanh", init_scale=0.0),
        likelihood=Categorical() if classes else Gaussian(),
        outputs=max(classes, 1),
        inputs=0,
        width=2,
    )
    return SingleModel(head, reservoir=4, rehearsed=2)


@pytest.fixture
def quick(monkeypatch):
    """One small Bayesian head in the place of the mixture."""
    monkeypatch.setattr("taskmix.tables.flow.learner_for", small_learner)
    monkeypatch.setattr("taskmix.tables.saving.learner_for", small_learner)


def rows(tasks=12, each=6, seed=0):
    """A frame of plain numbers: tasks t0, t1 and so on, in order."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, tasks * each))
    level = np.repeat(rng.normal(size=tasks), each)
    return pl.DataFrame(
        {
            "task": np.repeat([f"t{number}" for number in range(tasks)], each),
            "when": np.arange(tasks * each),
            "a": a,
            "b": b,
            "y": level + 2 * a - b + 0.1 * rng.normal(size=tasks * each),
        }
    )


@pytest.fixture
def frame():
    return rows()
