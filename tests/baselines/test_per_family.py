import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.adaptation import Adaptation
from taskmix.baselines import MAML, MAMLPerFamily
from taskmix.learner import Told
from taskmix.models import MLP
from taskmix.tasks import Examples, Hints, TaskBatch

PARTS = {"model": MLP(hidden=(8,)), "adaptation": Adaptation(steps=1)}
LEARNER = MAMLPerFamily(**PARTS, families=3)


def batch_of(*family: int) -> TaskBatch:
    x = jax.random.normal(jax.random.key(1), (len(family), 6, 1))
    examples = Examples.full(x, jnp.sin(x) * (1 + jnp.asarray(family)[:, None, None]))
    hints = Hints(jnp.asarray(family), jnp.asarray(False))
    return TaskBatch(examples, examples, hints)


def row(state, family):
    return jax.tree.map(lambda leaf: leaf[family], state)


@pytest.fixture(scope="module")
def state():
    return LEARNER.init(jax.random.key(0), batch_of(0))


def assert_close(a, b):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-4, atol=1e-6), a, b)


def test_one_family_learns_as_maml_does(state):
    batch = batch_of(1, 1, 1)
    after, info = jax.jit(LEARNER.step)(state, batch, jax.random.key(2))
    expected, expected_info = jax.jit(MAML(**PARTS).step)(row(state, 1), batch, jax.random.key(2))
    assert_close(row(after, 1), expected)
    assert_close((info.loss, info.error), (expected_info.loss, expected_info.error))


def test_mixed_batch_is_one_maml_step_per_family_on_its_own_tasks(state):
    batch = batch_of(0, 2, 0)
    after, _ = jax.jit(LEARNER.step)(state, batch, jax.random.key(2))
    for family, members in ((0, jnp.array([0, 2])), (2, jnp.array([1]))):
        support, query = jax.tree.map(lambda leaf, m=members: leaf[m], (batch.support, batch.query))
        own = TaskBatch(support, query)
        expected, _ = jax.jit(MAML(**PARTS).step)(row(state, family), own, jax.random.key(2))
        assert_close(row(after, family), expected)


def test_absent_family_stays_bit_for_bit(state):
    started, _ = jax.jit(LEARNER.step)(state, batch_of(0, 1, 2), jax.random.key(2))
    after, _ = jax.jit(LEARNER.step)(started, batch_of(0, 2, 2), jax.random.key(3))
    jax.tree.map(np.testing.assert_array_equal, row(after, 1), row(started, 1))


def test_prediction_is_that_of_the_told_family(state):
    batch = batch_of(2)
    task = row(batch.support, 0)
    hints = jax.tree.map(lambda leaf: leaf.reshape(()), batch.hints)
    prediction = jax.jit(LEARNER.predict)(state, task, task.x, hints)
    expected = jax.jit(MAML(**PARTS).predict)(row(state, 2), task, task.x)
    np.testing.assert_allclose(prediction.mean, expected.mean, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(prediction.responsibilities, [0, 0, 1])


def test_without_hints_it_says_what_it_needs(state):
    assert LEARNER.told is Told.FAMILY
    with pytest.raises(ValueError, match="told the family"):
        LEARNER.step(state, batch_of(0).without_hints(), jax.random.key(0))


def test_no_family_is_an_error():
    with pytest.raises(ValueError, match="families is 0"):
        MAMLPerFamily(families=0)
