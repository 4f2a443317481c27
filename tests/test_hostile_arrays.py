"""Arrays that no one should give: refused with a clear error, or good enough to learn from."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmix.adaptation import Adaptation
from taskmix.baselines import MAML
from taskmix.experiments.group import shapes_of
from taskmix.experiments.sharing import Predictor
from taskmix.models import MLP
from taskmix.streams import FunctionStream, consecutive
from taskmix.tasks import check_batch

LEARNER = MAML(MLP(hidden=(3,)), adaptation=Adaptation(steps=1))
STREAM = FunctionStream(consecutive(("linear",), (4,)), tasks=2, support=3, query=3)
BATCH = STREAM.batch(jax.random.key(0), 0).without_hints()
KEY = jax.random.key(1)
STATE = LEARNER.init(KEY, BATCH)
# Traced once for all arrays of the same shapes and types.
STEP = jax.jit(LEARNER.step)
VALUES = (0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e38, -1e38, 1e-45)
DTYPES = ("float32", "float16", "float64", "int8", "uint8", "int64", "bool", "complex64")
SHAPES = st.lists(st.sampled_from([0, 1, 2, 3]), max_size=4)


@st.composite
def arrays(draw, good=None):
    """Of any shape and type, often the good one."""
    shape = tuple(good) if good and draw(st.booleans()) else tuple(draw(SHAPES))
    dtype = "float32" if draw(st.booleans()) else draw(st.sampled_from(DTYPES))
    values = draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=4))
    with np.errstate(all="ignore"):
        return np.resize(np.array(values), shape).astype(dtype)


def attempt(function, *given):
    """What it gives, or None and why it refuses."""
    try:
        return function(*given), ""
    except ValueError as refusal:
        return None, str(refusal)


@settings(max_examples=300)
@given(
    st.sampled_from(["support", "query"]),
    st.sampled_from(["x", "y", "mask"]),
    arrays(good=(2, 3, 1)),
)
def test_batch_is_refused_or_can_be_learned_from(part, field, array):
    batch = eqx.tree_at(lambda b: getattr(getattr(b, part), field), BATCH, array)
    checked, refusal = attempt(check_batch, batch)
    if checked is None:
        assert part in refusal or "Task" in refusal
        return
    checked = jax.tree.map(jnp.asarray, checked)
    if checked.support.x.shape == BATCH.support.x.shape and field != "mask":
        STEP.eval_shape(STATE, checked, KEY)
    for examples in (checked.support, checked.query):
        clean = examples.without_padding_values()
        assert np.isfinite(np.asarray(clean.x, dtype=float)).all()


@pytest.fixture(scope="module")
def predictor():
    return Predictor(LEARNER, STATE, {"example": shapes_of(STREAM), "families": ["linear"]})


@settings(max_examples=100, deadline=None)
@given(*(arrays(good=(3, 1)) for _ in range(3)))
def test_prediction_is_refused_or_has_the_shape_of_the_query(
    predictor, support_x, support_y, query
):
    prediction, refusal = attempt(predictor.predict, support_x, support_y, query)
    if prediction is None:
        assert "support_" in refusal or "query_x" in refusal
        return
    assert prediction.mean.shape == (len(query), 1)


@pytest.mark.parametrize(
    "wrong", [None, "text", [[1.0], [2.0, 3.0]], object(), {"a": 1}, [], 1.0, [["a"], ["b"]]]
)
def test_what_is_no_array_is_refused(predictor, wrong):
    good = np.zeros((2, 1), np.float32)
    for position in range(3):
        given = [good] * 3
        given[position] = wrong
        with pytest.raises(ValueError, match=r"support_|query_x|inhomogeneous"):
            predictor.predict(*given)


def test_giant_task_is_predicted(predictor):
    many = np.linspace(-1, 1, 200_000, dtype=np.float32)[:, None]
    assert predictor.predict(many, many, many).mean.shape == (200_000, 1)
