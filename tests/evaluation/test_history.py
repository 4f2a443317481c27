"""Sums over a stream, which must not depend on how it was cut into chunks."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmix.evaluation import History, prequential
from taskmix.streams import Phase

A, B, C = Phase(0, 100, ("a",)), Phase(100, 200, ("b",)), Phase(200, 300, ("c",))
CONSECUTIVE = (A, B, C)
RECURRING = (A, B, Phase(200, 300, ("a",)), Phase(300, 400, ("b",)))


def history_of(phases, shares, family=None, every=40) -> History:
    """Of one task per batch with the given shares; chunks end as those of the loop do."""
    shares = np.asarray(shares, dtype=float)[:, None]
    if family is None:
        family = [ord(phase.families[0]) - ord("a") for phase in phases for _ in length(phase)]
    family = np.asarray(family)[:, None]
    history = History.begin(phases, 3)
    stops = sorted({*range(every, phases[-1].stop, every), *(phase.stop for phase in phases)})
    for start, stop in zip([0, *stops], stops, strict=False):
        chunk = slice(start, stop)
        history.add(start, np.zeros((stop - start, 1)), family[chunk], shares[chunk])
    return history


def length(phase: Phase) -> range:
    return range(phase.start, phase.stop)


def shares_of(leaders):
    """Batches in which the given cluster takes 0.8."""
    return np.where(np.arange(2) == np.asarray(leaders)[:, None], 0.8, 0.2)


def test_owner_looks_at_the_last_hundred_iterations_only():
    phases = (Phase(0, 200, ("a",)), Phase(200, 400, ("b",)))
    shares = np.array([[1.0, 0.0]] * 100 + [[0.4, 0.6]] * 100 + [[1.0, 0.0]] * 200)
    assert history_of(phases, shares).owner(phases[0]) == 1


def test_owner_of_a_short_phase_ignores_the_phase_before():
    phases = (Phase(0, 100, ("a",)), Phase(100, 110, ("b",)))
    shares = np.array([[1.0, 0.0]] * 100 + [[0.0, 1.0]] * 10)
    assert history_of(phases, shares).owner(phases[1]) == 1


def test_owner_of_a_family_skips_batches_without_it():
    shares = np.array([[1.0, 0.0]] * 100)
    shares[50] = [0.3, 0.7]
    family = np.ones(100, dtype=int)
    family[50] = 0
    history = history_of((Phase(0, 100, ("a", "b")),), shares, family)
    assert (history.owner(history.phases[0], 0), history.owner(history.phases[0], 1)) == (1, 0)
    assert history.owner(history.phases[0], 2) is None


def test_family_of_several_tasks_has_their_mean_share():
    """Batches with few tasks of a family count as much as those with many."""
    phases = (Phase(0, 2, ("a", "b")),)
    history = History.begin(phases, 2)
    responsibilities = np.array([[[1.0, 0.0], [1.0, 0.0]], [[0.4, 0.6], [0.0, 1.0]]])
    history.add(0, np.zeros((2, 2)), np.array([[0, 0], [0, 1]]), responsibilities)
    np.testing.assert_allclose(history.shares[0], [[1.4, 0.6], [0.0, 1.0], [1.2, 0.8]])


def test_cluster_that_is_born_later_has_had_no_share():
    phases = (Phase(0, 4, ("a",)),)
    history = History.begin(phases, 1)
    for start, clusters in ((0, 1), (2, 3)):
        shares = np.full((2, 1, clusters), 1 / clusters)
        history.add(start, np.zeros((2, 1)), np.zeros((2, 1), dtype=int), shares)
    np.testing.assert_allclose(history.shares[0, 0], [2 + 2 / 3, 2 / 3, 2 / 3])


def test_clusters_that_are_left_out_have_no_share():
    phases, family = (Phase(0, 4, ("a",)),), np.zeros((4, 1), dtype=int)
    shares = np.zeros((4, 1, 9))
    shares[..., [2, 7]] = [0.3, 0.6]
    whole, found = History.begin(phases, 1), History.begin(phases, 1)
    whole.add(0, np.zeros((4, 1)), family, shares[..., :8])
    found.add(0, np.zeros((4, 1)), family, shares[..., [2, 7]], np.array([2, 7]))
    np.testing.assert_array_equal(found.shares, whole.shares)
    assert found.owner(phases[0]) == 7


def padded(array, value):
    """With one more task per batch."""
    return np.concatenate([array, np.full_like(array[:, :1], value)], axis=1)


def test_tasks_without_an_error_change_nothing():
    rng = np.random.default_rng(1)
    error, family = rng.random((100, 3)), rng.integers(0, 2, (100, 3))
    shares = rng.dirichlet(np.ones(4), (100, 3))[..., :3]
    phases = (Phase(0, 100, ("a", "b")),)
    with_padding, without = (History.begin(phases, 2) for _ in range(2))
    without.add(0, error, family, shares)
    # Whatever stands where there is no task.
    with_padding.add(0, padded(error, np.nan), padded(family, 1), padded(shares, 0.7))
    for field in dataclasses.fields(History):
        np.testing.assert_array_equal(
            getattr(with_padding, field.name), getattr(without, field.name)
        )


def test_family_that_the_background_takes_has_no_owner_and_no_leader():
    shares = np.zeros((400, 2))
    shares[100:200] = shares[300:] = [0.0, 1.0]
    history = history_of(RECURRING, shares)
    assert history.owner(A) is None
    assert history.return_delays() == (None, 0)


def test_return_delay_counts_batches_until_the_old_owner_leads():
    leaders = [0] * 100 + [1] * 100 + [1] * 7 + [0] * 93 + [1] * 100
    assert history_of(RECURRING, shares_of(leaders)).return_delays() == (7, 0)


def test_a_lead_that_does_not_last_is_no_return():
    flicker = [0, 1, 1] * 10
    leaders = [0] * 100 + [1] * 100 + flicker + [0] * 70 + [1] * 100
    # The flicker ends with 1 at place 29; its last lone 0 sees only 8 of the next 10.
    assert history_of(RECURRING, shares_of(leaders)).return_delays() == (30, 0)


def test_one_slip_in_ten_batches_is_still_a_return():
    leaders = [0] * 100 + [1] * 100 + [0] * 5 + [1] + [0] * 94 + [1] * 100
    assert history_of(RECURRING, shares_of(leaders)).return_delays() == (0, 0)


def test_an_owner_that_never_returns_has_no_delay():
    assert history_of(RECURRING, shares_of([0] * 100 + [1] * 300)).return_delays() == (None, 0)


def test_a_stream_without_recurrence_has_no_return_delays():
    assert history_of(CONSECUTIVE, shares_of([0] * 300)).return_delays() == ()


SHORT = tuple(Phase(20 * n, 20 * n + 20, (name,)) for n, name in enumerate("abab"))


@given(st.lists(st.integers(0, 1), min_size=80, max_size=80), st.integers(1, 30))
def test_return_delays_do_not_depend_on_the_chunks(leaders, every):
    shares = np.eye(2)[leaders]
    whole, cut = (history_of(SHORT, shares, every=n) for n in (80, every))
    assert cut.return_delays() == whole.return_delays() == slow_return_delays(leaders)
    np.testing.assert_array_equal(cut.shares, whole.shares)


def slow_return_delays(leaders):
    """By the words of the definition, for the two returns of the short stream."""
    found = []
    for start in (40, 60):
        owner = int(np.mean(leaders[start - 40 : start - 20]) > 0.5)
        leads = np.array(leaders[start : start + 20]) == owner
        lasting = [d for d in range(11) if leads[d] and leads[d : d + 10].sum() >= 9]
        found.append(lasting[0] if lasting else None)
    return tuple(found)


def test_prequential_error_is_that_of_all_tasks_at_once():
    rng = np.random.default_rng(0)
    error, family = rng.random((30, 4)), rng.integers(0, 2, (30, 4))
    error[3, 1] = np.nan
    history = History.begin((Phase(0, 30, ("a", "b", "c")),), 3)
    for start in range(0, 30, 10):
        rows = slice(start, start + 10)
        history.add(start, error[rows], family[rows], np.ones((10, 4, 1)))
    names = ("a", "b", "c")
    assert history.prequential(names) == pytest.approx(prequential(error, family, names))


def test_size_does_not_depend_on_the_number_of_iterations():
    def size(iterations: int) -> int:
        phases = (Phase(0, iterations, ("a",)), Phase(iterations, 2 * iterations, ("b",)))
        history = history_of(phases, np.ones((2 * iterations, 1)))
        arrays = (getattr(history, field.name) for field in dataclasses.fields(history))
        return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))

    assert size(100) == size(1000)
