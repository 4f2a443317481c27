import dataclasses
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from taskmix.mixture.calibration import SMALLEST_VARIANCE, Typical
from taskmix.mixture.regimes import (
    BatchSummary,
    RegimeFilter,
    grown_regimes,
    log_evidence,
    summarise,
)

MEANS, VARIANCES = np.array([0.0, 1.0, -0.5]), np.array([1.0, 0.5, 2.0])
LOSSES = Typical(
    mean=jnp.asarray(MEANS, jnp.float32),
    variance=jnp.asarray(VARIANCES - SMALLEST_VARIANCE, jnp.float32),
    batches=jnp.ones(3),
)
ALIVE = jnp.ones(3, dtype=bool)
FILTER = RegimeFilter(hazard=0.1, concentration=0.7, breadth=1.3, memory=4)


def drawn(seed: int, tasks: int = 4):
    """Log losses and scales of the tasks of a batch, for each cluster."""
    generator = np.random.default_rng(seed)
    return generator.normal(size=(tasks, 3)), generator.normal(size=(tasks, 3))


def summary_of(log_losses, scale=None) -> BatchSummary:
    scale = np.zeros_like(log_losses) if scale is None else scale
    return summarise(jnp.asarray(log_losses, jnp.float32), jnp.asarray(scale, jnp.float32))


def slow_evidence(log_losses, scale):
    """log p of a batch, task by task, without the constant of 2 pi."""
    normal = stats.norm(MEANS, np.sqrt(VARIANCES))
    constant = 0.5 * np.log(2 * np.pi)
    return (normal.logpdf(log_losses) + constant + scale).sum(axis=0)


def test_evidence_is_the_sum_over_the_tasks():
    log_losses, scale = drawn(0)
    found = log_evidence(summary_of(log_losses, scale), LOSSES)
    np.testing.assert_allclose(found, slow_evidence(log_losses, scale), rtol=1e-4)


@pytest.mark.parametrize("cluster", [0, 1, 2])
def test_bayes_factor_is_the_integral_over_the_unknown_mean(cluster):
    log_losses, _ = drawn(1)
    own, mean, variance = log_losses[:, cluster], MEANS[cluster], VARIANCES[cluster]

    def joint(unknown):
        prior = stats.norm(mean, FILTER.breadth * np.sqrt(variance)).pdf(unknown)
        return prior * stats.norm(unknown, np.sqrt(variance)).pdf(own).prod()

    fresh, _ = integrate.quad(joint, mean - 30, mean + 30, points=[mean, own.mean()], limit=200)
    known = stats.norm(mean, np.sqrt(variance)).pdf(own).prod()
    found = FILTER.log_bayes_factor(summary_of(log_losses), LOSSES)[cluster]
    np.testing.assert_allclose(found, np.log(fresh / known), rtol=1e-4, atol=1e-4)


def test_belief_is_that_of_all_paths_through_the_regimes():
    """The counts of entries are held fixed: the filter follows them along its best path only."""
    entered, start = jnp.array([3.0, 2.0, 1.0]), np.array([0.2, 0.5, 0.3])
    batches = [drawn(seed) for seed in range(4)]
    regimes = dataclasses.replace(
        FILTER.init(3), belief=jnp.asarray(start, jnp.float32), entered=entered
    )
    for log_losses, scale in batches:
        regimes, verdict = FILTER.judge(regimes, summary_of(log_losses, scale), LOSSES, ALIVE)
        regimes = dataclasses.replace(regimes, entered=entered)

    places = np.asarray(entered) / (6 + FILTER.concentration)
    transition = (1 - FILTER.hazard) * np.eye(3) + FILTER.hazard * places
    evidence = [slow_evidence(*batch) for batch in batches]
    paths = np.zeros(3)
    for path in itertools.product(range(3), repeat=5):
        weight = start[path[0]]
        for time, (before, now) in enumerate(itertools.pairwise(path)):
            weight *= transition[before, now] * np.exp(evidence[time][now])
        paths[path[-1]] += weight
    np.testing.assert_allclose(verdict.belief, paths / paths.sum(), rtol=1e-3)


def test_expected_regime_moves_from_belief_to_places_by_the_hazard():
    regimes = dataclasses.replace(
        FILTER.init(3), belief=jnp.array([0.0, 1.0, 0.0]), entered=jnp.array([1.0, 2.0, 0.0])
    )
    _, verdict = FILTER.judge(regimes, summary_of(drawn(0)[0]), LOSSES, ALIVE)
    # 0.1 of 1/3.7 and 2/3.7 beside 0.9; a new regime's 0.1 of 0.7/3.7 is left out.
    unscaled = np.array([0.1 / 3.7, 0.9 + 0.2 / 3.7, 0.0])
    np.testing.assert_allclose(verdict.expected, unscaled / unscaled.sum(), rtol=1e-5)


def test_regime_is_counted_as_entered_when_another_one_leads():
    regimes = FILTER.init(3)
    stays, verdict = FILTER.judge(
        regimes, summary_of(np.zeros((10, 3)), 30 * np.array([[1, 0, 0]] * 10)), LOSSES, ALIVE
    )
    np.testing.assert_array_equal(stays.entered, [1, 0, 0])
    assert verdict.belief[0] > 0.99
    both = dataclasses.replace(regimes, entered=jnp.array([1.0, 1.0, 0.0]))
    leaves, _ = FILTER.judge(
        both, summary_of(np.zeros((10, 3)), 30 * np.array([[0, 1, 0]] * 10)), LOSSES, ALIVE
    )
    np.testing.assert_array_equal(leaves.entered, [1, 2, 0])


ONE = Typical(jnp.zeros(1), jnp.full(1, 1 - SMALLEST_VARIANCE), jnp.ones(1))
DEFAULT = RegimeFilter()


def suspicions(batches) -> np.ndarray:
    """Probability of a new regime after each batch, one cluster with N(0, 1) losses."""

    def judge(regimes, batch):
        regimes, verdict = DEFAULT.judge(regimes, batch, ONE, jnp.ones(1, dtype=bool))
        return regimes, verdict.new

    stacked = jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *[summary_of(batch[:, None]) for batch in batches]
    )
    return np.asarray(jax.lax.scan(judge, DEFAULT.init(1), stacked)[1])


def shifted(shift: float, batches: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(shift, 1, size=(batches, 10))


@pytest.mark.parametrize("direction", [1, -1], ids=["harder", "easier"])
def test_consistent_surprise_is_soon_called_new(direction):
    found = suspicions(np.concatenate([shifted(0, 30), shifted(direction * 1.5, 5, seed=1)]))
    assert found[29] < 0.1
    assert found[-1] > 0.999


def test_typical_batches_are_seldom_called_new():
    found = suspicions(shifted(0, 500))
    assert found.max() < 0.9
    assert np.mean(found) < 0.01


def test_mild_surprise_of_several_batches_counts_more_than_that_of_one():
    mild = np.full((12, 10), 0.7) + np.linspace(-1.4, 1.4, 10)
    found = suspicions(mild)
    assert found[0] < 0.1
    assert found[-1] > 0.99
    assert (np.diff(found) >= 0).all()


def test_surprise_in_both_directions_cancels():
    mild = np.full((12, 10), 0.7) + np.linspace(-1.4, 1.4, 10)
    mild[::2] *= -1
    assert suspicions(mild).max() < 0.1


def test_switch_between_known_regimes_is_not_called_new():
    """Batches of both together fit neither regime, but each fits one of them."""
    apart = Typical(jnp.array([0.0, 3.0]), jnp.ones(2), jnp.ones(2))
    regimes = dataclasses.replace(DEFAULT.init(2), entered=jnp.ones(2))
    generator = np.random.default_rng(0)
    for iteration in range(40):
        own = int(iteration >= 20)
        log_losses = generator.normal(6, 1, size=(10, 2))
        log_losses[:, own] = generator.normal(3.0 * own, 1, size=10)
        # Residuals of ten examples a task: a larger loss is a less likely one.
        regimes, verdict = DEFAULT.judge(
            regimes, summary_of(log_losses, -5 * log_losses), apart, jnp.ones(2, dtype=bool)
        )
        assert verdict.belief[own] > 0.99
        assert verdict.new < 0.5


def test_dead_clusters_are_neither_believed_nor_blamed():
    alive = jnp.array([True, True, False])
    log_losses, scale = drawn(0)
    scale[:, 2] = 100.0
    _, verdict = FILTER.judge(FILTER.init(3), summary_of(log_losses, scale), LOSSES, alive)
    scale[:, 2] = -100.0
    _, other = FILTER.judge(FILTER.init(3), summary_of(log_losses, scale), LOSSES, alive)
    assert verdict.belief[2] == 0
    chex.assert_trees_all_equal(verdict, other)


@pytest.fixture(scope="module")
def running():
    return FILTER.judge(FILTER.init(3), summary_of(*drawn(0)), LOSSES, ALIVE)[0]


def test_birth_makes_the_newborn_the_regime_and_forgets_the_recent_batches(running):
    born = FILTER.born(running, jnp.asarray(1), jnp.asarray(True))
    np.testing.assert_array_equal(born.belief, [0, 1, 0])
    np.testing.assert_array_equal(born.entered, running.entered + jnp.array([0.0, 1.0, 0.0]))
    assert not born.recent.tasks.any()


def test_forgotten_batches_are_no_evidence(running):
    born = FILTER.born(running, jnp.asarray(1), jnp.asarray(True))
    clean = dataclasses.replace(FILTER.init(3), belief=born.belief, entered=born.entered)
    batch = summary_of(*drawn(5))
    chex.assert_trees_all_equal(
        FILTER.judge(born, batch, LOSSES, ALIVE)[1], FILTER.judge(clean, batch, LOSSES, ALIVE)[1]
    )


def test_no_birth_changes_no_bit(running):
    chex.assert_trees_all_equal(FILTER.born(running, jnp.asarray(1), jnp.asarray(False)), running)


def test_growth_believes_in_none_of_the_new(running):
    grown = grown_regimes(running)
    np.testing.assert_array_equal(grown.belief[3:], np.zeros(3))
    np.testing.assert_array_equal(grown.entered[3:], np.zeros(3))
    chex.assert_shape(grown.recent.mean, (4, 6))
    chex.assert_trees_all_equal(grown.recent.mean[:, :3], running.recent.mean)
