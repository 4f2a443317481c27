import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from taskmix.likelihood import Categorical, Gaussian
from taskmix.mixture.background import FREEDOM, RATE, WIDEST, Background
from taskmix.tasks import Examples, TaskBatch

KEY = jax.random.key(0)
BACKGROUND = Background(jnp.array([0.5, -2.0]), jnp.array([1.7, 0.3]), jnp.asarray(9.0))


def examples_of(count: int, seed: int = 0, outputs: int = 2) -> Examples:
    y = 2 * jax.random.normal(jax.random.key(seed), (count, outputs))
    return Examples.full(jnp.zeros((count, 1)), y)


def student(background: Background, y: np.ndarray) -> float:
    """The outputs are independent, the examples of a task share one unknown scale."""
    return sum(
        scipy.stats.multivariate_t(
            np.full(len(y), mean), np.eye(len(y)) * square, df=FREEDOM
        ).logpdf(y[:, output])
        for output, (mean, square) in enumerate(
            zip(np.asarray(background.mean), np.asarray(background.square), strict=True)
        )
    )


def test_evidence_is_that_of_a_multivariate_student_t():
    examples = examples_of(6)
    expected = student(BACKGROUND, np.asarray(examples.y))
    np.testing.assert_allclose(BACKGROUND.evidence(Gaussian(), examples), expected, rtol=1e-5)


def test_evidence_of_two_parts_is_that_of_both_together():
    support, query = examples_of(3), examples_of(4, seed=1)
    expected = student(BACKGROUND, np.concatenate([support.y, query.y]))
    found = BACKGROUND.judge(Gaussian(), support, query).whole
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_evidence_of_nothing_is_zero():
    examples = dataclasses.replace(examples_of(3), mask=jnp.zeros(3, dtype=bool))
    np.testing.assert_allclose(BACKGROUND.evidence(Gaussian(), examples), 0, atol=1e-6)


def test_masked_examples_have_no_evidence():
    mask = jnp.array([True, False, True])
    ragged = dataclasses.replace(examples_of(3), mask=mask)
    expected = student(BACKGROUND, np.asarray(ragged.y)[np.asarray(mask)])
    np.testing.assert_allclose(BACKGROUND.evidence(Gaussian(), ragged), expected, rtol=1e-5)


@pytest.fixture(scope="module")
def one_output():
    return Background(jnp.array([0.5]), jnp.array([1.7]), jnp.asarray(9.0))


def test_prediction_has_the_variance_of_the_evidences_conditional(one_output):
    """p(query | support) = p(support, query) / p(support), integrated numerically."""
    support = examples_of(5, outputs=1)
    y = np.asarray(support.y)
    alone = student(one_output, y)

    def spread(value: float) -> float:
        density = np.exp(student(one_output, np.append(y, [[value]], axis=0)) - alone)
        return (value - 0.5) ** 2 * density

    expected, _ = scipy.integrate.quad(spread, -300, 300, points=[0.5], limit=200)
    found = one_output.predict(Gaussian(), support, 3)
    np.testing.assert_allclose(found.variance, expected, rtol=1e-3)
    np.testing.assert_allclose(found.mean, 0.5)


def batch_of(tasks: int, mask=None) -> TaskBatch:
    y = 3 + 2 * jax.random.normal(KEY, (tasks, 4, 2))
    mask = jnp.ones((tasks, 4), dtype=bool) if mask is None else mask
    examples = Examples(jnp.zeros((tasks, 4, 1)), y, mask)
    return TaskBatch(examples, examples)


def test_first_batch_gives_mean_and_mean_square_distance():
    batch = batch_of(3)
    found = Background.begin(2).observe(batch, Gaussian())
    np.testing.assert_allclose(found.mean, np.mean(batch.query.y, axis=(0, 1)), rtol=1e-5)
    np.testing.assert_allclose(found.square, np.var(batch.query.y, axis=(0, 1)), rtol=1e-5)


def test_later_batches_are_followed_at_the_least_rate():
    batch = batch_of(3)
    old = dataclasses.replace(BACKGROUND, batches=jnp.asarray(1e4))
    expected = old.mean + RATE * (np.mean(batch.query.y, axis=(0, 1)) - old.mean)
    np.testing.assert_allclose(old.observe(batch, Gaussian()).mean, expected, rtol=1e-6)


def test_masked_examples_are_not_followed():
    mask = jnp.array([[True, True, False, True], [False, False, False, False]])
    batch = batch_of(2, mask)
    found = Background.begin(2).observe(batch, Gaussian())
    np.testing.assert_allclose(found.mean, np.mean(batch.query.y[mask], axis=0), rtol=1e-5)


def test_a_batch_of_padding_changes_no_bit():
    padding = batch_of(2, jnp.zeros((2, 4), dtype=bool))
    chex.assert_trees_all_equal(BACKGROUND.observe(padding, Gaussian()), BACKGROUND)


def test_hopeless_targets_do_not_make_it_infinite():
    batch = jax.tree.map(lambda leaf: leaf if leaf.dtype == bool else 1e15 * leaf, batch_of(3))
    assert (Background.begin(2).observe(batch, Gaussian()).square <= WIDEST).all()


def labels(count: int) -> Examples:
    return Examples.full(jnp.zeros((count, 1)), jnp.arange(count) % 5)


def test_labels_are_uniform():
    background = Background.begin(5)
    found = background.evidence(Categorical(), labels(3), labels(4))
    np.testing.assert_allclose(found, -7 * np.log(5), rtol=1e-6)
    predicted = background.predict(Categorical(), labels(3), 2)
    np.testing.assert_allclose(predicted.mean, np.full((2, 5), 0.2), rtol=1e-6)


def test_labels_are_not_followed():
    examples = jax.tree.map(lambda leaf: leaf[None], labels(4))
    background = Background.begin(5)
    found = background.observe(TaskBatch(examples, examples), Categorical())
    chex.assert_trees_all_equal(found, background)
