"""Bayesian heads, their compiled functions, and slow versions to compare them with."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from tests.compiling import AS_USERS

from taskmix.adaptation import BayesianHead
from taskmix.adaptation.bayesian_head import JITTER
from taskmix.adaptation.head_params import (
    LEAST_FREEDOM,
    SMALLEST_NOISE,
)
from taskmix.likelihood import Categorical
from taskmix.models import MLP
from taskmix.tasks import Examples

FEATURES = MLP(inputs=2, hidden=(5,), outputs=4, activation="tanh", init_scale=0.0)
HEAD = BayesianHead(FEATURES, outputs=2, inputs=2, input_scale=2.0, width=4)
CLASSES = BayesianHead(FEATURES, Categorical(), outputs=3, inputs=2, width=4)
HEADS = pytest.mark.parametrize("head", [HEAD, CLASSES], ids=["regression", "classes"])

# The code that users get: a gradient may be right in one kind of code and wrong in another.
as_users_do = functools.partial(jax.jit, compiler_options=AS_USERS)

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


def everything(head, params, support, query):
    """All that can be asked about a task, and the gradient it gives."""
    (loss, _), gradient = jax.value_and_grad(head.loss, has_aux=True)(params, support, query)
    return loss, gradient, head.judge(params, support, query), head.evidence(params, support)


asked = jax.jit(everything, static_argnums=0)
