"""How two clusters become one: what the candidate learns from, and when it takes their place."""

import dataclasses

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.adaptation import BayesianHead
from taskmix.mixture import OnlineMixture
from taskmix.mixture.joining import joined, nearest, of_both
from taskmix.mixture.members import row, with_row
from taskmix.mixture.parting import half, parted
from taskmix.mixture.reference import Reference, Scores
from taskmix.mixture.trial import HARDER, JOINED, Trial
from taskmix.models import MLP
from taskmix.streams import FunctionStream, consecutive

KEY = jax.random.key(0)
HEAD = BayesianHead(MLP(hidden=(8,), outputs=4, activation="tanh", init_scale=0.0), width=4)
LEARNER = OnlineMixture(task_model=HEAD, capacity=3, reservoir=12, parting=5, reference=12)
STREAM = FunctionStream(consecutive(("sinusoid",), (1,)), tasks=12, support=3, query=4)
JOIN = jax.jit(lambda state, due=True: joined(LEARNER, state, jnp.asarray(due)))


def level(params, value: float):
    """The same cluster, whose tasks lie around another level."""
    return dataclasses.replace(params, location=params.location.at[-1].add(value))


@pytest.fixture(scope="module")
def state():
    """Three clusters: the first two are alike, the third expects other levels.

    Each keeps tasks of its own level in all places, the candidate is a copy of the first.
    """
    batch = STREAM.batch(KEY, 0).without_hints()
    state = LEARNER.init(KEY, batch)
    members = state.members
    for index, value in enumerate((0.0, 0.0, 9.0)):
        tasks = jax.tree.map(
            lambda part, value=value: dataclasses.replace(part, y=part.y + value),
            (batch.support, batch.query),
            is_leaf=lambda part: hasattr(part, "y"),
        )
        own = dataclasses.replace(batch, support=tasks[0], query=tasks[1])
        member = row(members, index)
        kept, _ = member.reservoir.offer(own, jnp.ones(12, dtype=bool), KEY)
        params = level(member.params, value)
        scores = Scores(jnp.full(12, -1.0 - index), jnp.full(12, -1.0 - index))
        member = dataclasses.replace(
            member,
            params=params,
            averaged=params,
            reservoir=kept,
            reference=Reference(kept, scores),
            updates=jnp.asarray(10.0 + index),
        )
        members = with_row(members, index, member)
    members = eqx.tree_at(
        lambda m: (m.params, m.averaged),
        members,
        jax.tree.map(lambda leaf: leaf.at[-1].set(leaf[0]), (members.params, members.averaged)),
    )
    return dataclasses.replace(
        state,
        members=members,
        alive=jnp.ones(3, dtype=bool),
        counts=jnp.array([4.0, 3.0, 2.0, 1.0]),
        age=jnp.full(3, 500.0),
    )


def trial(parent: int, partner: int, age: int = LEARNER.parting, origin: int = JOINED) -> Trial:
    begun = Trial.begin(origin, parent, partner)
    return eqx.tree_at(lambda one: one.age, begun, jnp.asarray(age))


def test_a_candidate_that_serves_both_takes_their_place(state):
    after = JOIN(dataclasses.replace(state, trial=trial(0, 1)))
    np.testing.assert_array_equal(after.alive, [True, False, True])
    np.testing.assert_array_equal(after.counts, [7.0, 0.0, 2.0, 1.0])
    chex.assert_trees_all_equal(row(after.members.params, 0), row(state.members.params, 3))
    assert after.members.updates[0] == 11.0
    scores = after.members.reference.scores.whole[0]
    np.testing.assert_array_equal(scores, jnp.tile(jnp.array([-1.0, -2.0]), 6))
    chex.assert_trees_all_equal(row(after.members, 2), row(state.members, 2))


def test_clusters_of_different_tasks_stay(state):
    before = dataclasses.replace(state, trial=trial(0, 2))
    chex.assert_trees_all_equal(JOIN(before), before)


@pytest.mark.parametrize(
    "other",
    [trial(0, 1, age=4), trial(0, 1, age=6), trial(0, 1, origin=HARDER), trial(0, 0)],
    ids=["before it has learned", "afterwards", "a copy that parts", "alone"],
)
def test_nothing_happens_at_any_other_moment(state, other):
    before = dataclasses.replace(state, trial=other)
    chex.assert_trees_all_equal(JOIN(before), before)


def test_a_cluster_that_is_gone_is_not_joined(state):
    before = dataclasses.replace(state, trial=trial(0, 1), alive=jnp.array([True, False, True]))
    chex.assert_trees_all_equal(JOIN(before), before)


def test_the_partner_is_who_explains_the_kept_tasks_best(state):
    mature = jnp.ones(3, dtype=bool)
    assert nearest(LEARNER, state, jnp.asarray(0), mature) == 1
    assert nearest(LEARNER, state, jnp.asarray(1), mature) == 0
    assert nearest(LEARNER, state, jnp.asarray(0), jnp.array([True, False, True])) == 2


def test_it_learns_from_what_both_keep(state):
    before = dataclasses.replace(state, trial=trial(0, 2, age=1))
    after = parted(LEARNER, before, jnp.asarray(True))
    kept = row(after.members.reservoir, 3).tasks.query.y
    of = [row(state.members.reservoir, index).tasks.query.y for index in (0, 2)]
    np.testing.assert_array_equal(kept[::2], of[0][::2])
    np.testing.assert_array_equal(kept[1::2], of[1][1::2])


def test_both_halves_stand_for_all_that_was_offered(state):
    one, other = (row(state.members.reservoir, index) for index in (0, 2))
    assert of_both(one, other.drop(jnp.arange(12) < 6)).offered == 12 + 6


def test_of_a_batch_it_learns_from_all_of_its_parents_tasks():
    ahead, ranks, shares = map(jnp.array, ([5.0, 1.0], [0.2, 0.9], [0.9, 0.7]))
    np.testing.assert_allclose(half(trial(0, 1, age=2), ahead, ranks, shares), shares)
