import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.adaptation import Adaptation, BayesianHead
from taskmix.adaptation.gradient import Gradient
from taskmix.baselines import MAML, PerFamily
from taskmix.baselines.maml import MAMLState
from taskmix.learner import Told
from taskmix.models import MLP
from taskmix.tasks import Examples, Hints, TaskBatch

PARTS = {"model": MLP(hidden=(8,)), "adaptation": Adaptation(steps=1)}
LEARNER = PerFamily(Gradient(**PARTS), families=3)


def batch_of(*family: int) -> TaskBatch:
    x = jax.random.normal(jax.random.key(1), (len(family), 6, 1))
    examples = Examples.full(x, jnp.sin(x) * (1 + jnp.asarray(family)[:, None, None]))
    hints = Hints(jnp.asarray(family), jnp.asarray(False))
    return TaskBatch(examples, examples, hints)


def row(state, family):
    return jax.tree.map(lambda leaf: leaf[family], state)


def maml_of(state, family):
    """One family's parameters and optimiser as MAML has them."""
    one = row(state, family)
    return MAMLState(one.params, one.optimiser)


@pytest.fixture(scope="module")
def state():
    return LEARNER.init(jax.random.key(0), batch_of(0))


def assert_close(a, b):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-4, atol=1e-6), a, b)


def test_one_family_learns_as_maml_does(state):
    batch = batch_of(1, 1, 1)
    after, info = jax.jit(LEARNER.step)(state, batch, jax.random.key(2))
    expected, expected_info = jax.jit(MAML(**PARTS).step)(
        maml_of(state, 1), batch, jax.random.key(2)
    )
    assert_close(maml_of(after, 1), expected)
    assert_close((info.loss, info.error), (expected_info.loss, expected_info.error))


def test_mixed_batch_is_one_maml_step_per_family_on_its_own_tasks(state):
    batch = batch_of(0, 2, 0)
    after, _ = jax.jit(LEARNER.step)(state, batch, jax.random.key(2))
    for family, members in ((0, jnp.array([0, 2])), (2, jnp.array([1]))):
        support, query = jax.tree.map(lambda leaf, m=members: leaf[m], (batch.support, batch.query))
        own = TaskBatch(support, query)
        expected, _ = jax.jit(MAML(**PARTS).step)(maml_of(state, family), own, jax.random.key(2))
        assert_close(maml_of(after, family), expected)


def test_absent_family_stays_bit_for_bit(state):
    started, _ = jax.jit(LEARNER.step)(state, batch_of(0, 1, 2), jax.random.key(2))
    after, _ = jax.jit(LEARNER.step)(started, batch_of(0, 2, 2), jax.random.key(3))
    jax.tree.map(np.testing.assert_array_equal, row(after, 1), row(started, 1))


def test_prediction_is_that_of_the_told_family(state):
    batch = batch_of(2)
    task = row(batch.support, 0)
    hints = jax.tree.map(lambda leaf: leaf.reshape(()), batch.hints)
    prediction = jax.jit(LEARNER.predict)(state, task, task.x, hints)
    expected = jax.jit(MAML(**PARTS).predict)(maml_of(state, 2), task, task.x)
    np.testing.assert_allclose(prediction.mean, expected.mean, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(prediction.responsibilities, [0, 0, 1])


def test_without_hints_it_says_what_it_needs(state):
    assert LEARNER.told is Told.FAMILY
    with pytest.raises(ValueError, match="told the family"):
        LEARNER.step(state, batch_of(0).without_hints(), jax.random.key(0))


def test_no_family_is_an_error():
    with pytest.raises(ValueError, match="families is 0"):
        PerFamily(families=0)


@pytest.fixture(scope="module")
def kept():
    """Bayesian heads with reservoirs, after two batches."""
    head = BayesianHead(MLP(hidden=(6,), outputs=4, activation="tanh"), width=4)
    learner = PerFamily(head, families=3, reservoir=4, rehearsed=2, updates=2)
    step = jax.jit(learner.step)
    state = learner.init(jax.random.key(0), batch_of(0, 1, 2))
    for seed in range(2):
        state, _ = step(state, batch_of(0, 1, 2), jax.random.key(seed))
    return learner, step, state


def test_absent_family_keeps_parameters_optimiser_and_reservoir_bit_for_bit(kept):
    _, step, state = kept
    after, _ = step(state, batch_of(0, 2, 2), jax.random.key(3))
    jax.tree.map(np.testing.assert_array_equal, row(after, 1), row(state, 1))
    assert (row(after, 2).params.location != row(state, 2).params.location).any()


def test_tasks_of_other_families_change_no_bit_of_one(kept):
    _, step, state = kept
    batch = batch_of(0, 1, 1)
    x = batch.query.x.at[1:].add(3.0)
    other = dataclasses.replace(batch, query=dataclasses.replace(batch.query, x=x))
    after, changed = (step(state, one, jax.random.key(3))[0] for one in (batch, other))
    jax.tree.map(np.testing.assert_array_equal, row(after, 0), row(changed, 0))


def test_every_family_keeps_its_own_tasks(kept):
    """Targets are sin(x) times the number of the family and 1."""
    _, _, state = kept
    for family in range(3):
        reservoir = row(state, family).reservoir
        assert reservoir.offered == 2
        tasks = row(reservoir.tasks.query, reservoir.filled)
        np.testing.assert_allclose(tasks.y, jnp.sin(tasks.x) * (1 + family), rtol=1e-5)


def test_prediction_with_heads_knows_its_variance(kept):
    learner, _, state = kept
    task = row(batch_of(2).support, 0)
    hints = jax.tree.map(lambda leaf: leaf.reshape(()), batch_of(2).hints)
    prediction = jax.jit(learner.predict)(state, task, task.x, hints)
    assert (prediction.variance > prediction.noise).all()
