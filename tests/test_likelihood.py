"""Likelihoods against numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from taskmix.adaptation import Adaptation
from taskmix.baselines import LLAMA, MAML
from taskmix.likelihood import (
    Categorical,
    Describing,
    Gaussian,
    Likelihood,
    Poisson,
    Reporting,
    Scoring,
    input_statistics,
    masked_mean,
    reported,
)
from taskmix.models import MLP
from taskmix.tasks import Examples, TaskBatch

KEY = jax.random.key(0)

OUTPUTS = jnp.array([[1.0, 2.0], [0.0, -1.0]])
TARGETS = jnp.array([[0.0, 4.0], [0.0, 2.0]])


def test_gaussian_loss_is_the_mean_square_over_outputs():
    np.testing.assert_allclose(Gaussian().loss(OUTPUTS, TARGETS), [2.5, 4.5])


def test_gaussian_log_likelihood_is_minus_half_the_sum_of_squares_over_the_variance():
    np.testing.assert_allclose(Gaussian(2.0).log_likelihood(OUTPUTS, TARGETS), [-1.25, -2.25])


@pytest.mark.parametrize("variance", [0.0, -1.0, float("nan")])
def test_gaussian_refuses_a_variance_that_is_not_positive(variance):
    with pytest.raises(ValueError, match="must be positive"):
        Gaussian(variance)


def test_gaussian_error_equals_its_loss():
    np.testing.assert_array_equal(
        Gaussian().error(OUTPUTS, TARGETS), Gaussian().loss(OUTPUTS, TARGETS)
    )


def test_categorical_loss_is_minus_the_log_probability_of_the_target():
    logits = jnp.log(jnp.array([[0.2, 0.3, 0.5], [0.1, 0.8, 0.1]]))
    loss = Categorical().loss(logits, jnp.array([2, 0]))
    np.testing.assert_allclose(loss, -np.log([0.5, 0.1]), rtol=1e-6)


def test_categorical_log_likelihood_is_minus_the_loss():
    y = jnp.array([1, 0])
    np.testing.assert_array_equal(
        Categorical().log_likelihood(OUTPUTS, y), -Categorical().loss(OUTPUTS, y)
    )


def test_categorical_predictive_sums_to_one_and_keeps_the_ranking():
    probabilities = Categorical().predictive(OUTPUTS)
    np.testing.assert_allclose(jnp.sum(probabilities, axis=-1), [1.0, 1.0], rtol=1e-6)
    np.testing.assert_array_equal(jnp.argmax(probabilities, -1), jnp.argmax(OUTPUTS, -1))


def test_categorical_error_is_one_where_the_most_likely_class_is_wrong():
    probabilities = jnp.array([[0.6, 0.4], [0.6, 0.4], [0.1, 0.9]])
    np.testing.assert_array_equal(
        Categorical().error(probabilities, jnp.array([0, 1, 1])), [0.0, 1.0, 0.0]
    )


def test_masked_mean_counts_only_real_examples():
    values = jnp.array([[1.0, 3.0, 100.0], [4.0, 100.0, 100.0]])
    mask = jnp.array([[True, True, False], [True, False, False]])
    np.testing.assert_array_equal(masked_mean(values, mask), [2.0, 4.0])


def test_masked_mean_of_nothing_is_zero():
    assert masked_mean(jnp.array([5.0, jnp.nan]), jnp.zeros(2, bool)) == 0.0


def test_masked_mean_ignores_a_nan_in_padding_also_in_its_gradient():
    mask = jnp.array([True, True, False])
    gradient = jax.grad(lambda v: masked_mean(v, mask))(jnp.array([1.0, 2.0, jnp.nan]))
    np.testing.assert_array_equal(gradient, [0.5, 0.5, 0.0])


def test_gaussian_says_nothing_of_inputs():
    found = input_statistics(Gaussian(), jnp.ones((2, 3, 1)), jnp.ones((2, 3), bool))
    assert found.shape == (2, 0)


def test_categorical_without_statistics_says_nothing_of_inputs():
    found = Categorical().describe(jnp.ones((3, 8, 8, 1)), jnp.ones(3, bool))
    assert found.shape == (0,)


def brightness_and_contrast(images):
    return jnp.stack([images.mean(axis=(-3, -2, -1)), images.max(axis=(-3, -2, -1))], axis=-1)


IMAGES = jnp.arange(2 * 3 * 4, dtype=jnp.float32).reshape(2, 3, 2, 2, 1)


def test_categorical_averages_the_statistics_of_the_real_examples():
    mask = jnp.array([[True, True, False], [False, False, True]])
    found = Categorical(inputs=brightness_and_contrast).describe(IMAGES, mask)
    # Image i holds 4 i to 4 i + 3: means 1.5 and 5.5, largest 3 and 7; then the image 5.
    np.testing.assert_allclose(found, [[3.5, 5.0], [21.5, 23.0]])


@pytest.mark.parametrize("content", [float("nan"), float("inf"), 1e30])
def test_padding_changes_nothing_in_what_is_said_of_inputs(content):
    likelihood = Categorical(inputs=brightness_and_contrast)
    mask = jnp.array([[True, True, False], [False, True, True]])
    padded = jnp.where(mask[..., None, None, None], IMAGES, content)
    np.testing.assert_array_equal(
        likelihood.describe(padded, mask), likelihood.describe(IMAGES, mask)
    )


def test_what_is_said_of_inputs_is_the_same_for_one_task_alone():
    likelihood = Categorical(inputs=brightness_and_contrast)
    mask = jnp.array([[True, True, False], [False, True, True]])
    alone = [likelihood.describe(x, m) for x, m in zip(IMAGES, mask, strict=True)]
    np.testing.assert_array_equal(jnp.stack(alone), likelihood.describe(IMAGES, mask))


def second_moment(likelihood, outputs):
    keys = jax.random.split(jax.random.key(0), 20_000)
    scores = jax.vmap(lambda key: likelihood.random_score(key, outputs))(keys)[:, 0]
    return np.asarray(scores.T @ scores / len(keys))


def test_random_score_of_classes_has_the_information_of_logits_as_second_moment():
    outputs = jnp.array([[1.0, -0.5, 0.3]])
    p = np.asarray(jax.nn.softmax(outputs)[0])
    expected = np.diag(p) - np.outer(p, p)
    np.testing.assert_allclose(second_moment(Categorical(), outputs), expected, atol=0.01)


def test_random_score_of_a_gaussian_has_the_inverse_variance_as_second_moment():
    found = second_moment(Gaussian(variance=0.25), jnp.zeros((1, 2)))
    np.testing.assert_allclose(found, 4 * np.eye(2), atol=0.1)
    np.testing.assert_allclose(np.diag(found), 4, rtol=1e-5)


def test_poisson_likelihood_is_scipys():
    rates, counts = np.array([[0.5], [4.0]]), np.array([[2.0], [3.0]])
    found = Poisson().log_likelihood(jnp.log(rates), jnp.asarray(counts))
    np.testing.assert_allclose(found, scipy.stats.poisson.logpmf(counts, rates)[:, 0], rtol=1e-5)


def test_poisson_loss_is_least_at_the_count_and_may_be_negative():
    """3 - 3 log 3 at a rate of 3."""
    outputs = jnp.log(jnp.array([[2.9], [3.0], [3.1]]))
    loss = Poisson().loss(outputs, jnp.full((3, 1), 3.0))
    assert loss[1] < min(loss[0], loss[2])
    np.testing.assert_allclose(loss[1], 3 - 3 * np.log(3), rtol=1e-5)
    assert loss[1] < 0


def test_poisson_error_of_no_count_is_twice_the_rate():
    np.testing.assert_allclose(Poisson().error(jnp.array([1.5]), jnp.array([0.0])), 3.0)


def test_poisson_is_finite_for_outputs_without_bounds():
    outputs = jnp.array([[1e30], [-1e30]])
    value, gradient = jax.value_and_grad(
        lambda o: jnp.sum(Poisson().loss(o, jnp.array([[2.0], [0.0]])))
    )(outputs)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


def test_likelihood_of_four_functions_is_one():
    assert isinstance(Poisson(), Likelihood)
    assert not isinstance(Poisson(), Describing | Scoring | Reporting)
    assert reported(Poisson()) == "error"
    assert input_statistics(Poisson(), jnp.ones((2, 3, 1)), jnp.ones((2, 3), bool)).shape == (2, 0)


def test_curvature_refuses_a_likelihood_without_scores():
    with pytest.raises(ValueError, match="curvature needs one with `random_score`"):
        LLAMA(likelihood=Poisson())


def test_learner_learns_counts():
    """Losses are negative from the start; rates of tasks lie between 1 and 20."""
    stream = Counts()
    learner = MAML(MLP(hidden=(8,)), Poisson(), Adaptation(3, 0.05), meta_rate=1e-2)
    step, state = jax.jit(learner.step), learner.init(KEY, stream(0))
    infos = []
    for iteration in range(300):
        state, info = step(state, stream(iteration), KEY)
        infos.append(info)
    late = infos[-50:]
    assert np.mean([info.error for info in late]) < 0.3 * np.mean(infos[0].error)
    assert np.mean([info.loss for info in late]) < 0


class Counts:
    def __call__(self, iteration):
        return self.batch(jax.random.fold_in(KEY, iteration))

    @staticmethod
    @jax.jit
    def batch(key):
        x_key, rate_key, y_key = jax.random.split(key, 3)
        x = jax.random.normal(x_key, (8, 20, 1))
        rate = jnp.exp(jax.random.uniform(rate_key, (8, 1, 1), maxval=3.0))
        y = jax.random.poisson(y_key, jnp.broadcast_to(rate, x.shape)).astype(float)
        return TaskBatch(Examples.full(x[:, :10], y[:, :10]), Examples.full(x[:, 10:], y[:, 10:]))
