"""The ridge head against the formula in float64, and what must not change its answers."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from tests.compiling import AS_USERS

from taskmix.adaptation import RidgeHead, TaskModel
from taskmix.adaptation.ridge_head import SMALLEST_RIDGE
from taskmix.likelihood import Gaussian
from taskmix.models import Encoder, ResNetEncoder
from taskmix.tasks import Examples

WAY = 3
HEAD = RidgeHead(Encoder(channels=1, size=4, filters=3, blocks=1), outputs=WAY)
RESIDUAL = RidgeHead(ResNetEncoder(channels=1, size=4, widths=(3,)), outputs=WAY)
HEADS = pytest.mark.parametrize("head", [HEAD, RESIDUAL], ids=["conv", "resnet"])

# The code that users get: a gradient may be right in one kind of code and wrong in another.
as_users_do = functools.partial(jax.jit, compiler_options=AS_USERS)


def examples(each, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.tile(np.arange(WAY), each)
    patterns = np.random.default_rng(7).normal(size=(WAY, 4, 4, 1))
    x = patterns[labels] + 0.7 * rng.normal(size=(len(labels), 4, 4, 1))
    return Examples.full(jnp.asarray(x), jnp.asarray(labels), input_axes=3)


def params_of(head):
    """Parameters of which each takes part."""
    return jax.tree.map(lambda leaf: leaf + 0.1, head.init(jax.random.key(0)))


def padded(some, more, fill):
    def long(leaf, value):
        return jnp.concatenate([leaf, jnp.full((more, *leaf.shape[1:]), value, leaf.dtype)])

    return Examples(long(some.x, fill), long(some.y, 0), long(some.mask, False))


def by_hand(head, params, support, query_x):
    """s k(x, X) (K + l I)^-1 (Y - 1/N), with numpy's general solver."""
    known, statistics = head.features.apply(params.features, support.x)
    asked, _ = head.features.apply(params.features, query_x, None, statistics)
    known, asked = np.asarray(known), np.asarray(asked)
    width = known.shape[1]
    targets = np.eye(WAY)[np.asarray(support.y)] - 1 / WAY
    ridge = SMALLEST_RIDGE + math.exp(params.log_ridge)
    kernel = known @ known.T / width + ridge * np.eye(len(known))
    return math.exp(params.log_scale) * (asked @ known.T / width) @ np.linalg.solve(kernel, targets)


def log_softmax(scores):
    return scores - np.log(np.sum(np.exp(scores), axis=-1, keepdims=True))


@HEADS
def test_probabilities_are_those_of_the_formula(head):
    with jax.enable_x64(True):
        params, support, query = params_of(head), examples(2), examples(2, seed=1)
        found = jax.jit(lambda p: head.predict(head.adapt(p, support), query.x).mean)(params)
        expected = np.exp(log_softmax(by_hand(head, params, support, query.x)))
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@HEADS
def test_no_query_knows_another_unless_it_is_transductive(head):
    params, support, query = params_of(head), examples(1), examples(2, seed=1)
    for transductive in (False, True):
        one = dataclasses.replace(head, transductive=transductive)
        predict = jax.jit(lambda x, one=one: one.predict(one.adapt(params, support), x).mean)
        together = predict(query.x)[0]
        among_others = predict(query.x.at[1:].multiply(3.0))[0]
        same = np.allclose(together, among_others, rtol=1e-5)
        assert same is not transductive


def test_evidence_of_one_image_per_class_is_that_of_guessing():
    support = examples(1)
    found = jax.jit(HEAD.evidence)(params_of(HEAD), support)
    np.testing.assert_allclose(found, -WAY * math.log(WAY), rtol=1e-6)


def test_evidence_is_that_of_every_label_given_the_others():
    with jax.enable_x64(True):
        params, support = params_of(HEAD), examples(2)
        known, _ = HEAD.features.apply(params.features, support.x)
        known = np.asarray(known) / math.sqrt(known.shape[1])
        y, total = np.asarray(support.y), 0.0
        for left in range(len(y)):
            rest = np.delete(np.arange(len(y)), left)
            targets = np.eye(WAY)[y[rest]] - 1 / WAY
            ridge = SMALLEST_RIDGE + math.exp(params.log_ridge)
            kernel = known[rest] @ known[rest].T + ridge * np.eye(len(rest))
            scores = known[left] @ known[rest].T @ np.linalg.solve(kernel, targets)
            total += log_softmax(math.exp(params.log_scale) * scores)[y[left]]
        np.testing.assert_allclose(jax.jit(HEAD.evidence)(params, support), total, rtol=1e-9)


def test_evidence_of_a_task_adds_what_the_queries_were_given():
    params, support, query = params_of(HEAD), examples(2), examples(3, seed=1)
    judged = jax.jit(HEAD.judge)(params, support, query)
    chosen = judged.predictive.mean[jnp.arange(len(query.y)), query.y]
    np.testing.assert_allclose(
        judged.whole - judged.support, jnp.sum(jnp.log(chosen)), rtol=1e-4, atol=1e-5
    )


@HEADS
def test_padding_changes_neither_loss_nor_evidence(head):
    params, support, query = params_of(head), examples(2), examples(2, seed=1)
    loss = jax.jit(head.loss)
    expected, result = loss(params, support, query)
    found, other = loss(params, padded(support, 2, 0.0), padded(query, 1, 0.0))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(other.evidence, result.evidence, rtol=1e-5)


@HEADS
def test_compiled_gradient_is_that_of_finite_differences(head):
    with jax.enable_x64(True):
        flat, unravel = ravel_pytree(params_of(head))
        support, query = examples(2), examples(2, seed=1)

        def objective(flat):
            value, result = head.loss(unravel(flat), support, query)
            return value - result.evidence

        loss, rng, distance = jax.jit(objective), np.random.default_rng(0), 1e-6
        gradient = as_users_do(jax.grad(objective))(flat)
        for _ in range(3):
            direction = rng.normal(size=flat.shape)
            direction /= np.linalg.norm(direction)
            slope = (loss(flat + distance * direction) - loss(flat - distance * direction)) / (
                2 * distance
            )
            np.testing.assert_allclose(gradient @ direction, slope, rtol=1e-5, atol=1e-8)


def test_is_a_task_model_and_refuses_what_it_cannot_do():
    assert isinstance(HEAD, TaskModel)
    with pytest.raises(ValueError, match="Categorical"):
        RidgeHead(likelihood=Gaussian())
    with pytest.raises(ValueError, match="2 classes"):
        RidgeHead(outputs=1)
