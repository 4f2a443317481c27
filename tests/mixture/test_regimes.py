import dataclasses
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

from taskmix.mixture.calibration import SMALLEST_VARIANCE, Typical
from taskmix.mixture.regimes import (
    BatchSummary,
    RegimeFilter,
    grown_regimes,
    log_bayes_factor,
    log_evidence,
    summarise,
)

MEANS, VARIANCES = np.array([0.0, 1.0, -0.5]), np.array([1.0, 0.5, 2.0])


def typical_of(means, variances) -> Typical:
    """Rows of statistics, or one statistic of each cluster; variances as they are used."""
    means, variances = (np.asarray(a, np.float32).reshape(len(a), -1) for a in (means, variances))
    return Typical(
        jnp.asarray(means), jnp.asarray(variances - SMALLEST_VARIANCE), jnp.ones(len(means))
    )


LOSSES = typical_of(MEANS, VARIANCES)
ALIVE = jnp.ones(3, dtype=bool)
FILTER = RegimeFilter(hazard=0.1, concentration=0.7, breadth=1.3, memory=4)


def drawn(seed: int, tasks: int = 4):
    """Log losses and scales of the tasks of a batch, for each cluster."""
    generator = np.random.default_rng(seed)
    return generator.normal(size=(tasks, 3)), generator.normal(size=(tasks, 3))


def summary_of(signatures, scale=None) -> BatchSummary:
    """Axes (tasks, clusters), or those and one of statistics."""
    signatures = jnp.asarray(signatures, jnp.float32)
    signatures = signatures.reshape(*signatures.shape[:2], -1)
    scale = np.zeros(signatures.shape[:2]) if scale is None else scale
    return summarise(signatures, jnp.asarray(scale, jnp.float32))


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
@pytest.mark.parametrize("prior_variance", [1.69, 0.01])
def test_bayes_factor_is_the_integral_over_the_unknown_mean(cluster, prior_variance):
    log_losses, _ = drawn(1)
    own, mean, variance = log_losses[:, cluster], MEANS[cluster], VARIANCES[cluster]

    def joint(unknown):
        prior = stats.norm(mean, np.sqrt(prior_variance * variance)).pdf(unknown)
        return prior * stats.norm(unknown, np.sqrt(variance)).pdf(own).prod()

    fresh, _ = integrate.quad(joint, mean - 30, mean + 30, points=[mean, own.mean()], limit=200)
    known = stats.norm(mean, np.sqrt(variance)).pdf(own).prod()
    found = log_bayes_factor(summary_of(log_losses), LOSSES, prior_variance)[cluster]
    np.testing.assert_allclose(found, np.log(fresh / known), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "measure",
    [log_evidence, lambda *a: log_bayes_factor(*a, 1.69)],
    ids=["evidence", "bayes factor"],
)
def test_two_statistics_count_as_the_sum_of_each_alone(measure):
    levels = np.stack([drawn(2)[0], drawn(3)[0]], axis=-1)
    means, variances = np.stack([MEANS, MEANS + 1], -1), np.stack([VARIANCES, 2 * VARIANCES], -1)
    together = measure(summary_of(levels), typical_of(means, variances))
    alone = [
        measure(summary_of(levels[..., s]), typical_of(means[:, s], variances[:, s]))
        for s in range(2)
    ]
    np.testing.assert_allclose(together, alone[0] + alone[1], rtol=1e-4, atol=1e-5)


def test_belief_is_that_of_all_paths_through_the_regimes():
    """The counts of entries are held fixed: the filter follows them along its best path only."""
    entered, start = jnp.array([3.0, 2.0, 1.0]), np.array([0.2, 0.5, 0.3])
    batches = [drawn(seed) for seed in range(4)]
    regimes = dataclasses.replace(
        FILTER.init(3, 1), belief=jnp.asarray(start, jnp.float32), entered=entered
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
        FILTER.init(3, 1), belief=jnp.array([0.0, 1.0, 0.0]), entered=jnp.array([1.0, 2.0, 0.0])
    )
    _, verdict = FILTER.judge(regimes, summary_of(drawn(0)[0]), LOSSES, ALIVE)
    # 0.1 of 1/3.7 and 2/3.7 beside 0.9; a new regime's 0.1 of 0.7/3.7 is left out.
    unscaled = np.array([0.1 / 3.7, 0.9 + 0.2 / 3.7, 0.0])
    np.testing.assert_allclose(verdict.expected, unscaled / unscaled.sum(), rtol=1e-5)


def test_regime_is_counted_as_entered_when_another_one_leads():
    regimes = FILTER.init(3, 1)
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


DEFAULT = RegimeFilter()


def suspicions(batches, filter_: RegimeFilter = DEFAULT) -> np.ndarray:
    """Probability of a new regime after each batch, one cluster with N(0, 1) signatures.

    Batches have the axes (tasks,) or (tasks, statistics).
    """
    statistics = batches[0][0].size
    typical = typical_of(np.zeros((1, statistics)), np.ones((1, statistics)))

    def judge(regimes, batch):
        regimes, verdict = filter_.judge(regimes, batch, typical, jnp.ones(1, dtype=bool))
        return regimes, verdict.new

    stacked = jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *[summary_of(batch[:, None]) for batch in batches]
    )
    return np.asarray(jax.lax.scan(judge, filter_.init(1, statistics), stacked)[1])


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
    mild = np.full((20, 10), 0.7) + np.linspace(-1.4, 1.4, 10)
    found = suspicions(mild)
    assert found[0] < 0.1
    assert found[-1] > 0.99
    assert (np.diff(found) >= 0).all()


def test_surprise_in_both_directions_cancels():
    mild = np.full((12, 10), 0.7) + np.linspace(-1.4, 1.4, 10)
    mild[::2] *= -1
    assert suspicions(mild).max() < 0.1


WANDERS = {wander: RegimeFilter(wander=wander) for wander in (0.0, 0.1)}
# Batches of 25 tasks: after 20 of them the mean of 500 is 0.3 * sqrt(500) = 6.7 errors away.
MODEST = np.full((20, 25), 0.3) + np.linspace(-1.4, 1.4, 25)


def by_hand(batches, filter_: RegimeFilter) -> float:
    """Probability of a new regime for one cluster with N(0, 1) losses, never left.

    The mean of the n newest losses is N(0, 1/n + w^2) where the level wanders by w, and
    N(0, 1/n) along the path that stays.
    """
    odds = []
    for k in range(1, len(batches) + 1):
        newest = np.concatenate(batches[-k:])
        n, mean = newest.size, newest.mean()

        def log_likelihood(variance, n=n, mean=mean):
            return stats.norm(0, np.sqrt(1 / n + variance)).logpdf(mean)

        stays = log_likelihood(0) + (k - 1) * np.log1p(-filter_.hazard)
        known = max(stays, log_likelihood(filter_.wander**2))
        odds.append(log_likelihood(filter_.breadth**2 + filter_.wander**2) - known)
    prior = np.log(filter_.hazard / 2)
    return special.expit(prior + special.logsumexp(odds))


@pytest.mark.parametrize("wander", WANDERS)
@pytest.mark.parametrize("shift", [0.0, 0.3, 0.5])
def test_probability_of_a_new_regime_is_that_worked_out_from_means(wander, shift):
    batches, filter_ = np.split(shifted(shift, 15), 15), WANDERS[wander]
    found = suspicions([batch[0] for batch in batches], filter_)[-1]
    np.testing.assert_allclose(found, by_hand(batches, filter_), rtol=1e-2)


def test_modest_deviation_that_lasts_is_new_if_levels_never_wander():
    assert suspicions(MODEST, WANDERS[0.0])[-1] > 0.999


def test_modest_deviation_that_lasts_is_a_known_level_that_has_wandered():
    assert suspicions(MODEST, WANDERS[0.1]).max() < 0.05


def test_level_does_not_wander_far():
    assert suspicions(MODEST + 0.7, WANDERS[0.1])[-1] > 0.999


@pytest.mark.parametrize("statistic", [0, 1], ids=["loss", "inputs"])
def test_shift_of_one_statistic_alone_is_noticed(statistic):
    batches = np.random.default_rng(0).normal(size=(35, 10, 2))
    batches[30:, :, statistic] += 1.5
    found = suspicions(batches)
    assert found[29] < 0.1
    assert found[-1] > 0.999


def test_switch_between_known_regimes_is_not_called_new():
    """Batches of both together fit neither regime, but each fits one of them."""
    apart = typical_of([0.0, 3.0], [1.01, 1.01])
    regimes = dataclasses.replace(DEFAULT.init(2, 1), entered=jnp.ones(2))
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
    _, verdict = FILTER.judge(FILTER.init(3, 1), summary_of(log_losses, scale), LOSSES, alive)
    scale[:, 2] = -100.0
    _, other = FILTER.judge(FILTER.init(3, 1), summary_of(log_losses, scale), LOSSES, alive)
    assert verdict.belief[2] == 0
    chex.assert_trees_all_equal(verdict, other)


@pytest.fixture(scope="module")
def running():
    return FILTER.judge(FILTER.init(3, 1), summary_of(*drawn(0)), LOSSES, ALIVE)[0]


def test_birth_makes_the_newborn_the_regime_and_forgets_the_recent_batches(running):
    born = FILTER.born(running, jnp.asarray(1), jnp.asarray(True))
    np.testing.assert_array_equal(born.belief, [0, 1, 0])
    np.testing.assert_array_equal(born.entered, running.entered + jnp.array([0.0, 1.0, 0.0]))
    assert not born.recent.tasks.any()


def test_forgotten_batches_are_no_evidence(running):
    born = FILTER.born(running, jnp.asarray(1), jnp.asarray(True))
    clean = dataclasses.replace(FILTER.init(3, 1), belief=born.belief, entered=born.entered)
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
    chex.assert_shape(grown.recent.mean, (4, 6, 1))
    chex.assert_trees_all_equal(grown.recent.mean[:, :3], running.recent.mean)
