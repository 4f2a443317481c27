"""The online mixture that is told of changes and never grows up, and its settings."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.mixture.online.handmade import HEAD, SMALL, Counted, drawn, only_key

from taskmix.baselines import SingleModel
from taskmix.mixture import OnlineMixture
from taskmix.tasks import Hints

TOLD = OnlineMixture(
    **SMALL,
    reservoir=64,
    held_out=0.0,
    youth=1,
    maturity=10**6,
    boundaries=True,
    patience=30,
    certainty=5.0,
    worth=0.1,
)
begin_told = jax.jit(TOLD.init)


@pytest.fixture(scope="module")
def told(same_draws):
    return Counted(TOLD)


def hinted(batch, boundary: bool):
    hints = Hints(jnp.zeros(batch.query.mask.shape[0], dtype=int), jnp.asarray(boundary))
    return dataclasses.replace(batch, hints=hints)


def run(step, state, batches, boundaries=()):
    """The last state and, of each step, whether an alarm began, was on, and a cluster opened."""
    history = []
    for iteration, batch in enumerate(batches):
        state, info = step(state, hinted(batch, iteration in boundaries))
        history.append((bool(info.alarm), bool(state.alarm.raised), bool(info.spawned)))
    return state, np.array(history).T


def test_one_cluster_learns_what_a_single_model_learns(same_draws, told, batches):
    """To rounding, as long as it is young and each batch has at least as many tasks as are
    rehearsed; what a reservoir draws depends on the key, and is made the same here."""
    settings = {"reservoir": 64, "rehearsed": 4, "meta_rate": TOLD.meta_rate}
    single = SingleModel(HEAD, **settings)
    mixture, _ = run(told, begin_told(only_key(), batches[0]), batches[:25])
    # A mixture keeps one half of its key for the candidate.
    alone = jax.jit(single.init)(jax.random.split(only_key())[0], batches[0])
    learn = jax.jit(single.step)
    for batch in batches[:25]:
        alone, _ = learn(alone, batch, only_key())
    first = jax.tree.map(lambda leaf: leaf[0], (mixture.members.params, mixture.members.optimiser))
    assert mixture.alive.tolist() == [True, False, False, False]
    chex.assert_trees_all_close(first, (alone.params, alone.optimiser), rtol=1e-3, atol=1e-4)


@pytest.fixture(scope="module")
def long_told(told, batches):
    """Sinusoids, then steps; a boundary is told in the middle and again, long after, at 90."""
    shifted = drawn("step", 30, tasks=4)
    stream = [*batches, *shifted, *shifted, *batches, *batches]
    boundaries = (30, 90)
    return run(told, begin_told(only_key(), batches[0]), stream, boundaries)


def test_alarm_begins_exactly_at_the_boundaries_told(long_told):
    _, (began, _, _) = long_told
    assert np.flatnonzero(began).tolist() == [30, 90]


def test_clusters_are_opened_only_while_the_alarm_is_on(long_told):
    _, (_, raised, spawned) = long_told
    assert spawned.any()
    assert raised[spawned].all()


def test_without_a_boundary_nothing_is_opened(told, batches):
    _, (_, raised, spawned) = run(told, begin_told(only_key(), batches[0]), [*batches, *batches])
    assert not raised.any()
    assert not spawned.any()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("meta_rate", 0.0),
        ("averaging_rate", 0.0),
        ("averaging_rate", 1.5),
        ("memory", 0.0),
        ("persistence", -1.0),
        ("certainty", 0.0),
        ("worth", 0.0),
        ("keep_worth", -1.0),
        ("false_alarms", 0.0),
        ("false_alarms", 1.0),
        ("lowness", float("nan")),
        ("scouting", -1),
        ("settled", 0.0),
        ("reservoir", -1),
        ("reference", -1),
        ("rehearsed", -1),
        ("updates", 0),
        ("wander", -0.1),
        ("held_out", 1.0),
        ("held_out", -0.1),
        ("capacity", 0),
        ("youth", 0),
        ("maturity", 0),
        ("probation", 0),
        ("parting", 400),
        ("review", 0),
        ("calm", 0),
        ("patience", 0),
        ("memory", 0.5),
    ],
)
def test_an_impossible_setting_is_named(name, value):
    with pytest.raises(ValueError, match=name):
        OnlineMixture(**{name: value})
