"""Likelihoods against numbers worked out by hand."""

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from taskmix.likelihood import Categorical, Gaussian, masked_mean

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


def test_gaussian_own_scale_of_four_examples_falls_by_two_logs_of_the_loss():
    value = Gaussian().own_scale(jnp.asarray(np.e**3), jnp.asarray(4))
    np.testing.assert_allclose(value, -6.0, rtol=1e-6)


@given(st.floats(0.1, 10.0), st.floats(0.1, 10.0), st.integers(1, 20))
def test_gaussian_own_scale_compares_clusters_alike_in_any_unit(loss, unit, count):
    def gap(scale):
        one = Gaussian().own_scale(jnp.asarray(scale * loss), jnp.asarray(count))
        two = Gaussian().own_scale(jnp.asarray(scale * 2 * loss), jnp.asarray(count))
        return one - two

    np.testing.assert_allclose(gap(unit**2), gap(1.0), rtol=1e-3, atol=1e-4)


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


def test_categorical_own_scale_is_the_log_likelihood_of_all_examples():
    value = Categorical().own_scale(jnp.asarray(0.5), jnp.asarray(6))
    np.testing.assert_allclose(value, -3.0)


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
    found = Gaussian().describe(jnp.ones((2, 3, 1)), jnp.ones((2, 3), bool))
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
