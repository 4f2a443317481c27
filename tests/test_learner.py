"""Distributions of predictions: mixtures of symmetric parts, and the intervals made of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from taskmix.learner import Prediction
from taskmix.prediction import LEVELS, Mix

CUMULATIVE = jax.jit(jax.vmap(Mix.cumulative, (None, 0)))
"""Of one mixture at several values."""
NORMAL = jnp.asarray(scipy.stats.norm.ppf((1 + np.array(LEVELS)) / 2), dtype=jnp.float32)


def mix_of(weights, means, deviations, widths=None) -> Mix:
    """Parts with one mean and one deviation each, of one query with one output."""
    parts = len(weights)
    widths = jnp.broadcast_to(NORMAL, (parts, len(LEVELS))) if widths is None else widths
    return Mix(
        jnp.asarray(weights),
        jnp.asarray(means)[:, None, None],
        jnp.asarray(deviations)[:, None, None],
        widths,
    )


def at(*values: float) -> jax.Array:
    return jnp.asarray(values)[:, None]


def below(mix: Mix, *values: float) -> np.ndarray:
    """The cumulative probability at several values."""
    return np.asarray(CUMULATIVE(mix, jnp.asarray(values)[:, None, None])[:, 0, 0])


SEVERAL = mix_of([0.2, 0.5, 0.3], [-3.0, 0.5, 4.0], [0.3, 2.0, 1.0])


@pytest.mark.parametrize("level", [0.001, 0.3, 0.95])
def test_quantile_inverts_cumulative(level):
    np.testing.assert_allclose(
        SEVERAL.cumulative(SEVERAL.quantile(level)), level, rtol=0, atol=2e-6
    )


@pytest.mark.parametrize("level", [0.05, 0.25, 0.975])
def test_one_normal_part_has_normal_quantiles(level):
    found = mix_of([1.0], [2.0], [3.0]).quantile(level)
    np.testing.assert_allclose(found, scipy.stats.norm.ppf(level, 2, 3), atol=0.03)


def test_widths_are_met_exactly_at_their_own_levels():
    """Half a width to each side, in deviations: 2 + 3 * the width of 0.9."""
    widths = jnp.linspace(0.1, 7.0, len(LEVELS))[None]
    found = mix_of([1.0], [2.0], [3.0], widths).quantile(0.95)
    np.testing.assert_allclose(found, 2 + 3 * widths[0, LEVELS.index(0.9)], rtol=1e-5)


def test_between_two_levels_probability_is_linear_in_the_width():
    mix = mix_of([1.0], [0.0], [1.0])
    middle = (NORMAL[3] + NORMAL[4]) / 2
    np.testing.assert_allclose(below(mix, middle), 0.5 + (LEVELS[3] + LEVELS[4]) / 4, rtol=1e-6)


def test_beyond_the_last_level_the_rest_falls_with_the_third_power():
    mix = mix_of([1.0], [0.0], [1.0])
    outside = 2 * (1 - below(mix, 2 * float(NORMAL[-1])))
    np.testing.assert_allclose(outside, 0.001 / 8, rtol=2e-3)


def test_cumulative_of_a_mixture_is_the_weighted_sum_of_its_parts():
    one, other = mix_of([1.0], [0.0], [1.0]), mix_of([1.0], [3.0], [0.5])
    both = mix_of([0.3, 0.7], [0.0, 3.0], [1.0, 0.5])
    y = (-1.0, 0.4, 2.8, 5.0)
    np.testing.assert_allclose(below(both, *y), 0.3 * below(one, *y) + 0.7 * below(other, *y))


def test_cumulative_rises_from_zero_to_one():
    found = below(SEVERAL, -1e6, *np.linspace(-8, 8, 60), 1e6)
    assert (np.diff(found) >= 0).all()
    np.testing.assert_allclose(found[[0, -1]], [0, 1], atol=1e-6)


def test_median_of_a_symmetric_mixture_is_its_centre():
    mix = mix_of([0.4, 0.2, 0.4], [-2.0, 1.0, 4.0], [1.0, 3.0, 1.0])
    np.testing.assert_allclose(mix.quantile(0.5), 1.0, atol=1e-4)


def test_a_part_without_weight_does_not_move_a_quantile():
    with_idle = mix_of([0.2, 0.5, 0.3, 0.0], [-3.0, 0.5, 4.0, 90.0], [0.3, 2.0, 1.0, 7.0])
    np.testing.assert_allclose(with_idle.quantile(0.9), SEVERAL.quantile(0.9), atol=1e-4)


def test_equal_widths_are_a_jump_of_probability():
    """As where many residuals are the same."""
    mix = mix_of([1.0], [0.0], [1.0], jnp.ones((1, len(LEVELS))))
    np.testing.assert_allclose(
        below(mix, 0.999, 1.001), [0.5 + 0.05 * 0.999 / 2, 0.9995], rtol=1e-5
    )


def test_quantiles_keep_the_axes_of_tasks_queries_and_outputs():
    means = jax.random.normal(jax.random.key(0), (2, 3, 4, 5))
    widths = jnp.broadcast_to(NORMAL, (2, 3, len(LEVELS)))
    mix = Mix(jnp.full((2, 3), 1 / 3), means, jnp.ones_like(means), widths)
    found = mix.quantile(0.8)
    one = Mix(mix.weights[1], means[1], mix.deviation[1], widths[1]).quantile(0.8)
    np.testing.assert_allclose(found[1], one, rtol=1e-5)


def prediction_of(mean: float, variance: float | None, mix: Mix | None = None) -> Prediction:
    known = None if variance is None else at(variance)
    return Prediction(at(mean), at(mean)[None], jnp.ones(1), variance=known, mix=mix)


def test_interval_without_a_mix_is_normal():
    low, high = prediction_of(1.0, 4.0).interval(0.9)
    np.testing.assert_allclose([low[0, 0], high[0, 0]], scipy.stats.norm(1, 2).interval(0.9))


def test_interval_leaves_the_same_probability_on_both_sides():
    low, high = prediction_of(0.0, 1.0, SEVERAL).interval(0.8)
    np.testing.assert_allclose(SEVERAL.cumulative(low), 0.1, atol=1e-5)
    np.testing.assert_allclose(SEVERAL.cumulative(high), 0.9, atol=1e-5)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, float("nan")])
def test_interval_of_an_impossible_level_is_refused(level):
    with pytest.raises(ValueError, match="level is"):
        prediction_of(0.0, 1.0).interval(level)


def test_interval_of_a_learner_without_uncertainty_is_refused():
    with pytest.raises(ValueError, match="does not know how uncertain"):
        prediction_of(0.0, None).interval()
