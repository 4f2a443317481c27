"""Schedules: phases, weights, boundaries and draws."""

import dataclasses

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from hypothesis import given

from taskmix.streams import Phase, Schedule, consecutive, gradual, interleaved, recurring

parts = st.lists(
    st.tuples(
        st.lists(st.sampled_from("abcd"), min_size=1, unique=True).map(tuple), st.integers(3, 9)
    ),
    min_size=1,
    max_size=4,
)

TURNING = recurring("abc", (3, 2, 3))
MIXED = Schedule((("a", "b", "c"), ("d",), ("b", "d")), (4, 6, 6), transition=2)
SPECKLED = dataclasses.replace(MIXED, rare=(("e", 0.1),))


def test_consecutive_phases_start_where_the_one_before_stops():
    assert consecutive("abc", (4, 3, 2)).phases == (
        Phase(0, 4, ("a",)),
        Phase(4, 7, ("b",)),
        Phase(7, 9, ("c",)),
    )


def test_recurring_phases_come_back_in_the_same_order():
    schedule = recurring("ab", (2, 3), rounds=2)
    assert schedule.families == ("a", "b")
    assert [(p.start, p.families) for p in schedule.phases] == [
        (0, ("a",)),
        (2, ("b",)),
        (5, ("a",)),
        (7, ("b",)),
    ]


def test_consecutive_weights_change_at_the_very_iteration():
    schedule = consecutive("ab", (4000, 3000))
    np.testing.assert_array_equal(schedule.weights(3999), [1, 0])
    np.testing.assert_array_equal(schedule.weights(4000), [0, 1])


def test_last_mix_goes_on_after_the_end():
    np.testing.assert_array_equal(consecutive("ab", (2, 2)).weights(99), [0, 1])


def test_gradual_weights_move_in_equal_steps():
    schedule = gradual("ab", (3, 10), transition=4)
    moving = jax.vmap(schedule.weights)(jnp.arange(2, 9))
    np.testing.assert_allclose(moving[:, 1], [0, 0.2, 0.4, 0.6, 0.8, 1, 1], rtol=1e-6)
    np.testing.assert_allclose(moving[:, 0], [1, 0.8, 0.6, 0.4, 0.2, 0, 0], rtol=1e-6)


def test_gradual_transition_is_a_phase_with_both_families():
    assert gradual("ab", (3, 10), transition=4).phases == (
        Phase(0, 3, ("a",)),
        Phase(3, 7, ("a", "b")),
        Phase(7, 13, ("b",)),
    )


def test_interleaved_is_one_phase_with_equal_weights():
    schedule = interleaved("abcd", 50)
    assert schedule.phases == (Phase(0, 50, ("a", "b", "c", "d")),)
    np.testing.assert_allclose(schedule.weights(20), [0.25] * 4)


def test_interleaved_tasks_mix_within_a_batch():
    drawn = interleaved("abc", 9).draw(jax.random.key(0), 0, 3000)
    np.testing.assert_allclose(np.bincount(drawn) / 3000, [1 / 3] * 3, atol=0.04)


def test_interleaved_batches_hold_one_family_each_and_all_over_time():
    schedule = interleaved("abc", 9, mixing="batch")
    keys = jax.random.split(jax.random.key(0), 3000)
    drawn = jax.vmap(lambda key: schedule.draw(key, 0, 4))(keys)
    assert np.all(drawn == drawn[:, :1])
    np.testing.assert_allclose(np.bincount(drawn[:, 0]) / 3000, [1 / 3] * 3, atol=0.04)


@given(parts, st.integers(0, 2))
def test_phases_have_no_gaps_and_cover_the_lengths(parts, transition):
    schedule = Schedule(*zip(*parts, strict=True), transition)
    starts = [phase.start for phase in schedule.phases]
    stops = [phase.stop for phase in schedule.phases]
    assert starts == [0, *stops[:-1]]
    assert stops[-1] == sum(schedule.lengths)


def test_rare_family_keeps_its_share_and_leaves_the_rest_to_the_stretch():
    schedule = dataclasses.replace(consecutive("ab", (4, 3)), rare=(("c", 0.02),))
    assert schedule.families == ("a", "b", "c")
    np.testing.assert_allclose(schedule.weights(3), [0.98, 0, 0.02], rtol=1e-6)
    np.testing.assert_allclose(schedule.weights(4), [0, 0.98, 0.02], rtol=1e-6)


def test_rare_family_is_active_in_every_phase():
    assert all("e" in phase.families for phase in SPECKLED.phases)


def test_appearances_are_the_first_iterations_of_each_family():
    assert MIXED.appearances == (0, 0, 0, 4)
    assert recurring("ab", (2, 3)).appearances == (0, 2)
    assert SPECKLED.appearances == (0, 0, 0, 4, 0)
    assert gradual("ab", (3, 10), transition=4).appearances == (0, 3)


@pytest.mark.parametrize("schedule", [TURNING, MIXED, SPECKLED])
def test_weights_are_probabilities_of_exactly_the_active_families(schedule):
    weights = jax.vmap(schedule.weights)(jnp.arange(16))
    np.testing.assert_allclose(weights.sum(axis=1), np.ones(16), rtol=1e-6)
    for phase in schedule.phases:
        active = [name in phase.families for name in schedule.families]
        during = weights[phase.start : phase.stop]
        np.testing.assert_array_equal(during > 0, np.tile(active, (len(during), 1)))


@pytest.mark.parametrize("schedule", [TURNING, MIXED, interleaved("ab", 16)])
def test_boundaries_are_the_starts_of_the_phases_but_the_first(schedule):
    found = np.flatnonzero(jax.vmap(schedule.boundary)(jnp.arange(16)))
    assert found.tolist() == [phase.start for phase in schedule.phases[1:]]


def test_only_active_families_are_drawn():
    for phase in MIXED.phases:
        drawn = MIXED.draw(jax.random.key(0), phase.start, 500)
        assert {MIXED.families[i] for i in np.asarray(drawn)} == set(phase.families)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: consecutive((), ()), "at least one"),
        (lambda: interleaved((), 10), "at least one"),
        (lambda: interleaved("aba", 10), "names a family twice"),
        (lambda: consecutive("ab", (4,)), "2 stretches of families but 1 lengths"),
        (lambda: consecutive("ab", (4, 0)), "1 iteration or more"),
        (lambda: consecutive("ab", (-4, 3)), "1 iteration or more"),
        (lambda: recurring("ab", (4, 3), rounds=0), "rounds is 0"),
        (lambda: gradual("ab", (4, 3), transition=-1), "transition is -1"),
        (lambda: gradual("ab", (4, 3), transition=3), "shorter than every stretch"),
        (lambda: dataclasses.replace(TURNING, rare=(("a", 0.1),)), "none that a stretch has"),
        (lambda: dataclasses.replace(TURNING, rare=(("d", 0.1),) * 2), "each family once"),
        (lambda: dataclasses.replace(TURNING, rare=(("d", 0.0),)), "must be positive"),
        (lambda: dataclasses.replace(TURNING, rare=(("d", 1.0),)), "less than 1"),
    ],
)
def test_error_says_what_is_wrong_with(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_unknown_mixing_is_refused(monkeypatch):
    # The annotation already says it; the check is for callers without a type checker.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match="'task' or 'batch'"):
        interleaved("ab", 3, mixing="both")
