"""Function families against closed forms."""

import math

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from hypothesis import assume, given

from taskmix.streams import FAMILIES, family

AMPLITUDE_SQUARED = (5**3 - 0.1**3) / (3 * 4.9)
"""E a^2 for a ~ U(0.1, 5)."""


def bump_cost() -> float:
    """E y^2 of the bump by the midpoint rule; the integral over x is an error function."""
    c, w = np.meshgrid(np.linspace(-3, 3, 201), np.arange(1, 2, 0.005) + 0.0025)
    inside = scipy.special.erf((5 - c) / w) + scipy.special.erf((5 + c) / w)
    return 12 * float(np.mean(w * inside)) * math.sqrt(math.pi) / 20


ZERO_PREDICTOR_COSTS = {
    "polynomial": 25 / 3 * (1 / 3 + 1 / 5 + 1 / 7),
    "literal-polynomial": 25 / 3 * (1 + 25 / 3),
    "sinusoid": AMPLITUDE_SQUARED / 2,
    "sawtooth": AMPLITUDE_SQUARED / 3,
    "absolute-value": (25 / 3 + 3) / 3,
    "step": 16 / 3,
    "bump": bump_cost(),
    "linear": 3 + 25 / 9,
    "quadratic": 4 / 3 + 25 / 36 + 0.03 * 125,
    "loud-sinusoid": 1.5**2 * AMPLITUDE_SQUARED / 2,
    "noisy-sinusoid": AMPLITUDE_SQUARED / 2,
    "drifting-sinusoid": AMPLITUDE_SQUARED / 2,
    "noise": 0.0,
}
"""Without the noise that a family may have."""


def test_every_family_has_a_closed_form_here():
    assert set(ZERO_PREDICTOR_COSTS) == set(FAMILIES)


@pytest.mark.parametrize("name", FAMILIES)
def test_zero_predictor_costs_what_the_closed_form_says(name):
    draws = 40_000
    keys = jax.random.split(jax.random.key(1), draws)
    x = jax.random.uniform(jax.random.key(2), (draws, 20), minval=-5, maxval=5)
    chosen = family(name)
    y = jax.jit(jax.vmap(lambda key, x: chosen.evaluate(chosen.sample(key), x)))(keys, x)
    costs = np.mean(np.square(y), axis=1)
    # Four standard errors over tasks, and 0.5 % for the cut-off last period of a sawtooth.
    tolerance = 4 * costs.std() / math.sqrt(draws) + 0.005 * costs.mean()
    assert abs(costs.mean() - ZERO_PREDICTOR_COSTS[name]) <= tolerance


@pytest.mark.parametrize("name", sorted(set(FAMILIES) - {"literal-polynomial", "loud-sinusoid"}))
def test_no_family_dominates_a_mean_over_families(name):
    assert 2 < ZERO_PREDICTOR_COSTS[name] + (family(name).noise or 0) ** 2 < 8


@pytest.mark.parametrize("name", FAMILIES)
def test_parameters_fill_their_ranges_and_stay_inside(name):
    chosen = family(name)
    drawn = jax.jit(jax.vmap(chosen.sample))(jax.random.split(jax.random.key(3), 5000))
    assert_filled(drawn, chosen.ranges)


def assert_filled(drawn, ranges):
    low, high = np.array(ranges, np.float32).reshape(-1, 2).T
    assert np.all((drawn >= low) & (drawn <= high))
    tolerance = 0.01 * (high - low).max(initial=0)
    np.testing.assert_allclose(drawn.min(axis=0), low, atol=tolerance)
    np.testing.assert_allclose(drawn.max(axis=0), high, atol=tolerance)


@pytest.mark.parametrize("progress", [0.25, 1.0])
def test_ranges_of_a_drifting_family_have_moved_by_the_progress(progress):
    chosen = family("drifting-sinusoid")
    keys = jax.random.split(jax.random.key(3), 5000)
    drawn = jax.jit(jax.vmap(chosen.sample, (0, None)))(keys, progress)
    shift = progress * math.pi
    assert_filled(drawn, ((0.1, 5.0), (shift, math.pi + shift)))


@pytest.mark.parametrize(
    ("name", "parameters", "x", "y"),
    [
        ("polynomial", [1.0, 2.0, 4.0], 2.5, 0.5 + 0.5 + 0.5),
        ("literal-polynomial", [3.0, -2.0], 4.0, -5.0),
        ("sinusoid", [3.0, math.pi / 2], math.pi, 3.0),
        ("sawtooth", [2.0, 4.0], 1.0, -1.0),
        ("sawtooth", [2.0, 4.0], -1.0, 1.0),
        ("absolute-value", [-0.5, 1.0], -3.0, -2.0),
        ("step", [1.0, -2.0, 0.5], 0.4, 1.0),
        ("step", [1.0, -2.0, 0.5], 0.5, -2.0),
        ("bump", [2.0, 1.0, 2.0], 3.0, 2 * math.exp(-0.5)),
        ("linear", [1.0, 0.5], -4.0, -1.0),
        ("quadratic", [1.0, 0.5, 0.25], 2.0, 3.0),
    ],
)
def test_value_worked_out_by_hand(name, parameters, x, y):
    value = jax.jit(family(name).evaluate)(np.float32(parameters), np.float32([x]))
    np.testing.assert_allclose(value, [y], rtol=1e-6)


@given(st.floats(0.1, 5), st.floats(0.05, math.pi), st.floats(-5, 5))
def test_sawtooth_equals_the_arctan_of_the_cotangent_away_from_jumps(a, period, x):
    turns = x / period
    assume(abs(turns - round(turns)) > 1e-2)
    value = family("sawtooth").evaluate(jnp.array([a, period]), jnp.array([x]))
    expected = -2 * a / math.pi * math.atan(1 / math.tan(math.pi * turns))
    np.testing.assert_allclose(value, [expected], atol=1e-3)


@given(st.floats(0.125, 5, width=32), st.floats(2**-9, math.pi), st.floats(-5, 5))
def test_sawtooth_never_exceeds_its_amplitude(a, period, x):
    value = family("sawtooth").evaluate(jnp.array([a, period]), jnp.array([x]))
    assert -a <= value[0] <= a


@pytest.mark.parametrize(
    ("typed", "meant"), [("sinusiod", "sinusoid"), ("absolute", "absolute-value")]
)
def test_unknown_family_error_suggests_the_nearest_name(typed, meant):
    with pytest.raises(ValueError, match=f"no function family '{typed}'. Did you mean '{meant}'"):
        family(typed)


def test_unknown_family_error_without_a_near_name_lists_all():
    with pytest.raises(ValueError, match=r"'zzz'. Choose from polynomial, sinusoid, .*quadratic"):
        family("zzz")
