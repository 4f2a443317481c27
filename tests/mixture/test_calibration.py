import itertools
import math
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from taskmix.adaptation import Adaptation
from taskmix.likelihood import Gaussian
from taskmix.mixture.calibration import (
    FITTED_SHARE,
    LARGEST_LOG_LOSS,
    SMALLEST_LOG_LOSS,
    SMALLEST_VARIANCE,
    Typical,
    log_loss,
    signature,
    support_log_loss,
)
from taskmix.models import MLP
from taskmix.tasks import Examples

BATCHES = np.random.default_rng(0).normal(-2.0, 1.5, size=(6, 4, 2)).astype(np.float32)
YES, NO = jnp.asarray(True), jnp.asarray(False)


def seen(batches, floor: float) -> Typical:
    """The second of two clusters has seen the batches (batches, tasks, statistics)."""
    typical = Typical.unknown(2, batches.shape[-1])
    for batch in batches:
        typical = typical.observe(jnp.asarray(1), jnp.asarray(batch), floor, YES)
    return typical


def test_mean_is_that_of_everything_seen_while_the_rate_is_one_over_n():
    np.testing.assert_allclose(seen(BATCHES, 0.01).mean[1], BATCHES.mean(axis=(0, 1)), rtol=1e-5)


def test_variance_is_that_of_everything_seen_with_a_first_batch_of_variance_one():
    expected = (1 + len(BATCHES) * BATCHES.var(axis=(0, 1))) / (len(BATCHES) + 1)
    np.testing.assert_allclose(seen(BATCHES, 0.01).variance[1], expected, rtol=1e-5)


def test_later_batches_are_averaged_exponentially_with_the_floor():
    """Two batches of one number each, 5 then 7, and a floor of 3/4."""
    typical = seen(np.array([[[5.0]], [[7.0]]], np.float32), 0.75)
    # The mean takes all of 5, then 3/4 of the shift of 2. The variance keeps 1/4 of 1, then
    # 1/4 of that, and gains 3/4 of the 1/4 * 2^2 between the batches.
    np.testing.assert_allclose(typical.mean[1], [6.5])
    np.testing.assert_allclose(typical.variance[1], [0.25 * 0.25 + 0.75 * 0.25 * 4])
    np.testing.assert_allclose(typical.batches[1], 2)


def test_clusters_not_observed_change_no_bit():
    before = seen(BATCHES, 0.01)
    batch = jnp.asarray(BATCHES[0])
    chex.assert_trees_all_equal(before.observe(jnp.asarray(1), batch, 0.01, NO), before)
    after = before.observe(jnp.asarray(1), batch, 0.01, YES)
    chex.assert_trees_all_equal(*(jax.tree.map(lambda leaf: leaf[0], t) for t in (after, before)))


def test_heir_keeps_the_spread_and_its_first_batch_sets_the_level():
    before = seen(BATCHES, 0.01)
    young = before.put(jnp.asarray(0), before.heir(jnp.asarray(1)), YES)
    np.testing.assert_array_equal(young.variance[0], before.variance[1])
    signatures = jnp.array([[9.0, -1.0], [11.0, 1.0]])
    after = young.observe(jnp.asarray(0), signatures, 0.01, YES)
    # A spread of 1 within the batch, and nothing for the way from the parent's level to 10 or 0.
    np.testing.assert_allclose(after.mean[0], [10, 0], rtol=1e-6)
    np.testing.assert_allclose(after.variance[0], (before.variance[1] + 1) / 2, rtol=1e-6)


MEANS = np.array([[0.0, 2.0], [1.0, -1.0], [-3.0, 0.5]], np.float32)
VARIANCES = np.array([[1.0, 0.5], [0.25, 3.0], [4.0, 2.0]], np.float32)
TYPICAL = Typical(jnp.asarray(MEANS), jnp.asarray(VARIANCES), jnp.ones(3))
X = np.array([[0.3, 1.5], [-0.7, 0.0], [2.0, 1.0]], np.float32)
DEVIATION = np.sqrt(VARIANCES + SMALLEST_VARIANCE)


def test_log_density_is_that_of_independent_normals_up_to_their_constants():
    expected = stats.norm(MEANS, DEVIATION).logpdf(X) + 0.5 * math.log(2 * math.pi)
    np.testing.assert_allclose(TYPICAL.log_density(jnp.asarray(X)), expected.sum(axis=1), rtol=1e-4)


def test_deviation_is_in_variances():
    expected = np.square((X - MEANS) / DEVIATION)
    np.testing.assert_allclose(TYPICAL.deviation(jnp.asarray(X)), expected, rtol=1e-5)


def test_novelty_of_one_statistic_is_the_share_of_a_normal_nearer_to_its_mean():
    alone = Typical(TYPICAL.mean[:, :1], TYPICAL.variance[:, :1], TYPICAL.batches)
    expected = special.erf(np.abs((X - MEANS) / DEVIATION)[:, 0] / math.sqrt(2))
    np.testing.assert_allclose(alone.novelty(jnp.asarray(X[:, :1])), expected, rtol=1e-5)


def test_novelty_is_the_share_of_a_clusters_own_signatures_that_are_more_typical():
    draws = np.random.default_rng(0).normal(size=(100_000, 3, 2)) * DEVIATION + MEANS
    nearer = np.square((draws - MEANS) / DEVIATION).sum(axis=-1) < np.square(
        (X - MEANS) / DEVIATION
    ).sum(axis=-1)
    np.testing.assert_allclose(TYPICAL.novelty(jnp.asarray(X)), nearer.mean(axis=0), atol=0.01)


def test_novelty_goes_from_nothing_at_the_mean_to_one_far_away():
    np.testing.assert_array_equal(TYPICAL.novelty(TYPICAL.mean), np.zeros(3))
    np.testing.assert_allclose(TYPICAL.novelty(TYPICAL.mean + 100), np.ones(3))


def test_signature_is_the_log_loss_followed_by_the_inputs_of_the_task():
    log_losses = jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    found = signature(log_losses, jnp.array([[7.0, 8.0], [9.0, 10.0]])[:, None])
    np.testing.assert_array_equal(found[:, 0], [[1, 7, 8], [4, 9, 10]])
    np.testing.assert_array_equal(found[:, 2], [[3, 7, 8], [6, 9, 10]])


def test_signature_without_inputs_is_the_log_loss_alone():
    found = signature(jnp.array([1.0, 2.0]), jnp.zeros((2, 0)))
    np.testing.assert_array_equal(found, [[1], [2]])


def test_expected_loss_is_the_mean_of_a_log_normal():
    expected = stats.lognorm(s=np.sqrt(VARIANCES[:, 0]), scale=np.exp(MEANS[:, 0])).mean()
    np.testing.assert_allclose(TYPICAL.expected_loss(), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (1.0, 0.0),
        (math.e, 1.0),
        (0.0, SMALLEST_LOG_LOSS),
        (1e-30, SMALLEST_LOG_LOSS),
        (1e30, LARGEST_LOG_LOSS),
        (math.inf, LARGEST_LOG_LOSS),
        (math.nan, LARGEST_LOG_LOSS),
    ],
)
def test_log_loss_stays_within_bounds(loss, expected):
    np.testing.assert_allclose(log_loss(jnp.asarray(loss)), expected, atol=1e-6)


RATE = 0.1
MODEL = MLP(hidden=())
PARAMS = MODEL.init(jax.random.key(0))


@partial(jax.jit, static_argnames="parts")
def found(x, y, mask, parts=5):
    return support_log_loss(
        MODEL, Gaussian(), Adaptation(steps=1, rate=RATE), PARAMS, Examples(x, y, mask), parts
    )


def examples(count: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(count).normal(size=(count, 1)).astype(np.float32)
    return x, 2 * x + 1


def slow_losses(x, y, fit: list[int]) -> np.ndarray:
    """Squared errors of a line after one gradient step on the chosen examples."""
    (layer,) = PARAMS
    slope, offset = float(layer.weight[0, 0]), float(layer.bias[0])
    if fit:
        residual = slope * x[fit, 0] + offset - y[fit, 0]
        step = 2 * RATE * np.mean(np.stack([residual * x[fit, 0], residual]), axis=1)
        slope, offset = slope - step[0], offset - step[1]
    return np.square(slope * x[:, 0] + offset - y[:, 0])


def slow_log_loss(x, y) -> float:
    """Refit without every pair of the five parts, one after the other."""
    count = len(x)
    held = [[] for _ in range(count)]
    for pair in itertools.combinations(range(5), 2):
        losses = slow_losses(x, y, [i for i in range(count) if i % 5 not in pair])
        for index in range(count):
            if index % 5 in pair:
                held[index].append(losses[index])
    fitted = slow_losses(x, y, list(range(count))).mean()
    held_out = np.mean([np.mean(losses) for losses in held])
    return FITTED_SHARE * np.log(fitted) + (1 - FITTED_SHARE) * np.log(held_out)


@pytest.mark.parametrize("count", [1, 2, 5, 7])
def test_support_loss_is_that_of_refitting_without_every_pair_of_parts(count):
    x, y = examples(count)
    np.testing.assert_allclose(
        found(x, y, np.ones(count, dtype=bool)), slow_log_loss(x, y), rtol=1e-4
    )


def test_support_loss_of_a_padded_task_is_that_of_its_real_examples():
    x, y = examples(5)
    y[3:] = 1e4
    np.testing.assert_allclose(
        found(x, y, np.arange(5) < 3), slow_log_loss(x[:3], y[:3]), rtol=1e-4
    )


def test_support_loss_without_parts_is_the_fitted_loss():
    x, y = examples(7)
    fitted = slow_losses(x, y, list(range(7))).mean()
    np.testing.assert_allclose(
        found(x, y, np.ones(7, dtype=bool), parts=0), np.log(fitted), rtol=1e-4
    )
