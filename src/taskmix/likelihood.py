"""How a model's outputs are judged: training loss, log-likelihood, error and prediction."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import ClassVar, Literal, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from taskmix.registry import Registry

Reported = Literal["error", "accuracy"]
"""What tables show: the error itself, or one minus it."""


@runtime_checkable
class Likelihood(Protocol):
    """What a learner needs to know about targets: four functions.

    Everything is per example: sums, means and masks are the caller's business. A likelihood may
    say more of itself by being ``Describing``, ``Scoring`` or ``Reporting`` as well.

    Examples
    --------
    >>> isinstance(Gaussian(), Likelihood)
    True
    """

    def loss(self, outputs: Array, y: Array) -> Float[Array, "*examples"]:
        """What inner and outer loop minimise; it may be negative.

        Parameters
        ----------
        outputs
            Of the network, one vector per example.
        y
            Targets.

        Returns
        -------
        Array
            One number per example.
        """

    def log_likelihood(self, outputs: Array, y: Array) -> Float[Array, "*examples"]:
        """log p(y | outputs), up to a constant that no parameter changes.

        Parameters
        ----------
        outputs
            Of the network, one vector per example.
        y
            Targets.

        Returns
        -------
        Array
            One number per example.
        """

    def predictive(self, outputs: Array) -> Array:
        """Outputs as something that may be averaged over clusters.

        Parameters
        ----------
        outputs
            Of the network, one vector per example.

        Returns
        -------
        Array
            Means or probabilities.
        """

    def error(self, predicted: Array, y: Array) -> Float[Array, "*examples"]:
        """The error of a prediction.

        Parameters
        ----------
        predicted
            What ``predictive`` gave, perhaps averaged.
        y
            Targets.

        Returns
        -------
        Array
            One number per example.
        """


@runtime_checkable
class Describing(Protocol):
    """A likelihood of inputs as well as of targets."""

    def describe(
        self, x: Array, mask: Bool[Array, "*tasks examples"]
    ) -> Float[Array, "*tasks statistics"]:
        """What the inputs of a task say about its kind, in a few roughly normal numbers."""


@runtime_checkable
class Scoring(Protocol):
    """A likelihood whose Fisher information is known, which methods of curvature need."""

    def random_score(self, key: Key[Array, ""], outputs: Array) -> Array:
        """A random vector v for each example, E[vv'] being the Fisher information of its outputs.

        It is differentiable in the outputs, so what is made of it has a gradient.
        """


@runtime_checkable
class Reporting(Protocol):
    """A likelihood that is reported as something else than its error."""

    @property
    def measure(self) -> Reported:
        """What is reported of it."""


def input_statistics(
    likelihood: Likelihood, x: Array, mask: Bool[Array, "*tasks examples"]
) -> Float[Array, "*tasks statistics"]:
    """What a likelihood says about the inputs of tasks; nothing, unless it is ``Describing``."""
    if isinstance(likelihood, Describing):
        return likelihood.describe(x, mask)
    return jnp.zeros((*mask.shape[:-1], 0))


def reported(likelihood: Likelihood) -> Reported:
    """What tables show; the error, unless the likelihood is ``Reporting``.

    >>> reported(Categorical())
    'accuracy'
    """
    return likelihood.measure if isinstance(likelihood, Reporting) else "error"


@dataclasses.dataclass(frozen=True)
class Gaussian:
    """Regression: squared error is a normal log-likelihood with a fixed variance.

    The paper gives no variance; it does not matter to a plain softmax over clusters
    (it acts as a temperature) but does matter beside a count term.

    Examples
    --------
    >>> float(Gaussian().loss(jnp.array([1.0]), jnp.array([3.0])))
    4.0
    """

    variance: float = 1.0
    """Of targets around a prediction."""

    def __post_init__(self) -> None:
        if not self.variance > 0:
            raise ValueError(f"variance is {self.variance}; it must be positive.")

    def loss(self, outputs: Array, y: Array) -> Float[Array, "*examples"]:
        return jnp.mean(jnp.square(outputs - y), axis=-1)

    def log_likelihood(self, outputs: Array, y: Array) -> Float[Array, "*examples"]:
        return -jnp.sum(jnp.square(outputs - y), axis=-1) / (2 * self.variance)

    def predictive(self, outputs: Array) -> Array:
        return outputs

    def error(self, predicted: Array, y: Array) -> Float[Array, "*examples"]:
        return self.loss(predicted, y)

    def random_score(self, key: Key[Array, ""], outputs: Array) -> Array:
        """v = s / sigma with random signs s, since the information is I / sigma^2."""
        score: Array = jax.random.rademacher(key, outputs.shape, outputs.dtype)
        return score / math.sqrt(self.variance)


@dataclasses.dataclass(frozen=True)
class Categorical:
    """Classification: integer targets, outputs are logits, the error is 0 or 1.

    With ``inputs`` the likelihood of a task has a factor for its inputs as well as for its
    labels. A handful of labelled images is fitted by any cluster; the images themselves
    say what kind they are of.

    Examples
    --------
    >>> float(Categorical().error(jnp.array([0.1, 0.9]), jnp.array(1)))
    0.0
    """

    inputs: Callable[[Array], Array] | None = None
    """From inputs (..., examples, and the axes of an input) to statistics of each."""

    measure: ClassVar[Reported] = "accuracy"

    def loss(self, outputs: Array, y: Array) -> Float[Array, "*examples"]:
        log_probabilities = jax.nn.log_softmax(outputs)
        return -jnp.take_along_axis(log_probabilities, y[..., None], axis=-1)[..., 0]

    def log_likelihood(self, outputs: Array, y: Array) -> Float[Array, "*examples"]:
        return -self.loss(outputs, y)

    def describe(
        self, x: Array, mask: Bool[Array, "*tasks examples"]
    ) -> Float[Array, "*tasks statistics"]:
        """What the inputs of a task say about its kind: means of ``inputs`` over its examples."""
        if self.inputs is None:
            return jnp.zeros((*mask.shape[:-1], 0))
        each = self.inputs(x)
        return jnp.moveaxis(masked_mean(jnp.moveaxis(each, -1, 0), mask), 0, -1)

    def predictive(self, outputs: Array) -> Array:
        return jax.nn.softmax(outputs)

    def error(self, predicted: Array, y: Array) -> Float[Array, "*examples"]:
        return (jnp.argmax(predicted, axis=-1) != y).astype(predicted.dtype)

    def random_score(self, key: Key[Array, ""], outputs: Array) -> Array:
        """v = r - p sum(r) with r = s sqrt(p) and random signs s.

        Then E[vv'] = sum_c p_c (e_c - p)(e_c - p)' = diag(p) - pp', as with labels drawn from
        p; but a drawn label has no gradient in p.
        """
        log_probabilities = jax.nn.log_softmax(outputs)
        signs = jax.random.rademacher(key, outputs.shape, outputs.dtype)
        roots = signs * jnp.exp(0.5 * log_probabilities)
        return roots - jnp.exp(log_probabilities) * jnp.sum(roots, axis=-1, keepdims=True)


LARGEST_LOG_RATE = 20.0
"""Beyond it a log rate changes nothing, as float32 cannot hold its exponential for long."""


@dataclasses.dataclass(frozen=True)
class Poisson:
    """Counts: targets 0.0, 1.0, 2.0, ...; outputs are logarithms of rates.

    The loss is minus the log-likelihood without the term that no parameter changes, so it is
    negative where counts are large. The error is the deviance, which is 0 where the rate is the
    count: 2 (y log(y / rate) - y + rate).

    Examples
    --------
    >>> float(Poisson().error(jnp.array([3.0]), jnp.array([3.0])))
    0.0
    """

    def loss(self, outputs: Array, y: Array) -> Float[Array, "*examples"]:
        log_rate = jnp.minimum(outputs, LARGEST_LOG_RATE)
        return jnp.mean(jnp.exp(log_rate) - y * log_rate, axis=-1)

    def log_likelihood(self, outputs: Array, y: Array) -> Float[Array, "*examples"]:
        log_rate = jnp.minimum(outputs, LARGEST_LOG_RATE)
        return jnp.sum(y * log_rate - jnp.exp(log_rate) - jax.lax.lgamma(y + 1), axis=-1)

    def predictive(self, outputs: Array) -> Array:
        return jnp.exp(jnp.minimum(outputs, LARGEST_LOG_RATE))

    def error(self, predicted: Array, y: Array) -> Float[Array, "*examples"]:
        logarithm = jax.scipy.special.xlogy(y, y) - jax.scipy.special.xlogy(y, predicted)
        return jnp.mean(2 * (logarithm - y + predicted), axis=-1)


LIKELIHOODS: Registry[type] = Registry("likelihood", "taskmix.likelihoods")
"""Every likelihood by its name, as a class that needs no argument."""
LIKELIHOODS.register("gaussian", Gaussian)
LIKELIHOODS.register("categorical", Categorical)
LIKELIHOODS.register("poisson", Poisson)


def masked_mean(values: Float[Array, "*tasks n"], mask: Array) -> Float[Array, "*tasks"]:
    """Mean over the last axis of the values whose mask is true (0 if none is)."""
    total = jnp.sum(jnp.where(mask, values, 0), axis=-1)
    return total / jnp.maximum(jnp.sum(mask, axis=-1), 1)
