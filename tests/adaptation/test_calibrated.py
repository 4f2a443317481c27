"""What a task's evidence is when it is adapted by gradient steps: as it is, and calibrated."""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from tests.adaptation.lines import LIKELIHOOD, LINE, MODEL, SLOPE_2, task

from taskmix.adaptation import (
    Adaptation,
    TaskModel,
    annealed_optimiser,
)
from taskmix.adaptation.calibrated import CalibratedGradient, CalibratedParams
from taskmix.adaptation.gradient import Gradient
from taskmix.likelihood import Categorical, Gaussian
from taskmix.models import MLP
from taskmix.tasks import Examples

# Of a line with the slope 2 on noisy points of another, in batches with padding.
ADAPTATION = Adaptation(steps=2, rate=0.1, clip=1.5)
RNG = np.random.default_rng(0)
X = RNG.normal(size=12)
Y = 1.0 - X + 0.3 * RNG.normal(size=12)
MASK = np.array([True] * 4 + [False] + [True] * 2 + [True] * 4 + [False])
SUPPORT, QUERY = slice(0, 7), slice(7, 12)
CALIBRATED = CalibratedGradient(LINE, LIKELIHOOD, ADAPTATION, parts=3)
PARAMS = CalibratedParams(SLOPE_2, jnp.asarray(0.4), jnp.asarray(1.1))


def examples_of(part: slice) -> Examples:
    x, y = (jnp.asarray(a[part, None], dtype=jnp.float32) for a in (X, Y))
    return Examples(x, y, jnp.asarray(MASK[part])).without_padding_values()


def slow_line(x, y, slope=2.0, bias=0.0):
    """Slope and bias after two clipped gradient steps on the mean squared error."""
    for _ in range(ADAPTATION.steps):
        residual = slope * x + bias - y
        gradient = 2 * np.array([np.sum(residual * x), np.sum(residual)]) / max(len(x), 1)
        gradient *= min(1, ADAPTATION.clip / max(np.linalg.norm(gradient), 1e-30))
        slope, bias = np.array([slope, bias]) - ADAPTATION.rate * gradient
    return slope, bias


def real(part: slice) -> tuple[np.ndarray, np.ndarray]:
    return X[part][MASK[part]], Y[part][MASK[part]]


def slow_held_out(x, y, parts: int) -> np.ndarray:
    """Residuals of every point after adaptation to the points of the other parts."""
    residuals = []
    for i in range(len(x)):
        others = [j for j in range(len(x)) if j % parts != i % parts]
        slope, bias = slow_line(x[others], y[others])
        residuals.append(y[i] - slope * x[i] - bias)
    return np.array(residuals)


def slow_density(residuals: np.ndarray, log_scale: float, log_freedom: float) -> float:
    return stats.multivariate_t.logpdf(
        residuals,
        shape=np.exp(2 * log_scale) * np.eye(len(residuals)),
        df=2.1 + np.exp(log_freedom),
    )


@pytest.mark.parametrize("model", [Gradient(), CalibratedGradient()])
def test_task_models_meet_the_contract_and_say_that_their_evidence_is_no_probability(model):
    assert isinstance(model, TaskModel)
    assert not model.exact


def test_evidence_of_gradient_steps_is_the_fit_of_what_they_were_taken_on():
    (x, y), model = real(SUPPORT), Gradient(LINE, Gaussian(0.5), ADAPTATION)
    slope, bias = slow_line(x, y)
    expected = -np.sum(np.square(y - slope * x - bias)) / (2 * 0.5)
    support, query = examples_of(SUPPORT), examples_of(QUERY)
    np.testing.assert_allclose(model.evidence(SLOPE_2, support), expected, rtol=1e-5)
    judged = model.judge(SLOPE_2, support, query)
    np.testing.assert_allclose(judged.support, expected, rtol=1e-5)
    x, y = real(QUERY)
    whole = expected - np.sum(np.square(y - slope * x - bias)) / (2 * 0.5)
    np.testing.assert_allclose(judged.whole, whole, rtol=1e-5)
    assert judged.predictive.variance is None
    loss, result = model.loss(SLOPE_2, support, query)
    np.testing.assert_allclose(loss, np.mean(np.square(y - slope * x - bias)), rtol=1e-5)
    np.testing.assert_allclose(result.evidence, expected, rtol=1e-5)


def test_calibrated_evidence_is_that_of_held_out_residuals():
    expected = slow_density(slow_held_out(*real(SUPPORT), parts=3), 0.4, 1.1)
    found = CALIBRATED.evidence(PARAMS, examples_of(SUPPORT))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_calibrated_judgement_adds_the_residuals_of_the_query():
    known = slow_density(slow_held_out(*real(SUPPORT), parts=3), 0.4, 1.1)
    slope, bias = slow_line(*real(SUPPORT))
    x, y = real(QUERY)
    judged = CALIBRATED.judge(PARAMS, examples_of(SUPPORT), examples_of(QUERY))
    np.testing.assert_allclose(judged.support, known, rtol=1e-5)
    whole = known + slow_density(y - slope * x - bias, 0.4, 1.1)
    np.testing.assert_allclose(judged.whole, whole, rtol=1e-5)
    np.testing.assert_allclose(judged.predictive.mean[:4, 0], slope * x + bias, rtol=1e-5)


def test_calibrated_loss_is_the_query_loss_and_minus_the_density_per_example():
    slope, bias = slow_line(*real(SUPPORT))
    x, y = real(QUERY)
    residuals = y - slope * x - bias
    expected = np.mean(residuals**2) - slow_density(residuals, 0.4, 1.1) / len(residuals)
    loss, _ = CALIBRATED.loss(PARAMS, examples_of(SUPPORT), examples_of(QUERY))
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_calibrated_noise_is_the_variance_of_the_density():
    predictive = CALIBRATED.predict(PARAMS, examples_of(QUERY).x)
    freedom = 2.1 + math.exp(1.1)
    np.testing.assert_allclose(
        predictive.variance, math.exp(0.8) * freedom / (freedom - 2), rtol=1e-5
    )
    np.testing.assert_array_equal(predictive.uncertainty, 0)


def test_set_of_a_single_example_is_judged_by_the_initialisation():
    one = Examples.full(jnp.full((1, 1), 0.5), jnp.full((1, 1), 3.0))
    expected = slow_density(np.array([3.0 - 2.0 * 0.5]), 0.4, 1.1)
    np.testing.assert_allclose(CALIBRATED.evidence(PARAMS, one), expected, rtol=1e-5)


def test_evidence_of_no_examples_is_nothing():
    none = Examples(jnp.zeros((3, 1)), jnp.zeros((3, 1)), jnp.zeros(3, dtype=bool))
    np.testing.assert_allclose(CALIBRATED.evidence(PARAMS, none), 0, atol=1e-6)


@pytest.mark.parametrize("likelihood", [Gaussian(), Categorical()])
def test_diverged_adaptation_has_no_evidence_and_spoils_no_scale(likelihood):
    network = MLP(hidden=(), outputs=2)
    model = CalibratedGradient(network, likelihood, Adaptation(steps=2, clip=math.inf))
    broken = jax.tree.map(
        lambda leaf: jnp.full_like(leaf, jnp.inf), network.init(jax.random.key(0))
    )
    params = CalibratedParams(broken, jnp.zeros(()), jnp.zeros(()))
    y = jnp.zeros(3, dtype=int) if isinstance(likelihood, Categorical) else jnp.ones((3, 2))
    examples = Examples.full(jnp.ones((3, 1)), y)
    judged = model.judge(params, examples, examples)
    assert model.evidence(params, examples) == -jnp.inf
    assert judged.support == judged.whole == -jnp.inf
    gradient, _ = jax.grad(model.loss, has_aux=True)(params, examples, examples)
    assert jnp.isfinite(gradient.log_scale)
    assert jnp.isfinite(gradient.log_freedom)


def test_evidence_of_labels_is_the_log_likelihood_of_held_out_ones():
    """Without steps every label is predicted by the initialisation."""
    network = MLP(hidden=(), outputs=3)
    model = CalibratedGradient(network, Categorical(), Adaptation(steps=0))
    params = model.init(jax.random.key(0))
    x, y = jnp.asarray(X[:6, None], dtype=jnp.float32), jnp.array([0, 1, 2, 2, 1, 0])
    outputs = np.asarray(network.apply(params.network, x))
    expected = np.sum(outputs[np.arange(6), y]) - np.sum(np.log(np.exp(outputs).sum(axis=1)))
    np.testing.assert_allclose(model.evidence(params, Examples.full(x, y)), expected, rtol=1e-5)


def learned_networks(clip: float) -> list:
    """Networks after some steps of the same optimiser, without and with a calibration."""
    parts = (MODEL, LIKELIHOOD, Adaptation(steps=2, rate=0.05))
    _, _, support, query = task()
    networks = []
    for model in (Gradient(*parts), CalibratedGradient(*parts)):
        optimiser = annealed_optimiser(1e-2, clip=clip)
        params = model.init(jax.random.key(1))
        state = optimiser.init(params)

        @jax.jit
        def step(params, state, model=model, optimiser=optimiser):
            gradient, _ = jax.grad(model.loss, has_aux=True)(params, support, query)
            updates, state = optimiser.update(gradient, state, params)
            return jax.tree.map(jnp.add, params, updates), state

        for _ in range(5):
            params, state = step(params, state)
        networks.append(params)
    return networks


def test_calibration_moves_no_bit_of_the_network_unless_gradients_are_clipped_together():
    plain, calibrated = learned_networks(math.inf)
    chex.assert_trees_all_equal(calibrated.network, plain)
    assert calibrated.log_scale != 0
    clipped, calibrated = learned_networks(0.1)
    assert not jax.tree.all(
        jax.tree.map(lambda a, b: bool((a == b).all()), calibrated.network, clipped)
    )


def test_scale_comes_to_that_of_the_residuals():
    """Whatever the freedom, s^2 is most probable where it is the mean squared residual."""
    x = jnp.asarray(RNG.normal(size=(200, 1)), dtype=jnp.float32)
    query = Examples.full(x, 2 * x + 0.5 * jnp.asarray(RNG.normal(size=(200, 1)), jnp.float32))
    model = CalibratedGradient(LINE, LIKELIHOOD, Adaptation(steps=0))
    params = CalibratedParams(SLOPE_2, jnp.asarray(1.0), jnp.asarray(3.0))
    optimiser = annealed_optimiser(0.05)

    def step(carry, _):
        params, state = carry
        gradient, _ = jax.grad(model.loss, has_aux=True)(params, query, query)
        updates, state = optimiser.update(gradient, state, params)
        # The network stays where it is.
        return (
            CalibratedParams(
                params.network,
                params.log_scale + updates.log_scale,
                params.log_freedom + updates.log_freedom,
            ),
            state,
        ), None

    (params, _), _ = jax.lax.scan(step, (params, optimiser.init(params)), length=300)
    squared = np.mean(np.square(query.y - 2 * x))
    np.testing.assert_allclose(np.exp(2 * params.log_scale), squared, rtol=0.05)


def test_parts_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="parts is 1"):
        CalibratedGradient(parts=1)
