"""Matching networks on embeddings that are given, by hand and by a slow version."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.baselines import Matching
from taskmix.models import Conv4
from taskmix.tasks import Examples

KEY = jax.random.key(0)
WAY, FEATURES = 3, 4
# An image of 16 pixels has as many features as there are filters.
MODEL = Conv4(size=16, filters=FEATURES, outputs=WAY)
FULL, SIMPLE = (Matching(model=MODEL, full_context=full) for full in (True, False))
PARAMS = jax.tree.map(lambda leaf: 3 * leaf, FULL.init_comparison(KEY))
compare_full = jax.jit(partial(FULL.compare, PARAMS))
compare_simple = jax.jit(partial(SIMPLE.compare, ()))
BOTH = pytest.mark.parametrize(
    "compare", [compare_full, compare_simple], ids=["full context", "simple"]
)
LABELS = jnp.array([2, 0, 1, 1, 0, 2, 1])
MASK = jnp.array([True, True, False, True, True, True, False])


@pytest.fixture(scope="module")
def embedded():
    rng = np.random.default_rng(0)
    return tuple(jnp.asarray(rng.normal(size=(n, FEATURES)), jnp.float32) for n in (7, 5))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    return np.exp(x) / np.exp(x).sum()


def slow_cell(params, x, hidden, cell):
    gates = np.concatenate([x, hidden]) @ np.asarray(params.weight, np.float64) + params.bias
    admit, keep, candidate, show = np.split(gates, 4)
    cell = sigmoid(keep) * cell + sigmoid(admit) * np.tanh(candidate)
    return sigmoid(show) * np.tanh(cell), cell


def slow_context(support, query):
    """Real examples one after the other, then queries one after the other."""
    context = [x.copy() for x in support]
    for params, order in (
        (PARAMS.forward, range(len(support))),
        (PARAMS.backward, reversed(range(len(support)))),
    ):
        hidden = cell = np.zeros(FEATURES)
        for i in order:
            hidden, cell = slow_cell(params, support[i], hidden, cell)
            context[i] += hidden
    queries = []
    for x in query:
        hidden, cell = x, np.zeros(FEATURES)
        for _ in range(3):
            attention = softmax(np.array([hidden @ g for g in context]))
            read = sum(a * g for a, g in zip(attention, context, strict=True))
            hidden, cell = slow_cell(PARAMS.attention, np.concatenate([x, read]), hidden, cell)
            hidden = hidden + x
        queries.append(hidden)
    return context, queries


def slow(support, query, full):
    real = np.asarray(MASK)
    known, labels = np.asarray(support, np.float64)[real], np.asarray(LABELS)[real]
    query = np.asarray(query, np.float64)
    if full:
        known, query = slow_context(known, query)
    found = np.zeros((len(query), WAY))
    for i, x in enumerate(query):
        cosines = [x @ g / np.linalg.norm(x) / np.linalg.norm(g) for g in known]
        for a, y in zip(softmax(10 * np.array(cosines)), labels, strict=True):
            found[i, y] += a
    return found


@pytest.mark.parametrize("full", [True, False], ids=["full context", "simple"])
def test_probabilities_are_those_of_a_slow_version(embedded, full):
    support, query = embedded
    compare = compare_full if full else compare_simple
    found = jnp.exp(compare(Examples(support, LABELS, MASK), query))
    np.testing.assert_allclose(found, slow(support, query, full), rtol=1e-3, atol=1e-6)


def test_two_classes_on_a_line_by_hand():
    """Cosines are 1 and -1, whatever the lengths; two examples count twice."""
    support = Examples.full(jnp.array([[0.5], [2.0], [-7.0]]), jnp.array([0, 0, 1]))
    two = Matching(model=Conv4(outputs=2), full_context=False, scale=1.5)
    found = jnp.exp(two.compare((), support, jnp.array([[3.0]])))
    p = 2 / (2 + np.exp(-2 * 1.5))
    np.testing.assert_allclose(found, [[p, 1 - p]], rtol=1e-5)


@BOTH
def test_relabelling_classes_permutes_the_probabilities(embedded, compare):
    support, query = embedded
    new = jnp.array([1, 2, 0])
    expected = compare(Examples(support, LABELS, MASK), query)
    found = compare(Examples(support, new[LABELS], MASK), query)
    np.testing.assert_allclose(found[:, new], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("full", [True, False], ids=["full context", "simple"])
def test_order_of_the_support_matters_in_full_context_only(embedded, full):
    support, query = embedded
    compare = compare_full if full else compare_simple
    expected = compare(Examples(support, LABELS, MASK), query)
    found = compare(Examples(support[::-1], LABELS[::-1], MASK[::-1]), query)
    assert np.allclose(found, expected, atol=1e-4) == (not full)


@pytest.mark.parametrize("full", [True, False], ids=["full context", "simple"])
def test_class_without_an_example_is_improbable_and_harms_no_gradient(embedded, full):
    support, query = embedded
    learner, params = (FULL, PARAMS) if full else (SIMPLE, ())
    without = MASK & (LABELS != 1)

    def loss(params, query):
        outputs = learner.compare(params, Examples(support, LABELS, without), query)
        return jnp.sum(learner.likelihood.loss(outputs, jnp.array([0, 1, 2, 1, 0]))), outputs

    gradient, outputs = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(params, query)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    assert (np.exp(outputs[:, 1]) < 1e-12).all()
    np.testing.assert_allclose(np.exp(outputs).sum(axis=1), 1, rtol=1e-5)


def test_embedding_of_nothing_is_compared_without_harm():
    """A rectifier can leave an embedding of zeros, which has no direction."""
    support = Examples.full(jnp.zeros((2, 1)), jnp.array([0, 1]))
    two = Matching(model=Conv4(outputs=2), full_context=False)
    gradient = jax.grad(lambda x: two.compare((), support, x)[0, 0])(jnp.zeros((1, 1)))
    assert np.isfinite(gradient).all()


def test_context_is_learned_by_three_memories():
    """As large as an embedding: two read it, and one reads it beside what it attends to."""
    sizes = [leaf.weight.shape for leaf in (PARAMS.forward, PARAMS.backward, PARAMS.attention)]
    assert sizes == [(8, 16), (8, 16), (12, 16)]
    assert SIMPLE.init_comparison(KEY) == ()
