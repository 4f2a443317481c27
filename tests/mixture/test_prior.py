"""Counts, places and the threshold: the arithmetic of the paper's spawning."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammaln

from taskmix.mixture import PaperMixture
from taskmix.mixture.prior import (
    WindowedCounts,
    expected_concentration,
    gamma_mode,
    log_places,
)
from taskmix.mixture.responsibilities import responsibilities
from taskmix.mixture.spawning import cooled, passes_threshold


def test_push_keeps_the_newest_iterations_and_sums_soft_shares():
    counts = WindowedCounts.empty(2, 2)
    for shares in ([[1.0, 0.0], [0.25, 0.75]], [[0.5, 0.5], [0.5, 0.5]], [[0.0, 1.0], [0.0, 1.0]]):
        counts = counts.push(jnp.array(shares))
    np.testing.assert_allclose(counts.window, [[0, 2], [1, 1]])
    np.testing.assert_allclose(counts.counts(), [1, 3])


def test_counts_start_at_what_is_there_before_the_window_is_full():
    counts = WindowedCounts.empty(5, 2).push(jnp.array([[0.25, 0.75]]))
    np.testing.assert_allclose(counts.counts(), [0.25, 0.75])


def test_places_are_logarithms_of_counts_and_concentration_with_a_floor_of_one():
    places = log_places(jnp.array([50.0, 0.0, 0.4]), concentration=10.0, coefficient=0.5)
    np.testing.assert_allclose(places, [0.5 * math.log(50), 0, 0, 0.5 * math.log(10)], rtol=1e-6)


def candidate_share(advantage: float, living: int, coefficient: float):
    """Share of a candidate in steady state: one cluster took all 50 tasks of the window."""
    places = log_places(
        jnp.zeros(living).at[0].set(50.0), concentration=10.0, coefficient=coefficient
    )
    fit = jnp.full(living, -1e6).at[0].set(0.0)
    log_joint = jnp.tile(jnp.append(fit, advantage) + places, (10, 1))
    return responsibilities(log_joint, jnp.ones(living + 1, dtype=bool))[:, -1]


def spawns(advantage: float, living: int, coefficient: float) -> bool:
    share = candidate_share(advantage, living, coefficient)
    return bool(passes_threshold(share, jnp.asarray(living), 0.95))


def test_candidate_that_ties_in_steady_state_takes_a_sixth_and_does_not_spawn():
    np.testing.assert_allclose(candidate_share(0.0, 1, 1.0), np.full(10, 1 / 6), rtol=1e-6)
    assert not spawns(0.0, 1, 1.0)


def test_candidate_better_by_1_6_nats_on_all_tasks_spawns():
    assert spawns(1.6, 1, 1.0)


@pytest.mark.parametrize(
    ("living", "coefficient", "needed"),
    [
        (1, 1.0, 1.51), (2, 1.0, 0.84), (3, 1.0, 0.44), (4, 1.0, 0.16), (5, 1.0, -0.06),
        (1, 0.5, 0.70), (2, 0.5, 0.04), (3, 0.5, -0.36), (4, 0.5, -0.65), (5, 0.5, -0.87),
    ],
)  # fmt: skip
def test_advantage_needed_to_spawn_is_that_of_the_arithmetic(living, coefficient, needed):
    # The advantages are rounded to two digits.
    assert not spawns(needed - 0.01, living, coefficient)
    assert spawns(needed + 0.01, living, coefficient)


@pytest.mark.parametrize(
    ("living", "smallest"), [(1, 0.062), (2, 0.48), (3, 0.73), (4, 0.90), (5, 1.04)]
)
def test_smallest_coefficient_that_blocks_a_tie(living, smallest):
    assert spawns(0.0, living, smallest - 0.01)
    assert not spawns(0.0, living, smallest + 0.01)


def test_threshold_compares_the_mean_over_the_batch():
    share = jnp.array([1.0, 1.0, 0.0, 0.0])
    assert passes_threshold(share, jnp.asarray(1), 0.95)
    assert not passes_threshold(share, jnp.asarray(1), 1.0)


@pytest.mark.parametrize(
    ("remaining", "opened", "expected"), [(0, False, 0), (3, False, 2), (0, True, 7)]
)
def test_cool_down_counts_down_and_starts_anew_with_a_birth(remaining, opened, expected):
    assert cooled(jnp.asarray(remaining), jnp.asarray(opened), 7) == expected


def test_growing_window_counts_more_iterations_with_every_cluster():
    counts = WindowedCounts(jnp.arange(1.0, 9.0).reshape(4, 2))
    np.testing.assert_allclose(counts.counts(1), [1, 2])
    np.testing.assert_allclose(counts.counts(3), [9, 12])
    np.testing.assert_allclose(counts.counts(), [16, 20])
    wider = counts.resized(6, 3)
    np.testing.assert_allclose(wider.counts(), [16, 20, 0])


def test_pruned_cluster_leaves_no_count_behind():
    counts = WindowedCounts(jnp.ones((2, 3))).without(jnp.array([False, True, False]))
    np.testing.assert_allclose(counts.counts(), [2, 0, 2])


@pytest.mark.parametrize(("clusters", "tasks"), [(1, 10.0), (1, 40000.0), (3, 95000.0), (8, 50.0)])
def test_mode_under_a_gamma_prior_is_where_a_fine_grid_has_its_maximum(clusters, tasks):
    """The density of log zeta, from the formula of the paper, on a grid."""
    logs = np.linspace(-12, 8, 200_001)
    zeta = np.exp(logs)
    density = gammaln(zeta) - gammaln(zeta + tasks) + (clusters + 1) * logs - zeta
    best = zeta[np.argmax(density)]
    np.testing.assert_allclose(gamma_mode(clusters, tasks), best, rtol=1e-3)


def test_concentration_from_expected_clusters_solves_e_k_is_zeta_log_n():
    np.testing.assert_allclose(expected_concentration(3.0, 95000.0), 3 / math.log(95000), rtol=1e-6)
    np.testing.assert_allclose(expected_concentration(3.0, 0.0), 3 / math.log(2), rtol=1e-6)


def test_concentration_is_the_number_of_tasks_in_a_batch_unless_another_is_asked_for():
    asked = {
        "batch": PaperMixture(),
        "number": PaperMixture(concentration=7.0),
        "expected": PaperMixture(concentration_from="expected", expected_clusters=2.0),
        "gamma": PaperMixture(concentration_from="gamma"),
    }
    found = {
        name: float(learner.zeta(jnp.asarray(2), jnp.asarray(100.0), jnp.asarray(4)))
        for name, learner in asked.items()
    }
    assert found["batch"] == 4
    assert found["number"] == 7
    assert found["expected"] == pytest.approx(2 / math.log(100), rel=1e-5)
    assert found["gamma"] == pytest.approx(float(gamma_mode(2, 100.0)), rel=1e-5)
