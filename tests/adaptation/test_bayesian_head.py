"""The Bayesian head against textbook formulas in float64, and what must not change its answers."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

from taskmix.adaptation import BayesianHead, TaskModel, together
from taskmix.adaptation.bayesian_head import JITTER
from taskmix.adaptation.head_params import (
    LEAST_FREEDOM,
    LEAST_LOG_NOISE,
    SMALLEST_NOISE,
)
from taskmix.likelihood import Categorical, Poisson
from taskmix.models import MLP
from taskmix.tasks import Examples

FEATURES = MLP(inputs=2, hidden=(5,), outputs=4, activation="tanh", init_scale=0.0)
HEAD = BayesianHead(FEATURES, outputs=2, inputs=2, input_scale=2.0, width=4)
CLASSES = BayesianHead(FEATURES, Categorical(), outputs=3, inputs=2, width=4)
HEADS = pytest.mark.parametrize("head", [HEAD, CLASSES], ids=["regression", "classes"])

# The code that users get: a gradient may be right in one kind of code and wrong in another.
as_users_do = functools.partial(jax.jit, compiler_options={"xla_cpu_use_fusion_emitters": True})

evidence = jax.jit(HEAD.evidence)
label_evidence = jax.jit(CLASSES.evidence)
judge = jax.jit(HEAD.judge)


@jax.jit
def predicted(params, support, query_x):
    return HEAD.predict(HEAD.adapt(params, support), query_x)


@jax.jit
def probabilities(params, support, query_x):
    return CLASSES.predict(CLASSES.adapt(params, support), query_x).mean


def random_params(head=HEAD, seed=0):
    """Parameters of which each takes part: no zero, and a factor that is not symmetric.

    They are the same in both precisions, up to rounding, which those of ``init`` are not.
    """
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: jnp.asarray(np.float64(leaf) + 0.3 * rng.normal(size=leaf.shape)),
        first_params(head, seed),
    )


@functools.cache
def first_params(head, seed):
    with jax.enable_x64(False):
        return jax.tree.map(np.asarray, jax.jit(head.init)(jax.random.key(seed)))


def random_examples(count, head=HEAD, seed=0):
    rng = np.random.default_rng(100 + seed)
    x = jnp.asarray(rng.normal(size=(count, 2)))
    if head.classes:
        return Examples.full(x, jnp.asarray(rng.permutation(count) % 3))
    return Examples.full(x, jnp.asarray(rng.normal(size=(count, 2)) * 1.5))


def rows(examples, chosen):
    return jax.tree.map(lambda leaf: leaf[np.asarray(chosen)], examples)


def spread(examples, places, content):
    """The same examples at the given places among twelve; elsewhere there is padding."""

    def long(leaf, fill):
        shape = (12, *leaf.shape[1:])
        return jnp.full(shape, fill, leaf.dtype).at[jnp.array(places)].set(leaf)

    return Examples(
        long(examples.x, content), long(examples.y, content), long(examples.mask, False)
    )


def design(params, x):
    """Features, inputs and constant, in numpy."""
    features = x
    for layer in params.features:
        features = np.tanh(features @ np.asarray(layer.weight) + np.asarray(layer.bias))
    return np.concatenate([features, x / HEAD.input_scale, np.ones((len(x), 1))], axis=1)


def noise_variance(params, x):
    """The floor, what was learned, and what keeps a large K positive definite."""
    largest = np.square(design(params, x) @ np.asarray(params.factor)).sum(axis=1).max()
    return SMALLEST_NOISE + math.exp(2 * params.log_noise) + JITTER * largest


def freedom(params):
    return LEAST_FREEDOM + math.exp(params.log_scale)


def student_density(params, examples):
    """log p(y | x) of every output by scipy."""
    x, y = np.asarray(examples.x), np.asarray(examples.y)
    phi, factor = design(params, x), np.asarray(params.factor)
    scale = phi @ factor @ factor.T @ phi.T + noise_variance(params, x) * np.eye(len(x))
    location = phi @ np.asarray(params.location)
    return sum(
        stats.multivariate_t(location[:, k], scale, df=freedom(params)).logpdf(y[:, k])
        for k in range(y.shape[1])
    )


def weight_space(params, support, query_x):
    """Mean and variances from the normal-inverse-gamma posterior of the weights themselves.

    w ~ N(m, v L L'), y ~ N(Phi w, v s^2), v ~ inverse gamma(nu / 2, nu / 2).
    """
    x, y = np.asarray(support.x), np.asarray(support.y)
    phi, ahead = design(params, x), design(params, np.asarray(query_x))
    noise, factor, prior_mean = noise_variance(params, x), params.factor, params.location
    prior_precision = np.linalg.inv(np.asarray(factor) @ np.asarray(factor).T)
    precision = prior_precision + phi.T @ phi / noise
    weights = np.linalg.solve(precision, prior_precision @ prior_mean + phi.T @ y / noise)
    shape = (freedom(params) + len(x)) / 2
    misfit = np.sum(y * y, axis=0) / noise + np.sum(prior_mean * (prior_precision @ prior_mean), 0)
    rate = (freedom(params) + misfit - np.sum(weights * (precision @ weights), axis=0)) / 2
    factor_mean = rate / (shape - 1)
    unknown = np.sum(ahead * np.linalg.solve(precision, ahead.T).T, axis=1)
    learned_noise = SMALLEST_NOISE + math.exp(2 * params.log_noise)
    return ahead @ weights, unknown[:, None] * factor_mean, learned_noise * factor_mean


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


def everything(head, params, support, query):
    """All that can be asked about a task, and the gradient it gives."""
    (loss, _), gradient = jax.value_and_grad(head.loss, has_aux=True)(params, support, query)
    return loss, gradient, head.judge(params, support, query), head.evidence(params, support)


asked = jax.jit(everything, static_argnums=0)


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


def batch_gradient(head):
    """The gradient of a batch of tasks, as training takes it, in one vector; and the loss."""

    def gradient(params, support, query):
        def mean_loss(params):
            losses, _ = head.losses(params, support, query)
            return jnp.mean(losses)

        loss, gradient = jax.value_and_grad(mean_loss)(params)
        return ravel_pytree(gradient)[0], loss

    return gradient


def three_tasks(head):
    def stacked(count, first):
        tasks = [random_examples(count, head, seed=first + k) for k in range(3)]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *tasks)

    support, query = stacked(5, 0), stacked(10, 10)
    return support, Examples(query.x, query.y, query.mask.at[1, 3:].set(False))


def one_task(head):
    """A batch of the ragged one."""
    return jax.tree.map(lambda leaf: leaf[1:2], three_tasks(head))


@pytest.mark.parametrize(
    "head",
    [HEAD, pytest.param(CLASSES, marks=pytest.mark.slow)],
    ids=["regression", "classes"],
)
def test_compiled_gradient_is_that_of_eager_evaluation_in_float64(head):
    gradient = as_users_do(batch_gradient(head))
    with jax.enable_x64(True):
        params, tasks = random_params(head), one_task(head)
        own = jax.tree.map(lambda leaf: leaf[0], tasks)
        with jax.disable_jit():
            eager = ravel_pytree(jax.grad(lambda params: head.loss(params, *own)[0])(params))[0]
        np.testing.assert_allclose(gradient(params, *tasks)[0], eager, rtol=1e-8, atol=1e-11)
    single, _ = gradient(random_params(head), *one_task(head))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, eager, rtol=1e-3, atol=1e-4 * np.abs(eager).max())


@HEADS
def test_compiled_gradient_is_that_of_finite_differences(head):
    compiled = as_users_do(batch_gradient(head))
    with jax.enable_x64(True):
        params, (support, query) = random_params(head), three_tasks(head)
        flat, unravel = ravel_pytree(params)
        gradient, _ = compiled(params, support, query)
        rng, distance = np.random.default_rng(0), 1e-6
        for _ in range(3):
            direction = rng.normal(size=flat.shape) / math.sqrt(flat.size)
            above, below = (
                compiled(unravel(flat + sign * distance * direction), support, query)[1]
                for sign in (1, -1)
            )
            slope = (above - below) / (2 * distance)
            # The jitter is no part of what is differentiated.
            np.testing.assert_allclose(gradient @ direction, slope, rtol=1e-3, atol=1e-5)
    single, _ = compiled(random_params(head), *three_tasks(head))
    np.testing.assert_allclose(single, gradient, rtol=1e-3, atol=1e-4 * np.abs(gradient).max())


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


def harsh(case, head):
    support, query = random_examples(20, head), random_examples(6, head, seed=1)
    if case == "repeated inputs":
        return Examples(jnp.ones_like(support.x), support.y, support.mask), query
    if case == "inputs of 1e4":
        return Examples(1e4 * support.x, support.y, support.mask), query
    if case == "targets of 1e3" and not head.classes:
        return Examples(support.x, 1e3 * support.y, support.mask), query
    return support, Examples(1e4 * query.x, query.y, query.mask)


@HEADS
@pytest.mark.parametrize(
    "case", ["repeated inputs", "inputs of 1e4", "targets of 1e3", "query of 1e4"]
)
@pytest.mark.parametrize("log_noise", [-0.5, -20.0])
def test_ill_conditioned_task_stays_finite(head, case, log_noise):
    params = random_params(head)
    params = type(params)(
        params.features, params.location, params.factor, jnp.float32(log_noise), params.log_scale
    )
    found = asked(head, params, *harsh(case, head))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(found))
    assert np.all(found[2].predictive.uncertainty >= 0)


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
