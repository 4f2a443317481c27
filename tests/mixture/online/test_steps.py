"""What must hold for every step of the online mixture, whatever it decides."""

import dataclasses
from functools import partial

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.mixture.online.handmade import (
    ALONE,
    HEAD,
    ORDER,
    assert_close,
    grow,
    living,
    masked,
    only_key,
    permuted,
    task_of,
    with_content,
)

from taskmix.mixture.explaining import UNLIKE, explained, predicted
from taskmix.mixture.growth import begun, proposed
from taskmix.mixture.learning import BEGINNING, followed, learned
from taskmix.mixture.trial import FRESH, HARDER, Trial
from taskmix.mixture.vigilance import bets, scouted


@pytest.fixture(scope="module")
def after(step, state, batch):
    return step(state, batch)


def test_a_step_of_the_handmade_state_teaches_several_rows(state, after):
    """Without this, much below would hold for want of anything that happens."""
    moved = after[0].members.updates - state.members.updates
    assert (moved > 0).tolist() == [True, True, False, False, True]
    before, now = (
        (s.members.reservoir.offered.sum(), s.members.reference.sample.offered.sum())
        for s in (state, after[0])
    )
    assert now[0] > before[0]
    assert now[1] > before[1]


def unexplained(state, batch, held: int):
    """An E-step whose first ``held`` tasks are their best cluster's, the rest the background's."""
    seen = explained(ALONE, state, batch, batch.real)
    kept = (jnp.arange(batch.real.size) < held)[:, None]
    shares = jnp.concatenate([seen.best & kept, ~kept], axis=1).astype(float)
    return dataclasses.replace(seen, shares=shares, unlike=jnp.zeros_like(seen.unlike))


@jax.jit
def after_predicting(state, batch, held):
    return predicted(ALONE, state, batch, unexplained(state, batch, held), batch.real)[1]


@jax.jit
def after_learning(state, batch, held):
    nothing, kept = jnp.zeros(4), jnp.zeros(4, dtype=bool)
    seen = unexplained(state, batch, held)
    return learned(ALONE, state, batch, seen, nothing, nothing, kept, only_key())


@pytest.mark.parametrize(("held", "seen"), [(0, [0, 0]), (4, [4, 4])])
def test_widths_are_those_of_clusters_with_tasks_in_the_batch(state, batch, held, seen):
    """All four tasks are routed to clusters with large weights; two targets of each count."""
    now = after_predicting(state, batch, held)
    assert (now.widths.seen - state.widths.seen)[:2].tolist() == seen


@pytest.mark.parametrize(("held", "offered"), [(0, 0), (1, 2)])
def test_what_nothing_explains_teaches_only_clusters_with_other_tasks(state, batch, held, offered):
    """The first and third task are most like the tasks of the first cluster."""
    now = after_learning(state, batch, held)
    new = now.members.reservoir.offered - state.members.reservoir.offered
    assert new.tolist() == [offered, 0, 0, 0, 0]


def test_permuting_the_clusters_permutes_the_next_state(step, state, after, batch):
    assert_close(step(permuted(state), batch)[0], permuted(after[0]))


def test_permuting_the_clusters_permutes_the_responsibilities(step, state, after, batch):
    info, other = after[1], step(permuted(state), batch)[1]
    assert_close(other.responsibilities, info.responsibilities[:, ORDER])
    assert_close(*((one.loss, one.error, one.suspicion) for one in (info, other)))


def test_permuting_the_clusters_permutes_the_components_of_a_prediction(predict, state, batch):
    one, other = (predict(s, *task_of(batch)) for s in (state, permuted(state)))
    assert_close(other.components, one.components[ORDER])
    assert_close(other.responsibilities, one.responsibilities[ORDER])
    same = [(p.mean, p.variance, p.noise, p.background, p.novelty) for p in (one, other)]
    assert_close(*same)


def test_content_of_padding_tasks_changes_no_bit(step, state, batch):
    present = jnp.array([True, True, True, False])[:, None]
    ragged = masked(batch, present, present)
    expected = step(state, with_content(ragged, 0.0))
    chex.assert_trees_all_equal(step(state, with_content(ragged, jnp.nan)), expected)


def test_content_of_masked_examples_changes_no_bit(step, state, batch):
    ragged = masked(batch, jnp.arange(3) < 2, jnp.arange(4) != 1)
    expected = step(state, with_content(ragged, 0.0))
    chex.assert_trees_all_equal(step(state, with_content(ragged, 1e30)), expected)


def test_content_of_masked_examples_changes_no_bit_of_a_prediction(predict, state, batch):
    ragged = masked(batch, jnp.arange(3) < 2, True)
    expected = predict(state, *task_of(with_content(ragged, 0.0)))
    chex.assert_trees_all_equal(predict(state, *task_of(with_content(ragged, jnp.nan))), expected)


def test_a_batch_of_padding_changes_nothing(step, state, batch):
    chex.assert_trees_all_equal(step(state, masked(batch, False, False))[0], state)


def test_the_error_of_padding_is_not_a_number(step, state, batch):
    present = jnp.array([True, False, True, True])[:, None]
    _, info = step(state, masked(batch, present, present))
    assert jnp.isnan(info.error).tolist() == [False, True, False, False]
    assert not info.responsibilities[1].any()


@jax.jit
def with_garbage(state):
    """The dead row holds what is not a number, or whatever else its type allows."""
    garbage = {"f": jnp.nan, "b": True}

    def broken(leaf):
        return leaf.at[3].set(jnp.full_like(leaf[3], garbage.get(leaf.dtype.kind, 7)))

    alarm = state.alarm
    total, weight = alarm.total.at[3].set(-1e6), alarm.weight.at[3].set(1e3)
    return dataclasses.replace(
        state,
        members=jax.tree.map(broken, state.members),
        age=state.age.at[3].set(10**6),
        alarm=dataclasses.replace(alarm, total=total, weight=weight),
        progress=jax.tree.map(broken, state.progress),
        widths=jax.tree.map(lambda leaf: leaf.at[3].set(1e3), state.widths),
    )


def test_content_of_dead_rows_changes_no_bit_of_the_next_state(step, state, after, batch):
    chex.assert_trees_all_equal(living(step(with_garbage(state), batch)[0]), living(after[0]))


def test_content_of_dead_rows_changes_no_bit_of_what_a_step_tells(step, state, after, batch):
    chex.assert_trees_all_equal(step(with_garbage(state), batch)[1], after[1])


def test_content_of_dead_rows_changes_no_bit_of_a_prediction(predict, state, batch):
    same = [
        (p.mean, p.variance, p.noise, p.components, p.responsibilities, p.background, p.novelty)
        for p in (predict(s, *task_of(batch)) for s in (state, with_garbage(state)))
    ]
    chex.assert_trees_all_equal(*same)


def test_the_error_that_a_step_tells_is_that_of_a_prediction(predict, state, after, batch):
    predicted = predict(state, *task_of(batch)).mean
    expected = jnp.mean(jnp.square(predicted - batch.query.y[0]))
    np.testing.assert_allclose(after[1].error[0], expected, rtol=1e-4)


@jax.jit
def about_to_be_born(state):
    """The candidate has earned to be a cluster."""
    trial = dataclasses.replace(
        state.trial,
        evidence=jnp.zeros(()) + 2 * ALONE.certainty,
        gained=jnp.zeros(()) + 50 * ALONE.worth,
        weight=jnp.zeros(()) + 20,
        age=jnp.zeros((), dtype=int) + 200,
    )
    return dataclasses.replace(state, trial=trial)


def test_a_birth_within_capacity_does_not_compile_the_step_again(step, state, after, batch):
    before = step.traces
    state, info = step(about_to_be_born(state), batch)
    state, _ = step(state, batch)
    assert info.spawned
    assert (step.traces, int(state.alive.sum())) == (before, 4)


def test_a_newborn_is_the_candidate_as_it_has_learned(step, state, batch):
    ready = about_to_be_born(state)
    born, _ = step(ready, batch)
    waits, _ = step(eqx.tree_at(lambda s: s.trial.evidence, ready, jnp.zeros(())), batch)
    chex.assert_trees_all_equal(
        jax.tree.map(lambda leaf: leaf[3], born.members.params),
        jax.tree.map(lambda leaf: leaf[4], waits.members.params),
    )


@pytest.mark.parametrize("inherits", [False, True])
def test_a_candidate_for_what_is_new_begins_at_random_or_as_a_cluster_in_use(
    state, batch, inherits
):
    learner = dataclasses.replace(ALONE, inherits=inherits)

    @jax.jit
    def anew(state):
        keys, no = jax.random.split(only_key()), jnp.asarray(False)
        trial = proposed(learner, state, keys, ~no, no)
        return begun(learner, dataclasses.replace(state, trial=trial), batch, only_key())

    after = anew(state)
    last, *clusters = (
        jax.tree.map(lambda leaf, row=row: leaf[row], state_.members.params)
        for state_, row in [(after, 4), *((state, row) for row in range(3))]
    )
    assert after.trial.origin == FRESH
    assert any(bool(eqx.tree_equal(last, one)) for one in clusters) == inherits
    assert not after.members.reservoir.filled[-1].any()


def test_while_the_alarm_is_on_a_new_candidate_follows_the_looks_of_what_is_unlike_all(
    state, batch
):
    """Of four tasks the first two are unlike the cluster that explains them best."""
    seen = explained(ALONE, state, batch, batch.real)
    best = jnp.arange(4) == 1
    unlike = jnp.where(jnp.arange(4)[:, None] < 2, 2 * UNLIKE, 0.0) * (jnp.arange(5) == 1)
    # Other clusters do not count, whatever they make of the tasks.
    unlike += 9 * UNLIKE * (jnp.arange(5) == 2)
    seen = dataclasses.replace(seen, best=jnp.broadcast_to(best, (4, 4)), unlike=unlike)
    lessons = jnp.full(4, 0.1)

    def at(raised, origin, age):
        trial = eqx.tree_at(lambda one: one.age, Trial.begin(origin), jnp.asarray(age))
        alarm = dataclasses.replace(state.alarm, raised=jnp.asarray(raised))
        asked = dataclasses.replace(state, trial=trial, alarm=alarm)
        return followed(asked, seen, lessons).tolist()

    assert at(True, FRESH, 0) == pytest.approx([1, 1, 0.1, 0.1])
    for nothing in (at(False, FRESH, 0), at(True, HARDER, 0), at(True, FRESH, BEGINNING)):
        assert nothing == pytest.approx([0.1] * 4)


def test_without_a_scout_nothing_is_bet_and_nothing_moves(state, batch):
    learner = dataclasses.replace(ALONE, scouting=0)
    seen = explained(learner, state, batch, batch.real)
    won, betting = bets(learner, state, batch, seen, state.alive)
    assert (float(won), bool(betting)) == (0.0, False)
    after = scouted(learner, state, batch, seen, batch.real)
    chex.assert_trees_all_equal(after, state.scout)


def test_nothing_is_born_without_room(step, state, batch):
    copied = jax.jit(partial(jax.tree.map, lambda leaf: leaf.at[3].set(leaf[0])))
    full = dataclasses.replace(
        about_to_be_born(state),
        members=copied(state.members),
        alive=jnp.ones(4, dtype=bool),
        age=copied(state.age),
    )
    waits, info = step(full, batch)
    assert not info.spawned
    assert waits.trial.evidence > ALONE.certainty


def test_states_keep_their_types_from_the_first_on(step, batches, after):
    """Another type, even a weak one, would compile the step again."""
    before = step.traces
    state = jax.jit(ALONE.init)(only_key(), batches[0])
    for batch in batches[:2]:
        state, _ = step(state, batch)
    assert step.traces == before == 1


def test_growing_changes_no_prediction(predict, state, batch):
    grown = grow(state)
    one, other = (predict(s, *task_of(batch)) for s in (state, grown))
    assert not other.responsibilities[4:].any()
    same = [
        (p.mean, p.variance, p.components[:4], p.responsibilities[:4], p.background, p.novelty)
        for p in (one, other)
    ]
    chex.assert_trees_all_close(*same, rtol=1e-5, atol=1e-6)


def test_growing_keeps_the_rows_of_clusters_and_the_last_ones(state):
    grown = grow(state)

    def narrow(wide):
        return np.concatenate([wide[:4], wide[8:]])

    for name in ("members", "alive", "age", "counts", "inputs", "progress", "widths"):
        found = jax.tree.map(narrow, getattr(grown, name))
        chex.assert_trees_all_equal(found, jax.tree.map(np.asarray, getattr(state, name)))
    assert not grown.alive[4:].any()


def test_growing_makes_room(state):
    full = dataclasses.replace(state, alive=jnp.ones(4, dtype=bool))
    assert not ALONE.has_room(full, 1)
    assert ALONE.has_room(grow(full), 1)


def test_parameters_are_counted_for_living_clusters_only(state):
    one = sum(leaf.size for leaf in jax.tree.leaves(HEAD.init(only_key())))
    assert ALONE.parameters(state) == 3 * one
