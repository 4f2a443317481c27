"""Spawning, protection and prediction of the online mixture."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.adaptation import Adaptation
from taskmix.learner import Told
from taskmix.likelihood import Categorical
from taskmix.mixture import OnlineMixture
from taskmix.models import MLP
from taskmix.tasks import Examples, Hints, TaskBatch

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
    return jax.tree.map(
        lambda leaf: leaf[index], (state.clusters, state.query, state.support, state.averaged)
    )


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


def test_average_goes_back_over_a_tenth_of_the_updates_while_they_are_few(run):
    """The rate of update n + 1 is 10 / (n + 10) until that is less than the floor of 0.02."""
    states, _ = run
    expected = row(states[1], 0)[0].params
    for n, state in enumerate(states[2:6], start=1):
        expected = jax.tree.map(
            lambda a, p, rate=10 / (n + 10): a + rate * (p - a), expected, row(state, 0)[0].params
        )
    chex.assert_trees_all_close(row(states[5], 0)[3], expected, rtol=1e-4, atol=1e-6)


def test_average_follows_at_the_floor_later(run, learner, batches):
    states, _ = run
    quick = dataclasses.replace(learner, averaging_rate=0.9)
    after, _ = jax.jit(quick.step)(states[4], batches[4], KEY)
    expected = jax.tree.map(
        lambda a, p: 0.1 * a + 0.9 * p, row(states[4], 0)[3], row(after, 0)[0].params
    )
    chex.assert_trees_all_close(row(after, 0)[3], expected, rtol=1e-4, atol=1e-6)


def test_average_of_a_newborn_begins_with_its_first_update(run):
    states, _ = run
    clusters, _, _, averaged = row(states[21], 1)
    chex.assert_trees_all_close(averaged, clusters.params, rtol=1e-5, atol=1e-7)


def test_averaged_parameters_are_those_that_predict(run, learner, batches):
    states, _ = run
    clusters = dataclasses.replace(
        states[-1].clusters, params=jax.tree.map(jnp.zeros_like, states[-1].clusters.params)
    )
    other = dataclasses.replace(states[-1], clusters=clusters)
    support, x = jax.tree.map(lambda leaf: leaf[0], (batches[7].support, batches[7].query.x))
    predict = jax.jit(learner.predict)
    chex.assert_trees_all_equal(predict(other, support, x), predict(states[-1], support, x))


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


def guesses(seed: int, level: float) -> TaskBatch:
    """Labels that no input foretells; the inputs lie around the level."""
    x_key, y_key = jax.random.split(jax.random.key(seed))
    x = level + jax.random.normal(x_key, (4, 11, 2))
    y = jax.random.bernoulli(y_key, shape=(4, 11)).astype(int)
    return TaskBatch(Examples.full(x[:, :5], y[:, :5]), Examples.full(x[:, 5:], y[:, 5:]))


def run_of_guesses(likelihood: Categorical):
    """Twenty batches around 0, then three around 3."""
    learner = OnlineMixture(
        model=MLP(inputs=2, hidden=(4,), outputs=2),
        likelihood=likelihood,
        adaptation=Adaptation(steps=1, rate=0.01),
        cool_down=COOL_DOWN,
        parts=0,
    )
    state, step, spawned = learner.init(KEY, guesses(0, 0.0)), jax.jit(learner.step), []
    for seed in range(23):
        state, info = step(state, guesses(seed, 0.0 if seed < 20 else 3.0), KEY)
        spawned.append(bool(info.spawned))
    return learner, state, np.flatnonzero(spawned)


@pytest.fixture(scope="module")
def attentive():
    return run_of_guesses(Categorical(inputs=lambda x: x))


def test_new_inputs_open_a_cluster_though_the_losses_are_the_same(attentive):
    _, _, spawned = attentive
    np.testing.assert_array_equal(spawned, [20])


def test_new_inputs_go_unnoticed_if_nothing_is_said_of_them():
    _, _, spawned = run_of_guesses(Categorical())
    assert spawned.size == 0


def test_calibration_learns_the_level_of_the_inputs(attentive):
    _, state, _ = attentive
    np.testing.assert_allclose(state.query.mean[:2, 1:], [[0, 0], [3, 3]], atol=0.5)
    np.testing.assert_allclose(state.support.mean[:2, 1:], [[0, 0], [3, 3]], atol=0.7)


@pytest.mark.parametrize(("level", "cluster"), [(0.0, 0), (3.0, 1)])
def test_single_tasks_are_recognised_by_their_inputs(attentive, level, cluster):
    learner, state, _ = attentive
    task = jax.tree.map(lambda leaf: leaf[0], guesses(99, level))
    prediction = jax.jit(learner.predict)(state, task.support, task.query.x)
    assert prediction.responsibilities[cluster] > 0.9
    assert prediction.novelty < 0.99


def test_inputs_of_no_known_kind_are_novel(attentive):
    learner, state, _ = attentive
    task = jax.tree.map(lambda leaf: leaf[0], guesses(99, -5.0))
    assert jax.jit(learner.predict)(state, task.support, task.query.x).novelty > 0.999
