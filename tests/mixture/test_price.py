"""What a candidate has to gain to be opened, and what is tried when nothing is."""

import dataclasses

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from taskmix.adaptation import BayesianHead
from taskmix.mixture import OnlineMixture
from taskmix.mixture.alarm import Alarm
from taskmix.mixture.growth import births
from taskmix.mixture.members import row
from taskmix.mixture.trial import EASIER, FORKED, FRESH, JOINED, Trial
from taskmix.models import MLP
from taskmix.streams import FunctionStream, consecutive

KEY = jax.random.key(0)
HEAD = BayesianHead(MLP(hidden=(4,), outputs=2, activation="tanh", init_scale=0.0), width=2)
LEARNER = OnlineMixture(HEAD, capacity=2, reservoir=4, reference=4, patience=100)
STREAM = FunctionStream(consecutive(("sinusoid",), (1,)), tasks=2, support=2, query=2)


def trial(worth: float, origin: int = FRESH, tries: int = 0) -> Trial:
    """A candidate that is better beyond doubt, by so many nats on each of its own tasks."""
    begun = Trial.begin(origin, 0, 0, tries)
    return eqx.tree_at(
        lambda one: (one.evidence, one.gained, one.weight),
        begun,
        (jnp.asarray(61.0), jnp.asarray(20 * worth), jnp.asarray(20.0)),
    )


def alarm(raised: bool, since: int = 0) -> Alarm:
    return dataclasses.replace(Alarm.begin(2, raised), since=jnp.asarray(since))


@pytest.mark.parametrize(
    ("price", "origin", "tries", "raised", "since"),
    [
        (6.0, FRESH, 0, False, 0),
        (9.0, FRESH, 10, False, 0),
        (12.0, FRESH, 20, False, 0),
        (12.0, FRESH, 500, False, 0),
        (8.0, EASIER, 0, False, 0),
        (8.0, EASIER, 0, True, 50),
        (12.0, EASIER, 10, False, 0),
        (6.0, FRESH, 20, True, 0),
        (3.0, FRESH, 0, True, 50),
        (0.6, FRESH, 0, True, 90),
        (0.5, FORKED, 0, True, 100),
        (0.5, FORKED, 0, True, 250),
    ],
)
def test_price(price, origin, tries, raised, since):
    on = alarm(raised, since)
    assert LEARNER.worthy(trial(1.01 * price, origin, tries), on)
    assert not LEARNER.worthy(trial(0.99 * price, origin, tries), on)
    assert LEARNER.worthy(trial(0.51 * price, origin, tries), on, share=0.5)


def test_without_certainty_nothing_is_worth_it():
    sure = trial(100.0)
    unsure = eqx.tree_at(lambda one: one.evidence, sure, jnp.asarray(59.0))
    assert LEARNER.worthy(sure, alarm(True))
    assert not LEARNER.worthy(unsure, alarm(True))


def test_a_candidate_that_is_to_join_clusters_is_never_opened():
    assert not LEARNER.worthy(trial(100.0, JOINED), alarm(False))


@pytest.fixture(scope="module")
def batch():
    return STREAM.batch(KEY, 0).without_hints()


@pytest.fixture(scope="module")
def after(batch):
    """The state after births were looked at, of one that had most tasks for its second cluster."""
    begin = LEARNER.init(KEY, batch)
    params = jax.tree.map(
        lambda leaf: leaf + jnp.arange(3.0).reshape(-1, *[1] * (leaf.ndim - 1)),
        begin.members.params,
    )
    begin = dataclasses.replace(
        begin,
        members=dataclasses.replace(begin.members, params=params),
        alive=jnp.ones(2, dtype=bool),
        age=jnp.full(2, 500.0),
        counts=jnp.array([3.0, 7.0, 90.0]),
    )

    @jax.jit
    def look(trial, alarm, taken, alive):
        state = dataclasses.replace(begin, trial=trial, alarm=alarm, alive=alive)
        return births(LEARNER, state, batch, taken, jnp.asarray(False), KEY)

    def looked(trial, alarm, taken=0.0, room=False):
        """The state before, that after, and whether one was born and the alarm raised."""
        alive = jnp.array([True, not room])
        return begin, *look(trial, alarm, jnp.full(2, taken), alive)

    return looked


def test_an_alarm_that_nothing_was_born_of_is_tried_by_a_copy_of_the_cluster_in_use(after):
    before, state, *_ = after(Trial.begin(tries=3), alarm(True, LEARNER.patience))
    assert state.trial.origin == FORKED
    assert state.trial.parent == 1
    assert state.trial.tries == 4
    chex.assert_trees_all_equal(row(state.members.params, 2), row(before.members.params, 1))


@pytest.mark.parametrize("since", [99, 101])
def test_it_is_tried_once(after, since):
    _, state, *_ = after(Trial.begin(tries=3), alarm(True, since))
    assert state.trial.origin == FRESH
    assert state.trial.tries == 3


def test_a_candidate_that_is_better_beyond_doubt_is_not_given_up_for_it(after):
    _, state, *_ = after(trial(0.1), alarm(True, LEARNER.patience))
    assert state.trial.origin == FRESH
    assert state.trial.evidence == 61.0


@pytest.mark.parametrize(
    ("taken", "share", "origin", "sounds"),
    [
        (0.9, 0.1, FRESH, True),
        (0.9, 0.1, FORKED, True),
        (0.4, 0.1, FRESH, False),
        (0.9, 0.4, FRESH, False),
        (0.9, 0.1, EASIER, False),
    ],
    ids=["most of the batch", "of a fork", "a part of it", "of all batches", "of a cluster"],
)
def test_a_birth_raises_the_alarm_if_most_tasks_are_suddenly_the_newborns(
    after, taken, share, origin, sounds
):
    ready = dataclasses.replace(
        trial(100.0, origin), share=jnp.asarray(share), age=jnp.asarray(100)
    )
    _, state, born, sounded = after(ready, alarm(False), taken, room=True)
    assert born
    assert (bool(sounded), bool(state.alarm.raised)) == (sounds, sounds)
