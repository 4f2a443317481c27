"""The learner that the documentation writes is built and trained as it stands there."""

import functools
import importlib.util
import re
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from taskmix.adaptation import Adaptation
from taskmix.learner import Learner
from taskmix.models import MLP
from taskmix.streams import FunctionStream, consecutive
from taskmix.training import Settings, train

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-learner.md"


@pytest.fixture(scope="module")
def reptile(tmp_path_factory):
    """The module in the page's first block of Python."""
    source, *_ = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    path = tmp_path_factory.mktemp("docs") / "reptile.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("reptile", path)
    module = importlib.util.module_from_spec(spec)
    # Where dataclasses look for the module of a class.
    sys.modules["reptile"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["reptile"]


def test_learner_of_the_page_meets_the_protocol(reptile):
    assert isinstance(reptile.Reptile(), Learner)


def test_learner_of_the_page_learns(reptile):
    learner = reptile.Reptile(MLP(hidden=(16,)), adaptation=Adaptation(3, 0.05))
    stream = FunctionStream(consecutive(("linear",), (300,)), tasks=8)
    errors = []

    def observe(chunk):
        errors.append(np.mean(chunk.evaluation.error))

    train(learner, stream, [0], Settings(evaluate_every=300, test_tasks=50), observe)
    assert errors[-1] < 0.5 * errors[0]


def test_learner_of_the_page_refuses_a_bad_rate(reptile):
    with pytest.raises(ValueError, match="meta_rate is 0"):
        reptile.Reptile(meta_rate=0.0)


def test_one_step_of_reptile_goes_part_of_the_way(reptile):
    learner = reptile.Reptile(MLP(hidden=(4,)), adaptation=Adaptation(1, 0.1), meta_rate=1.0)
    batch = FunctionStream(consecutive(("linear",), (1,)), tasks=1).batch(jax.random.key(0), 0)
    state = learner.init(jax.random.key(1), batch)
    after, _ = jax.jit(learner.step)(state, batch, jax.random.key(2))
    support = jax.tree.map(lambda leaf: leaf[0], batch.support)
    adapt = jax.jit(functools.partial(learner.adaptation, learner.model, learner.likelihood))
    expected = adapt(state.params, support)
    for found, exact in zip(jax.tree.leaves(after.params), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-7)
