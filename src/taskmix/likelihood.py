"""How a model's outputs are judged: training loss, log-likelihood, error and prediction."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar, Literal, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, Shaped

Measure = Literal["error", "accuracy"]
"""What tables show: the error itself, or one minus it."""


@runtime_checkable
class Likelihood(Protocol):
    """What a learner needs to know about targets.

    Everything is per example: sums, means and masks are the caller's business.
    """

    def loss(self, outputs: Array, y: Array) -> Float[Array, "*examples"]:
        """What inner and outer loop minimise."""

    def log_likelihood(self, outputs: Array, y: Array) -> Float[Array, "*examples"]:
        """log p(y | outputs), up to a constant that no parameter changes."""

    def own_scale(
        self, loss: Float[Array, "*tasks"], count: Shaped[Array, "*#tasks"]
    ) -> Float[Array, "*tasks"]:
        """Log-likelihood of a task's examples, given that its mean loss is ``loss``."""

    def noise(self, loss: Float[Array, "*tasks"]) -> Float[Array, "*tasks"]:
        """Variance of a target around its prediction, where the expected loss is ``loss``."""

    def describe(
        self, x: Array, mask: Bool[Array, "*tasks examples"]
    ) -> Float[Array, "*tasks statistics"]:
        """What the inputs of a task say about its kind, in a few roughly normal numbers."""

    def predictive(self, outputs: Array) -> Array:
        """Outputs as something that may be averaged over clusters: a mean or probabilities."""

    def error(self, predicted: Array, y: Array) -> Float[Array, "*examples"]:
        """The error of a prediction."""

    def random_score(self, key: Key[Array, ""], outputs: Array) -> Array:
        """A random vector v for each example, E[vv'] being the Fisher information of its outputs.

        It is differentiable in the outputs, so what is made of it has a gradient.
        """

    @property
    def measure(self) -> Measure:
        """What is reported of it."""


@dataclasses.dataclass(frozen=True)
class Gaussian:
    """Regression: squared error is a normal log-likelihood with a fixed variance.

    The paper gives no variance; it does not matter to a plain softmax over clusters
    (it acts as a temperature) but does matter beside a count term.
    """

    variance: float = 1.0
    measure: ClassVar[Measure] = "error"

    def __post_init__(self) -> None:
        if not self.variance > 0:
            raise ValueError(f"variance is {self.variance}; it must be positive.")

    def loss(self, outputs: Array, y: Array) -> Float[Array, "*examples"]:
        return jnp.mean(jnp.square(outputs - y), axis=-1)

    def log_likelihood(self, outputs: Array, y: Array) -> Float[Array, "*examples"]:
        return -jnp.sum(jnp.square(outputs - y), axis=-1) / (2 * self.variance)

    def own_scale(
        self, loss: Float[Array, "*tasks"], count: Shaped[Array, "*#tasks"]
    ) -> Float[Array, "*tasks"]:
        """Density of residuals on the sphere whose radius the loss gives.

        In n dimensions the density of a direction falls as radius^-n, and the
        radius is sqrt(n * loss): hence -n/2 log(loss).
        """
        return -0.5 * count * jnp.log(loss)

    def noise(self, loss: Float[Array, "*tasks"]) -> Float[Array, "*tasks"]:
        return loss

    def describe(
        self, x: Array, mask: Bool[Array, "*tasks examples"]
    ) -> Float[Array, "*tasks statistics"]:
        """Nothing: the inputs of a regression are drawn alike in every family."""
        return jnp.zeros((*mask.shape[:-1], 0))

    def predictive(self, outputs: Array) -> Array:
        return outputs

    def error(self, predicted: Array, y: Array) -> Float[Array, "*examples"]:
        return self.loss(predicted, y)

    def random_score(self, key: Key[Array, ""], outputs: Array) -> Array:
        """v = s / sigma with random signs s, since the information is I / sigma^2."""
        return jax.random.rademacher(key, outputs.shape, outputs.dtype) / self.variance**0.5


@dataclasses.dataclass(frozen=True)
class Categorical:
    """Classification: integer targets, outputs are logits, the error is 0 or 1.

    With ``inputs`` the likelihood of a task has a factor for its inputs as well as for its
    labels. A handful of labelled images is fitted by any cluster; the images themselves
    say what kind they are of.
    """

    inputs: Callable[[Array], Array] | None = None
    """From inputs (..., examples, and the axes of an input) to statistics of each."""

    measure: ClassVar[Measure] = "accuracy"

    def loss(self, outputs: Array, y: Array) -> Float[Array, "*examples"]:
        log_probabilities = jax.nn.log_softmax(outputs)
        return -jnp.take_along_axis(log_probabilities, y[..., None], axis=-1)[..., 0]

    def log_likelihood(self, outputs: Array, y: Array) -> Float[Array, "*examples"]:
        return -self.loss(outputs, y)

    def own_scale(
        self, loss: Float[Array, "*tasks"], count: Shaped[Array, "*#tasks"]
    ) -> Float[Array, "*tasks"]:
        """Labels carry no scale of their own: the log-likelihood itself."""
        return -count * loss

    def noise(self, loss: Float[Array, "*tasks"]) -> Float[Array, "*tasks"]:
        """None: class probabilities already are the whole distribution of a label."""
        return jnp.zeros_like(loss)

    def describe(
        self, x: Array, mask: Bool[Array, "*tasks examples"]
    ) -> Float[Array, "*tasks statistics"]:
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


def masked_mean(values: Float[Array, "*tasks n"], mask: Array) -> Float[Array, "*tasks"]:
    """Mean over the last axis of the values whose mask is true (0 if none is)."""
    total = jnp.sum(jnp.where(mask, values, 0), axis=-1)
    return total / jnp.maximum(jnp.sum(mask, axis=-1), 1)
