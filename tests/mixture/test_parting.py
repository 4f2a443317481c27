"""How a copy parts from its parent: which tasks it learns from."""

import dataclasses

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.adaptation import BayesianHead
from taskmix.likelihood import Categorical
from taskmix.mixture import OnlineMixture
from taskmix.mixture.explaining import description, judge
from taskmix.mixture.members import row, with_row
from taskmix.mixture.parting import half, is_parting, parted
from taskmix.mixture.trial import EASIER, FRESH, HARDER, Trial
from taskmix.models import MLP
from taskmix.streams import FunctionStream, interleaved
from taskmix.tasks import Examples, TaskBatch

KEY = jax.random.key(0)
HEAD = BayesianHead(MLP(hidden=(8,), outputs=4, activation="tanh", init_scale=0.0), width=4)
LEARNER = OnlineMixture(task_model=HEAD, capacity=2, reservoir=12, parting=5, reference=8)
PARTED = jax.jit(lambda state, due=True: parted(LEARNER, state, jnp.asarray(due)))
STREAM = FunctionStream(interleaved(("polynomial", "sinusoid"), 2), tasks=10, support=3, query=4)


def copy(origin: int, age: int) -> Trial:
    trial = Trial.begin(origin, 1)
    return eqx.tree_at(lambda trial: trial.age, trial, jnp.asarray(age))


@pytest.fixture(scope="module")
def state():
    """Cluster 1 keeps ten tasks in twelve places; the candidate is another network."""
    batch = STREAM.batch(KEY, 0).without_hints()
    state = LEARNER.init(KEY, batch)
    kept, _ = row(state.members.reservoir, 1).offer(batch, jnp.ones(10, dtype=bool), KEY)
    reservoir = with_row(state.members.reservoir, 1, kept)
    return eqx.tree_at(lambda state: state.members.reservoir, state, reservoir)


def leads(state):
    """Score of each kept task of the parent, and how far the candidate is ahead on it."""
    tasks = row(state.members.reservoir, 1).tasks
    parent, candidate = (
        judge(LEARNER, row(state.members.averaged, index), tasks).whole for index in (1, 2)
    )
    return np.asarray(parent)[:10] / 7, np.asarray(candidate - parent)[:10]


def chosen(state, origin, age):
    after = PARTED(dataclasses.replace(state, trial=copy(origin, age)))
    return after, np.asarray(row(after.members.reservoir, LEARNER.capacity).filled)


@pytest.mark.parametrize("origin", [HARDER, EASIER])
def test_a_copy_begins_with_the_harder_or_the_easier_half(state, origin):
    scores, _ = leads(state)
    _, filled = chosen(state, origin, 0)
    harder = scores < np.median(scores)
    np.testing.assert_array_equal(filled[:10], harder if origin == HARDER else ~harder)
    assert filled[:10].sum() == 5
    assert not filled[10:].any()


def test_it_goes_on_with_the_tasks_on_which_it_is_further_ahead(state):
    _, ahead = leads(state)
    after, filled = chosen(state, HARDER, 2)
    np.testing.assert_array_equal(filled[:10], ahead > ahead.mean())
    np.testing.assert_allclose(after.trial.centre, ahead.mean(), rtol=1e-4)


def test_in_the_end_it_keeps_the_tasks_that_it_explains_better(state):
    _, ahead = leads(state)
    _, filled = chosen(state, HARDER, LEARNER.parting - 1)
    np.testing.assert_array_equal(filled[:10], ahead > 0)


SEEING = BayesianHead(
    MLP(hidden=(8,), outputs=4, init_scale=0.0), Categorical(inputs=lambda x: x), outputs=2, width=4
)
LOOKING = dataclasses.replace(LEARNER, task_model=SEEING, parting_updates=1)


def test_where_inputs_are_described_they_say_which_tasks_are_whose():
    """Labels are told as well by either; inputs of every other task lie where the copy's do."""
    x = jax.random.normal(KEY, (10, 6, 1)) + 10.0 * (jnp.arange(10) % 2)[:, None, None]
    examples = Examples.full(x, jnp.broadcast_to(jnp.arange(6) % 2, (10, 6)))
    batch = TaskBatch(examples, examples)
    state = LOOKING.init(KEY, batch)
    tasks = description(LOOKING, batch)
    every, odd = jnp.ones(10), (jnp.arange(10) % 2).astype(float)
    weights = jnp.stack([0 * every, every, odd, every], axis=1)
    kept, _ = row(state.members.reservoir, 1).offer(batch, jnp.ones(10, dtype=bool), KEY)
    state = dataclasses.replace(
        state,
        inputs=state.inputs.observe(tasks, weights),
        members=eqx.tree_at(
            lambda members: members.reservoir,
            state.members,
            with_row(state.members.reservoir, 1, kept),
        ),
        trial=copy(HARDER, 2),
    )
    after = jax.jit(lambda state: parted(LOOKING, state, jnp.asarray(True)))(state)
    filled = np.asarray(row(after.members.reservoir, LOOKING.capacity).filled)[:10]
    np.testing.assert_array_equal(filled, np.arange(10) % 2 == 1)


@pytest.mark.parametrize(("origin", "age"), [(FRESH, 0), (HARDER, LEARNER.parting)])
def test_who_does_not_part_is_left_as_it_is(state, origin, age):
    before = dataclasses.replace(state, trial=copy(origin, age))
    assert not is_parting(LEARNER, before)
    chex.assert_trees_all_equal(PARTED(before), before)


def test_nothing_happens_before_it_is_due(state):
    before = dataclasses.replace(state, trial=copy(HARDER, 0))
    chex.assert_trees_all_equal(PARTED(before, False), before)


def test_the_parent_and_its_sample_stay_as_they_are(state):
    after, _ = chosen(state, EASIER, 1)
    chex.assert_trees_all_equal(
        row(after.members, jnp.arange(2)), row(state.members, jnp.arange(2))
    )


@pytest.mark.parametrize(
    ("origin", "age", "expected"),
    [(HARDER, 0, [0.9, 0.0, 0.0]), (EASIER, 0, [0.0, 0.8, 0.7]), (EASIER, 3, [0.9, 0.0, 0.7])],
)
def test_of_a_batch_it_learns_from_its_parents_tasks_by_the_same_rule(origin, age, expected):
    """Leads of 5, 1 and 3 beside a centre of 2; responsibilities of the parent are weights."""
    trial = eqx.tree_at(lambda trial: trial.centre, copy(origin, age), jnp.asarray(2.0))
    ahead, ranks, shares = map(jnp.array, ([5.0, 1, 3], [0.2, 0.5, 0.9], [0.9, 0.8, 0.7]))
    np.testing.assert_allclose(half(trial, ahead, ranks, shares), expected)
