"""Numbers that are finite and still too large, labels that are none, weights that are NaN."""

import hashlib
import json
import shutil

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save
from tests.hostile.conftest import quietly

import taskmix
from taskmix.adaptation import Adaptation
from taskmix.baselines import MAML
from taskmix.experiments import METHODS
from taskmix.learner import unprotected
from taskmix.models import MLP
from taskmix.streams import FunctionStream, consecutive
from taskmix.tasks import check_batch
from taskmix.training import step
from taskmix.training.run_folder import fingerprint

LEARNER = MAML(MLP(hidden=(3,)), adaptation=Adaptation(steps=1))
STREAM = FunctionStream(consecutive(("linear",), (4,)), tasks=3, support=3, query=3)
BATCH = STREAM.batch(jax.random.key(0), 0).without_hints()
KEY = jax.random.key(1)
STATE = LEARNER.init(KEY, BATCH)


@pytest.mark.parametrize("value", [1e30, -1e30, 1e300, 3e38, np.nan, np.inf])
@pytest.mark.parametrize("position", [0, 1, 2], ids=["support_x", "support_y", "query_x"])
def test_prediction_from_numbers_beyond_all_bounds_is_refused(good, value, position):
    given = [np.zeros((2, 1)) for _ in range(3)]
    given[position][1] = value
    with pytest.raises(ValueError, match="scale it"):
        taskmix.load(good / "model").predict(*given)


@pytest.mark.parametrize("part", ["support", "query"])
@pytest.mark.parametrize("field", ["x", "y"])
@pytest.mark.parametrize("value", [1e30, 1e300])
def test_batch_of_numbers_beyond_all_bounds_is_refused(part, field, value):
    values = np.zeros((3, 3, 1))
    values[2, 1] = value
    batch = eqx.tree_at(lambda b: getattr(getattr(b, part), field), BATCH, values)
    with pytest.raises(ValueError, match=f"{part}.{field} of task 2, example 1 is .*scale it"):
        check_batch(batch)


@pytest.mark.parametrize("label", [-1, 2**31, 2**32, -(2**40)])
def test_label_that_is_none_is_refused_before_it_wraps_around(label):
    labels = np.zeros((3, 3), np.int64)
    batch = eqx.tree_at(lambda b: (b.support.y, b.query.y), BATCH, (labels, labels.copy()))
    check_batch(batch)
    labels[1, 2] = label
    with pytest.raises(ValueError, match=r"support\.y of task 1, example 2 is no class number"):
        check_batch(batch)


def overflowing(tasks) -> jnp.ndarray:
    """Within the bounds, and its gradient is not: the square of it, times itself."""
    return BATCH.support.x.at[jnp.asarray(tasks)].set(9e14)


@pytest.mark.parametrize("tasks", [[1], [0, 1, 2]])
def test_step_leaves_no_number_in_the_state_that_is_not_finite(tasks):
    x = overflowing(tasks)
    y = 0 * x + 9e14
    batch = eqx.tree_at(lambda b: (b.support.x, b.query.x, b.query.y), BATCH, (x, x, y))
    raw, _ = jax.jit(unprotected(LEARNER))(STATE, batch, KEY)
    finite = [bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(raw)]
    assert not all(finite), "the case shows nothing"
    kept, told = eqx.filter_jit(LEARNER.step)(STATE, batch, KEY)
    jax.tree.map(np.testing.assert_array_equal, kept, STATE)
    assert jnp.isnan(told.loss)
    after, info = step(LEARNER, STATE, batch, KEY)
    for leaf in jax.tree.leaves(after):
        assert jnp.all(jnp.isfinite(leaf))
    if len(tasks) == 3:
        assert jnp.isnan(info.loss)
        jax.tree.map(np.testing.assert_array_equal, after, STATE)
    else:
        assert jnp.isnan(info.error[1])
        assert jnp.isfinite(info.loss)


@pytest.mark.parametrize("value", [1e16, 1e20, 1e30, np.nan, np.inf])
@pytest.mark.parametrize("field", ["x", "y"])
def test_batch_that_would_be_refused_changes_no_bit_of_the_state(field, value):
    """A learner that keeps tasks would overflow later, when it learns from them again."""
    values = getattr(BATCH.support, field).at[1, 0].set(value)
    batch = eqx.tree_at(lambda b: getattr(b.support, field), BATCH, values)
    after, info = eqx.filter_jit(LEARNER.step)(STATE, batch, KEY)
    jax.tree.map(np.testing.assert_array_equal, after, STATE)
    assert jnp.isnan(info.loss)
    padding = eqx.tree_at(lambda b: b.support.mask, batch, BATCH.support.mask.at[1, 0].set(False))
    after, info = eqx.filter_jit(LEARNER.step)(STATE, padding, KEY)
    assert jnp.isfinite(info.loss)


@pytest.mark.parametrize("name", METHODS)
def test_step_of_every_method_is_protected(name):
    """By the decorator that protects MAML's; what it does, the contract of learners shows."""
    for rule in ("ours", "paper") if METHODS[name].paper else ("ours",):
        assert METHODS[name].rule(rule).learner.step.__code__ is MAML.step.__code__


def test_step_is_that_of_the_learner_where_nothing_is_wrong():
    after, info = step(LEARNER, STATE, BATCH, KEY)
    expected, told = eqx.filter_jit(LEARNER.step)(STATE, BATCH, KEY)
    jax.tree.map(np.testing.assert_array_equal, (after, info.loss), (expected, told.loss))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_not_loaded(good, value):
    path = good / "model" / "model.safetensors"
    arrays = load_file(path)
    name = next(name for name, array in arrays.items() if array.dtype == np.float32)
    arrays[name].flat[0] = value
    path.write_bytes(save(arrays))
    sums = json.loads((good / "model" / "checksums.json").read_text())
    sums["model.safetensors"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (good / "model" / "checksums.json").write_text(json.dumps(sums))
    with pytest.raises(ValueError, match="not finite"):
        taskmix.load(good / "model")


def test_card_has_no_markup_of_others(good):
    config = good / "run" / "config.json"
    hostile = "<script>x</script>\n# [a](b) `c` | **d**"
    told = {**json.loads(config.read_text()), "experiment": hostile, "continues": []}
    before = json.loads(config.read_text())
    told["continues"] = [fingerprint(before)]
    config.write_text(json.dumps(told))
    shutil.rmtree(good / "model")
    assert quietly("export", good / "run", "--out", good / "model") == (0, "")
    card = (good / "model" / "README.md").read_text()
    for mark in ("<", "](", "**", "\n# [", "| **"):
        assert mark not in card.replace("| family | held", "")
    assert "&#60;script&#62;" in card
