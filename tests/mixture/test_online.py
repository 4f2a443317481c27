"""Spawning, protection and prediction of the online mixture."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.learner import Told
from taskmix.mixture import OnlineMixture
from taskmix.tasks import Examples, Hints

KEY = jax.random.key(0)
COOL_DOWN = 15


@pytest.fixture(scope="module")
def learner(parts):
    return OnlineMixture(**parts, cool_down=COOL_DOWN)


@pytest.fixture(scope="module")
def traces():
    """The capacity of the state, once for every time that a step is traced."""
    return []


@pytest.fixture(scope="module")
def step(learner, traces):
    def counted(state, batch, key):
        traces.append(state.clusters.capacity)
        return learner.step(state, batch, key)

    return jax.jit(counted)


def scaled(batch, factor: float):
    """Another kind of task: the same functions, much larger."""

    def larger(examples):
        return Examples(examples.x, factor * examples.y, examples.mask)

    return dataclasses.replace(batch, support=larger(batch.support), query=larger(batch.query))


@pytest.fixture(scope="module")
def run(learner, step, batches):
    """Twenty batches of one kind, then five of another; the state before each, and the infos."""
    states, infos = [learner.init(KEY, batches[0])], []
    for batch in [*batches, *(scaled(batch, 30.0) for batch in batches[:5])]:
        state, info = step(states[-1], batch, KEY)
        states.append(state)
        infos.append(info)
    return states, infos


def row(state, index):
    return jax.tree.map(lambda leaf: leaf[index], (state.clusters, state.query, state.support))


def test_new_kind_opens_one_cluster_at_once(run):
    _, infos = run
    assert [i for i, info in enumerate(infos) if info.spawned] == [20]
    assert infos[-1].clusters == 2


def test_batch_that_opens_a_cluster_belongs_to_it(run):
    _, infos = run
    np.testing.assert_array_equal(infos[20].responsibilities, [[0, 1, 0, 0]] * 4)


def test_newborn_has_a_fresh_optimiser_and_no_memory_of_a_level(run):
    states, _ = run
    newborn = row(states[21], 1)
    assert newborn[0].optimiser[0].count == 1
    assert newborn[1].batches == 1
    assert states[21].tasks[1] == 4


def test_older_cluster_is_untouched_bit_for_bit_while_another_learns(run):
    states, _ = run
    for after in states[21:]:
        chex.assert_trees_all_equal(row(after, 0), row(states[20], 0))
        assert after.tasks[0] == states[20].tasks[0]


def test_older_cluster_is_frozen_during_the_cool_down_even_for_its_own_batches(run, step, batches):
    states, _ = run
    after, info = step(states[-1], batches[6], KEY)
    assert info.responsibilities[0, 0] > 0.9
    chex.assert_trees_all_equal(row(after, 0), row(states[-1], 0))


def test_older_cluster_learns_from_its_own_batches_after_the_cool_down(run, step, batches):
    states, _ = run
    rested = dataclasses.replace(states[-1], cooling=jnp.zeros_like(states[-1].cooling))
    after, info = step(rested, batches[6], KEY)
    assert info.responsibilities[0, 0] > 0.9
    assert not info.spawned
    assert after.tasks[0] == rested.tasks[0] + 4
    chex.assert_trees_all_equal(row(after, 1), row(rested, 1))


def test_return_of_a_known_kind_opens_nothing(run, step, batches):
    states, _ = run
    state = dataclasses.replace(states[-1], cooling=jnp.zeros_like(states[-1].cooling))
    for batch in batches[6:12]:
        state, info = step(state, batch, KEY)
        assert info.responsibilities[0, 0] > 0.9
        assert info.suspicion < 0.5
    assert info.clusters == 2


def test_no_cluster_is_opened_before_the_cool_down_is_over(learner, step, batches):
    state = learner.init(KEY, batches[0])
    for batch in batches[: COOL_DOWN - 1]:
        state, _ = step(state, batch, KEY)
    assert state.cooling == 1
    _, early = step(state, scaled(batches[0], 30.0), KEY)
    assert not early.spawned
    state, _ = step(state, batches[15], KEY)
    _, late = step(state, scaled(batches[0], 30.0), KEY)
    assert late.spawned


def test_full_house_opens_nothing(run, step, batches):
    states, _ = run
    full = dataclasses.replace(states[20].clusters, alive=jnp.ones(4, dtype=bool))
    _, info = step(dataclasses.replace(states[20], clusters=full), scaled(batches[0], 30.0), KEY)
    assert not info.spawned
    assert info.clusters == 4


def test_spawn_within_capacity_does_not_compile(run, traces):
    _, infos = run
    assert any(info.spawned for info in infos)
    assert traces.count(4) == 1


def test_growth_compiles_once(run, step, traces, learner, batches):
    state = learner.grow(run[0][-1])
    for batch in batches[:2]:
        state, _ = step(state, batch, KEY)
    assert traces.count(8) == 1


def test_room_is_needed_for_one_birth_in_every_cool_down(run, learner):
    states, _ = run
    assert learner.has_room(states[-1], 2 * COOL_DOWN)
    assert not learner.has_room(states[-1], 2 * COOL_DOWN + 1)
    assert learner.has_room(learner.grow(states[-1]), 2 * COOL_DOWN + 1)


@pytest.fixture(scope="module")
def predicted(run, learner, batches):
    states, _ = run
    predict = jax.jit(learner.predict)

    def predicted(batch):
        support, x = jax.tree.map(lambda leaf: leaf[0], (batch.support, batch.query.x))
        return predict(states[-1], support, x)

    return {"old": predicted(batches[7]), "new": predicted(scaled(batches[7], 30.0)),
            "unseen": predicted(scaled(batches[7], 1e4))}  # fmt: skip


def test_single_tasks_are_recognised(predicted):
    assert predicted["old"].responsibilities[0] > 0.9
    assert predicted["new"].responsibilities[1] > 0.9


def test_task_of_no_known_kind_is_novel(predicted):
    assert predicted["unseen"].novelty > 0.99
    assert predicted["old"].novelty < 0.9


def test_variance_is_noise_of_the_cluster_where_one_carries_all(run, predicted):
    states, _ = run
    prediction = predicted["old"]
    weights = np.asarray(prediction.responsibilities)
    noise = np.asarray(states[-1].query.expected_loss())
    between = np.square(prediction.components - prediction.mean)
    expected = np.tensordot(weights[:2], noise[:2, None, None] + between[:2], axes=1)
    np.testing.assert_allclose(prediction.variance, expected, rtol=1e-4)


def test_who_is_told_boundaries_opens_clusters_only_from_a_boundary_on(learner, run, batches):
    told = dataclasses.replace(learner, boundaries=True)
    assert told.told is Told.BOUNDARIES
    step, state = jax.jit(told.step), run[0][20]

    def hinted(boundary: bool):
        hints = Hints(jnp.zeros(4, dtype=int), jnp.asarray(boundary))
        return dataclasses.replace(scaled(batches[0], 30.0), hints=hints)

    assert not step(state, hinted(False), KEY)[1].spawned
    opened, info = step(state, hinted(True), KEY)
    assert info.spawned
    assert not opened.boundary_open
