"""The Bayesian head against textbook formulas in float64, and what must not change its answers."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from tests.adaptation.heads import (
    CLASSES,
    FEATURES,
    HEAD,
    HEADS,
    asked,
    design,
    evidence,
    freedom,
    judge,
    label_evidence,
    predicted,
    probabilities,
    random_examples,
    random_params,
    rows,
    spread,
    student_density,
    weight_space,
)

from taskmix.adaptation import BayesianHead, TaskModel, together
from taskmix.adaptation.head_params import (
    LEAST_LOG_NOISE,
    SMALLEST_NOISE,
)
from taskmix.likelihood import Poisson
from taskmix.tasks import Examples


def test_head_is_a_task_model_with_an_exact_evidence():
    assert isinstance(HEAD, TaskModel)
    assert HEAD.exact


@pytest.mark.parametrize("count", [1, 30])
def test_evidence_is_that_of_a_multivariate_t(count):
    with jax.enable_x64(True):
        params, examples = random_params(), random_examples(count)
        np.testing.assert_allclose(
            evidence(params, examples), student_density(params, examples), rtol=1e-9
        )


def test_evidence_in_float32_is_that_of_float64():
    params, examples = random_params(), random_examples(15)
    np.testing.assert_allclose(
        evidence(params, examples), student_density(params, examples), rtol=1e-4
    )


@pytest.mark.parametrize("count", [1, 30])
def test_prediction_is_that_of_the_posterior_of_the_weights(count):
    with jax.enable_x64(True):
        params, support, query = random_params(), random_examples(count), random_examples(4, seed=1)
        found = predicted(params, support, query.x)
        mean, uncertainty, noise = weight_space(params, support, query.x)
        np.testing.assert_allclose(found.mean, mean, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(found.uncertainty, uncertainty, rtol=1e-6)
        np.testing.assert_allclose(found.noise, np.broadcast_to(noise, mean.shape), rtol=1e-7)
        np.testing.assert_allclose(found.variance, uncertainty + noise, rtol=1e-6)


def test_evidence_is_the_product_of_predictions_of_one_point_after_the_other():
    with jax.enable_x64(True):
        params, examples = random_params(), random_examples(8)
        total = 0.0
        for k in range(8):
            before = Examples(examples.x, examples.y, jnp.arange(8) < k)
            found = predicted(params, before, examples.x[k : k + 1])
            nu = freedom(params) + k
            scale = np.sqrt(found.variance[0] * (nu - 2) / nu)
            total += stats.t(nu, found.mean[0], scale).logpdf(examples.y[k]).sum()
        # The jitter grows with the largest input of a set, so the sets do not quite agree.
        np.testing.assert_allclose(evidence(params, examples), total, atol=1e-3)


def test_without_support_the_prediction_is_the_prior():
    with jax.enable_x64(True):
        params, query = random_params(), random_examples(4)
        nothing = Examples(query.x, query.y, jnp.zeros(4, bool))
        found, phi = predicted(params, nothing, query.x), design(params, np.asarray(query.x))
        wider = freedom(params) / (freedom(params) - 2)
        prior = np.square(phi @ np.asarray(params.factor)).sum(axis=1) * wider
        np.testing.assert_allclose(found.mean, phi @ params.location, rtol=1e-9)
        np.testing.assert_allclose(found.uncertainty[:, 0], prior, rtol=1e-9)


def test_judgement_is_evidence_and_prediction():
    with jax.enable_x64(True):
        params, support, query = random_params(), random_examples(5), random_examples(6, seed=1)
        query = Examples(query.x, query.y, query.mask.at[2].set(False))
        found = judge(params, support, query)
        alone = predicted(params, support, query.x)
        # One jitter for support and query together: it differs from that of the support alone.
        np.testing.assert_allclose(found.support, evidence(params, support), rtol=1e-4)
        np.testing.assert_allclose(found.whole, evidence(params, together(support, query)))
        real = np.asarray(query.mask)
        for name in ("mean", "uncertainty", "noise"):
            np.testing.assert_allclose(
                getattr(found.predictive, name)[real],
                getattr(alone, name)[real],
                rtol=1e-3,
                atol=1e-4,
            )


def test_judgement_of_classes_is_evidence_and_prediction():
    params, support = random_params(CLASSES), random_examples(6, CLASSES)
    query = random_examples(4, CLASSES, seed=1)
    found = jax.jit(CLASSES.judge)(params, support, query)
    np.testing.assert_allclose(found.support, label_evidence(params, support), rtol=1e-5)
    np.testing.assert_allclose(
        found.whole, label_evidence(params, together(support, query)), rtol=1e-5
    )
    np.testing.assert_allclose(
        found.predictive.mean, probabilities(params, support, query.x), rtol=1e-5
    )


def test_loss_of_regression_is_minus_the_evidence_per_example():
    params, support, query = random_params(), random_examples(5), random_examples(3, seed=1)
    loss, result = jax.jit(HEAD.loss)(params, support, query)
    np.testing.assert_allclose(loss, -evidence(params, together(support, query)) / 8, rtol=1e-5)
    np.testing.assert_allclose(
        result.predicted, predicted(params, support, query.x).mean, atol=1e-4
    )


@pytest.mark.parametrize(("below", "prior"), [(-0.5, 0.0), (0.0, 0.0), (1.5, 2.25)])
def test_noise_is_kept_from_values_that_say_nothing(below, prior):
    """Only what is differentiated has the prior: the loss that is told is that of the tasks."""
    level = jnp.asarray(LEAST_LOG_NOISE - below)
    params = dataclasses.replace(random_params(), log_noise=level)
    support, query = random_examples(5), random_examples(3, seed=1)
    loss, result = jax.jit(HEAD.loss)(params, support, query)
    np.testing.assert_allclose(loss - result.loss, prior, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        result.loss, -evidence(params, together(support, query)) / 8, rtol=1e-5
    )


def test_loss_of_classes_is_the_cross_entropy_of_the_real_queries():
    params, support = random_params(CLASSES), random_examples(6, CLASSES)
    query = random_examples(4, CLASSES, seed=1)
    query = Examples(query.x, query.y, query.mask.at[0].set(False))
    loss, result = jax.jit(CLASSES.loss)(params, support, query)
    chances = np.asarray(probabilities(params, support, query.x))
    np.testing.assert_allclose(
        loss, -np.log(chances[np.arange(1, 4), query.y[1:]]).mean(), rtol=1e-5
    )
    np.testing.assert_allclose(result.predicted, chances, rtol=1e-5)


def of_the_real(asked_of, query):
    """The same without what was said of queries that are padding."""
    loss, gradient, judged, evidence = asked_of
    real = np.asarray(query.mask)
    predictive = jax.tree.map(lambda leaf: np.asarray(leaf)[real], judged.predictive)
    return jax.tree.leaves((loss, gradient, judged.support, judged.whole, predictive, evidence))


@HEADS
def test_what_padding_holds_changes_no_bit(head):
    params = random_params(head)
    answers = []
    for content in (0, 1, 1000):
        support = spread(random_examples(5, head), (1, 2, 4, 5, 8), content)
        query = spread(random_examples(6, head, seed=1), (0, 1, 2, 5, 6, 9), content)
        answers.append(of_the_real(asked(head, params, support, query), query))
    for one, two, three in zip(*answers, strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)


@HEADS
@pytest.mark.parametrize("places", [(0, 1, 2, 3, 4), (3, 4, 5, 6, 7), (0, 2, 3, 7, 9)])
def test_padding_anywhere_changes_only_rounding(head, places):
    with jax.enable_x64(True):
        params, query = random_params(head), random_examples(6, head, seed=1)
        support, long_query = random_examples(5, head), spread(query, (1, 2, 4, 5, 8, 9), 0)
        short = of_the_real(asked(head, params, support, query), query)
        long = of_the_real(asked(head, params, spread(support, places, 0), long_query), long_query)
        for one, other in zip(short, long, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@HEADS
def test_padding_in_float32_changes_only_rounding(head):
    params, support = random_params(head), random_examples(5, head)
    query = random_examples(6, head, seed=1)
    short = of_the_real(asked(head, params, support, query), query)
    long_query = spread(query, (1, 2, 4, 5, 8, 9), 0)
    padded = spread(support, (0, 2, 3, 7, 9), 0)
    long = of_the_real(asked(head, params, padded, long_query), long_query)
    for one, other in zip(short, long, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@HEADS
def test_order_of_the_support_set_does_not_matter(head):
    with jax.enable_x64(True):
        params, query = random_params(head), random_examples(6, head, seed=1)
        support = random_examples(5, head)
        one = of_the_real(asked(head, params, support, query), query)
        other = of_the_real(asked(head, params, rows(support, [3, 1, 4, 0, 2]), query), query)
        for before, after in zip(one, other, strict=True):
            np.testing.assert_allclose(before, after, rtol=1e-9, atol=1e-12)


def drawn_from_the_prior(params, tasks, count):
    """Inputs and targets of one output, with a factor of its own for each task."""
    rng, nu = np.random.default_rng(0), freedom(params)
    noise = math.sqrt(SMALLEST_NOISE + math.exp(2 * params.log_noise))
    factor, location = np.asarray(params.factor), np.asarray(params.location)[:, 0]
    x = rng.normal(size=(tasks, count, 2))
    width = np.sqrt(nu / rng.chisquare(nu, size=(tasks, 1)))
    weights = location + width * (rng.normal(size=(tasks, len(location))) @ factor.T)
    phi = design(params, x.reshape(-1, 2)).reshape(tasks, count, -1)
    y = np.einsum("tcw,tw->tc", phi, weights) + width * noise * rng.normal(size=(tasks, count))
    return jnp.asarray(x), jnp.asarray(y[..., None])


@pytest.mark.parametrize("shots", [1, 5])
def test_intervals_hold_what_they_say_on_tasks_drawn_from_the_prior(shots):
    head = BayesianHead(FEATURES, outputs=1, inputs=2, input_scale=2.0, width=4)
    params = random_params(head)
    x, y = drawn_from_the_prior(params, 20_000, shots + 1)

    @jax.jit
    @jax.vmap
    def ahead(support, query_x):
        return head.predict(head.adapt(params, support), query_x)

    found = ahead(Examples.full(x[:, :shots], y[:, :shots]), x[:, shots:])
    nu = freedom(params) + shots
    half = stats.t(nu).ppf(0.95) * np.sqrt(found.variance * (nu - 2) / nu)
    covered = np.mean(np.abs(found.mean - y[:, shots:]) < half)
    # One query per task, so that they are independent: four standard errors.
    assert abs(covered - 0.9) < 4 * math.sqrt(0.9 * 0.1 / 20_000)


def test_variance_differs_between_tasks_that_have_the_same_inputs():
    params, quiet = random_params(), random_examples(5)
    loud = Examples(quiet.x, 10 * quiet.y, quiet.mask)
    query = random_examples(4, seed=1)
    one, other = predicted(params, quiet, query.x), predicted(params, loud, query.x)
    assert np.all(other.uncertainty > 5 * one.uncertainty)
    assert np.all(other.noise > 5 * one.noise)


def test_uncertainty_falls_with_every_example_and_noise_stays():
    """By as much as the scale of the task allows: it is divided out."""
    params, support = random_params(), random_examples(12)
    query = random_examples(4, seed=1)
    shares = []
    for count in range(13):
        first = Examples(support.x, support.y, jnp.arange(12) < count)
        found = predicted(params, first, query.x)
        shares.append(np.asarray(found.uncertainty / found.noise))
    assert np.all(np.diff(shares, axis=0) < 1e-3)


def test_label_evidence_is_that_of_refitting_without_the_example():
    with jax.enable_x64(True):
        params, examples = random_params(CLASSES), random_examples(7, CLASSES)
        total = 0.0
        for left_out in range(7):
            others = Examples(examples.x, examples.y, jnp.arange(7) != left_out)
            chances = probabilities(params, others, examples.x[left_out : left_out + 1])
            total += np.log(chances[0, examples.y[left_out]])
        # The jitter changes where the example left out is the largest.
        np.testing.assert_allclose(label_evidence(params, examples), total, rtol=1e-4)


def test_permuting_labels_permutes_probabilities_and_leaves_the_evidence():
    params, support = random_params(CLASSES), random_examples(7, CLASSES)
    renamed, query = jnp.array([2, 0, 1]), random_examples(4, CLASSES, seed=1)
    other = Examples(support.x, renamed[support.y], support.mask)
    np.testing.assert_allclose(
        probabilities(params, other, query.x)[:, renamed],
        probabilities(params, support, query.x),
        rtol=1e-4,
    )
    np.testing.assert_allclose(
        label_evidence(params, other), label_evidence(params, support), rtol=1e-5
    )


def test_class_without_an_example_gets_less_than_the_class_of_a_neighbour():
    params, support = random_params(CLASSES), random_examples(6, CLASSES)
    ones = Examples(support.x, jnp.ones(6, int), support.mask)
    assert np.all(jnp.argmax(probabilities(params, ones, support.x), axis=-1) == 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"outputs": 0}, "outputs is 0; it must be 1 or more"),
        ({"inputs": -1}, "inputs is -1; it must be 0 or more"),
        ({"width": 0}, "width is 0; it must be 1 or more"),
        ({"input_scale": 0.0}, "input_scale is 0.0; it must be positive"),
        ({"input_scale": math.nan}, "input_scale is nan; it must be positive"),
    ],
)
def test_setting_that_makes_no_sense_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        BayesianHead(**settings)


def test_likelihood_that_has_no_closed_form_is_refused_rather_than_taken_for_another():
    with pytest.raises(ValueError, match="not for Poisson; use the task model gradient"):
        BayesianHead(likelihood=Poisson())
