"""Prototypical networks on embeddings that are given, by hand and by a slow version."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.baselines import Prototypical
from taskmix.baselines.metric import class_means, memberships
from taskmix.models import Conv4
from taskmix.tasks import Examples, TaskBatch

KEY = jax.random.key(0)
WAY = 3
LEARNER = Prototypical(model=Conv4(outputs=WAY))
compare = jax.jit(partial(LEARNER.compare, ()))
LABELS = jnp.array([2, 0, 1, 1, 0, 2])
MASK = jnp.array([True, True, True, True, True, False])
EXAMPLE = TaskBatch(
    *[Examples.full(jnp.zeros((1, 1, 84, 84, 3)), LABELS[:1, None], input_axes=3)] * 2
)


@pytest.fixture(scope="module")
def embedded():
    rng = np.random.default_rng(0)
    support, query = (jnp.asarray(rng.normal(size=(n, 4)), jnp.float32) for n in (6, 5))
    return support, query


def slow(support, labels, mask, query):
    """Class by class and query by query, in float64."""
    support, query = np.asarray(support, np.float64), np.asarray(query, np.float64)
    scores = np.empty((len(query), WAY))
    for k in range(WAY):
        own = [x for x, y, real in zip(support, labels, mask, strict=True) if real and y == k]
        for i, x in enumerate(query):
            scores[i, k] = np.exp(-np.sum((x - np.mean(own, axis=0)) ** 2))
    return scores / scores.sum(axis=1, keepdims=True)


def test_two_classes_on_a_line_by_hand():
    """Prototypes 1 and 4, query 2: squared distances 1 and 4."""
    support = Examples.full(jnp.array([[0.0], [2.0], [4.0]]), jnp.array([0, 0, 1]))
    two = Prototypical(model=Conv4(outputs=2))
    found = jnp.exp(two.compare((), support, jnp.array([[2.0]])))
    p = 1 / (1 + np.exp(-3))
    np.testing.assert_allclose(found, [[p, 1 - p]], rtol=1e-5)


def test_probabilities_are_those_of_a_slow_version(embedded):
    support, query = embedded
    found = jnp.exp(compare(Examples(support, LABELS, MASK), query))
    np.testing.assert_allclose(found, slow(support, LABELS, MASK, query), rtol=1e-4)


def test_prototype_of_one_shot_is_the_embedding_itself(embedded):
    one_shot = embedded[0][:WAY]
    members = memberships(LABELS[:WAY], jnp.ones(WAY, dtype=bool), WAY)
    np.testing.assert_array_equal(class_means(one_shot, members)[LABELS[:WAY]], one_shot)


def test_relabelling_classes_permutes_the_probabilities(embedded):
    support, query = embedded
    new = jnp.array([1, 2, 0])
    expected = compare(Examples(support, LABELS, MASK), query)
    found = compare(Examples(support, new[LABELS], MASK), query)
    np.testing.assert_allclose(found[:, new], expected, rtol=1e-5, atol=1e-6)


def test_class_without_an_example_is_improbable_and_harms_no_gradient(embedded):
    support, query = embedded
    without = MASK & (LABELS != 1)

    def loss(query):
        outputs = LEARNER.compare((), Examples(support, LABELS, without), query)
        return jnp.sum(LEARNER.likelihood.loss(outputs, jnp.array([0, 1, 2, 1, 0]))), outputs

    gradient, outputs = jax.jit(jax.grad(loss, has_aux=True))(query)
    assert np.isfinite(gradient).all()
    assert (np.exp(outputs[:, 1]) < 1e-12).all()
    np.testing.assert_allclose(np.exp(outputs).sum(axis=1), 1, rtol=1e-5)


def test_encoder_of_the_paper_has_113088_parameters():
    learner = Prototypical(width=64)
    assert learner.parameters(jax.eval_shape(learner.init, KEY, EXAMPLE)) == 113_088


def test_width_is_that_of_the_model_unless_given():
    assert LEARNER.encoder.filters == Conv4().filters
    assert Prototypical(width=64).encoder.filters == 64


def test_rate_is_halved_again_and_again():
    """Adam's steps along a constant gradient have the size of the rate."""
    optimiser = Prototypical(meta_rate=0.5, halve_every=2).optimiser()
    state, steps = optimiser.init(jnp.zeros(())), []
    for _ in range(5):
        step, state = optimiser.update(jnp.ones(()), state)
        steps.append(-step)
    np.testing.assert_allclose(steps, [0.5, 0.5, 0.25, 0.25, 0.125], rtol=1e-4)
