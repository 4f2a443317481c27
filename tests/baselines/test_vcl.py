import math
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.adaptation import Adaptation, adapted_loss
from taskmix.baselines import MAML, VCL
from taskmix.baselines.maml import MAMLState
from taskmix.baselines.normal import DiagonalNormal
from taskmix.models import MLP
from taskmix.tasks import Examples, Hints, TaskBatch

KEY = jax.random.key(0)
PARTS = {"model": MLP(hidden=(6,)), "adaptation": Adaptation(steps=1, rate=0.05)}
LEARNER = VCL(**PARTS, initial_log_variance=-4.0, samples=2, test_samples=3)


def batch_of(seed: int, boundary: bool = False) -> TaskBatch:
    x = jax.random.normal(jax.random.key(seed), (3, 8, 1))
    y = jnp.sin(x + seed)
    hints = Hints(jnp.zeros(3, dtype=int), jnp.asarray(boundary))
    return TaskBatch(Examples.full(x[:, :4], y[:, :4]), Examples.full(x[:, 4:], y[:, 4:]), hints)


@pytest.fixture(scope="module")
def step():
    return jax.jit(LEARNER.step)


@pytest.fixture(scope="module")
def first():
    return LEARNER.init(KEY, batch_of(0))


def test_first_prior_is_standard_normal(first):
    chex.assert_trees_all_equal(first.prior, jax.tree.map(jnp.zeros_like, first.params))


def test_posterior_becomes_the_prior_at_a_boundary(step, first):
    state, _ = step(first, batch_of(0), KEY)
    after, _ = step(state, batch_of(1, boundary=True), KEY)
    chex.assert_trees_all_equal(after.prior, state.params)
    chex.assert_trees_all_equal(step(state, batch_of(1), KEY)[0].prior, first.prior)


def test_boundary_before_anything_was_learned_adds_nothing(step, first):
    chex.assert_trees_all_equal(
        step(first, batch_of(0, boundary=True), KEY), step(first, batch_of(0), KEY)
    )


def test_gradient_in_mean_and_variance_is_that_of_the_expected_loss(first):
    """Against the derivative of the drawn loss itself, for the same draws."""
    batch = batch_of(4)
    gradient, loss = jax.jit(LEARNER._expected_gradient)(first.params, batch, KEY)

    def expected_loss(posterior: DiagonalNormal) -> jax.Array:
        losses = []
        for key in jax.random.split(KEY, LEARNER.samples):
            params = posterior.sample(key)
            task_loss = partial(adapted_loss, LEARNER.model, LEARNER.likelihood, LEARNER.adaptation)
            results = jax.vmap(partial(task_loss, params))(batch.support, batch.query)[1]
            losses.append(jnp.mean(results.loss))
        return jnp.mean(jnp.stack(losses))

    value, expected = jax.jit(jax.value_and_grad(expected_loss))(first.params)
    np.testing.assert_allclose(loss.mean(), value, rtol=1e-5)
    chex.assert_trees_all_close(gradient, expected, rtol=1e-3, atol=1e-6)


def test_prediction_is_the_mean_over_draws_that_differ(first):
    one = jax.tree.map(lambda leaf: leaf[0], (batch_of(0).support, batch_of(0).query))
    prediction = jax.jit(LEARNER.predict)(first, one[0], one[1].x)
    predict = jax.jit(MAML(**PARTS).predict)
    draws = [
        predict(MAMLState(first.params.sample(key), None), one[0], one[1].x).mean
        for key in jax.random.split(jax.random.key(0), 3)
    ]
    np.testing.assert_allclose(prediction.mean, np.mean(draws, axis=0), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(prediction.variance, np.var(draws, axis=0), rtol=1e-4)
    assert (prediction.variance > 0).all()


def test_certain_posterior_and_no_prior_are_maml():
    """Within a phase: to the next one a certain posterior is a prior that nothing moves."""
    certain = VCL(**PARTS, initial_log_variance=-40.0, phase_tasks=10**12)
    maml = MAML(**PARTS)
    step, expected_step = jax.jit(certain.step), jax.jit(maml.step)
    state, expected = certain.init(KEY, batch_of(0)), maml.init(KEY, batch_of(0))
    for seed in range(4):
        batch = batch_of(seed)
        state, info = step(state, batch, KEY)
        expected, expected_info = expected_step(expected, batch, KEY)
        chex.assert_trees_all_close(state.params.mean, expected.params, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(info.error, expected_info.error, rtol=1e-3)


def test_both_numbers_of_a_parameter_are_counted(first):
    assert LEARNER.parameters(first) == 2 * MAML(**PARTS).parameters(
        MAML(**PARTS).init(KEY, batch_of(0))
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [("phase_tasks", 0), ("samples", 0), ("test_samples", 0), ("initial_log_variance", math.nan)],
)
def test_bad_hyperparameter_is_refused_by_name_and_value(field, value):
    with pytest.raises(ValueError, match=rf"^{field} is {value};"):
        VCL(**{field: value})
