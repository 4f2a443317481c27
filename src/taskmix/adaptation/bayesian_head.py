"""A Bayesian last layer in closed form: adapting is one Cholesky factor, the evidence is exact.

y = w' phi(x) + noise with w ~ N(m, L L'), where phi(x) are learned features, the inputs themselves
and a constant. Everything is scaled by one unknown factor per task and output, whose gamma prior
makes the marginal of a task a multivariate Student t with location Phi m, scale matrix
K = Phi L L' Phi' + s^2 I and nu degrees of freedom. m, L, s, nu and the features are learned.

J. Harrison, A. Sharma, M. Pavone: Meta-learning priors for efficient online Bayesian regression.
WAFR 2018. A. Shah, A. Wilson, Z. Ghahramani: Student-t processes as alternatives to Gaussian
processes. AISTATS 2014 (the scale).
L. Bertinetto et al.: Meta-learning with differentiable closed-form solvers. ICLR 2019 (classes).
"""

from __future__ import annotations

import dataclasses
import math
from functools import partial

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Bool, Float, Key

from taskmix.adaptation.head_params import (
    HeadParams,
    HeadPosterior,
    below_the_floor,
    freedom_of,
    noise_of,
    projected,
)
from taskmix.adaptation.student import factored, log_student, student_evidence
from taskmix.adaptation.task_model import Judgement, Predictive, TaskResult, together
from taskmix.likelihood import Categorical, Gaussian, Likelihood, masked_mean
from taskmix.models import MLP, Model
from taskmix.tasks import Examples

JITTER = 1e-6
"""The same relative to the largest variance in K, for targets that are larger."""


@dataclasses.dataclass(frozen=True)
class BayesianHead:
    """A feature network with a Bayesian last layer: regression, or classes by their labels.

    Classes are regressed on centred one-hot targets, without the unknown factor; a learned scale
    stands before the softmax, and the evidence of labels is that of every label given the others.

    Examples
    --------
    >>> import taskmix as tm
    >>> head = BayesianHead(tm.MLP(inputs=2, outputs=8, activation="tanh"), inputs=2, width=8)
    >>> head.init(jax.random.key(0)).location.shape
    (11, 1)
    """

    features: Model = MLP(hidden=(40, 40), outputs=32, activation="tanh", init_scale=0.0)
    """Any network; its outputs are the features."""
    likelihood: Likelihood = Gaussian()
    """``Gaussian`` for numbers, ``Categorical`` for classes."""
    outputs: int = 1
    """Numbers in a target, or classes."""
    inputs: int = 1
    """Numbers of an input that stand beside the features as they are; 0 for none."""
    input_scale: float = 1.0
    """What these are divided by."""
    width: int = 32
    """Features of the network."""

    exact = True

    def __post_init__(self) -> None:
        for name, least in (("outputs", 1), ("inputs", 0), ("width", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be {least} or more.")
        if not isinstance(self.likelihood, Gaussian | Categorical):
            raise ValueError(
                f"A Bayesian head is exact for Gaussian and Categorical targets, not for "
                f"{type(self.likelihood).__name__}; use the task model gradient."
            )
        if not 0 < self.input_scale < math.inf:
            raise ValueError(f"input_scale is {self.input_scale}; it must be positive.")

    @property
    def one_at_a_time(self) -> bool:
        return self.features.one_at_a_time

    @property
    def classes(self) -> bool:
        return isinstance(self.likelihood, Categorical)

    def init(self, key: Key[Array, ""]) -> HeadParams:
        width = self.width + self.inputs + 1
        return HeadParams(
            features=self.features.init(key),
            location=jnp.zeros((width, self.outputs)),
            factor=0.5 * jnp.eye(width),
            log_noise=math.log(0.5) * jnp.ones(()),
            log_scale=math.log(10.0 if self.classes else 6.0) * jnp.ones(()),
        )

    def loss(
        self, params: HeadParams, support: Examples, query: Examples
    ) -> tuple[Float[Array, ""], TaskResult]:
        """Regression: minus the evidence per example. Classes: the query's cross-entropy.

        The joint evidence of labels would say how well a query's label follows from the other
        queries as well, which no prediction can make use of.
        """
        if self.classes:
            posterior = self.adapt(params, support)
            logits = self._logits(posterior, query.x, query.mask)
            loss = masked_mean(self.likelihood.loss(logits, query.y), query.mask)
            return loss, TaskResult(loss, jax.nn.softmax(logits))
        examples = together(support, query)
        phi = self._phi(params, examples.x, examples.mask)
        return self._loss(params, *projected(params, phi), support, query)

    def losses(
        self, params: HeadParams, support: Examples, query: Examples
    ) -> tuple[Float[Array, " tasks"], TaskResult]:
        """``loss`` of many tasks. The examples of all of them go through the network as one set.

        A product whose gradient is summed over tasks and examples is much cheaper with one axis
        for both.
        """
        if self.classes or not getattr(self.features, "by_row", False):
            return jax.vmap(partial(self.loss, params))(support, query)
        examples = jax.vmap(together)(support, query)
        x = examples.x.reshape(-1, *examples.x.shape[2:])
        seen = projected(params, self._phi(params, x, examples.mask.reshape(-1)))
        design, mean = (leaf.reshape(*examples.mask.shape, -1) for leaf in seen)
        return jax.vmap(partial(self._loss, params))(design, mean, support, query)

    def _loss(
        self,
        params: HeadParams,
        design: Float[Array, "examples width"],
        mean: Float[Array, "examples outputs"],
        support: Examples,
        query: Examples,
    ) -> tuple[Float[Array, ""], TaskResult]:
        examples = together(support, query)
        # Of the prediction nobody wants a gradient; who does not want it at all does not pay.
        judged = self._judged(*jax.lax.stop_gradient((params, design, mean)), support, query)
        design, residual = self._told(design, mean, examples)
        diagonal = self._diagonal(params, design, examples.mask)
        count = jnp.sum(examples.mask).astype(design.dtype)
        whole = student_evidence(design, diagonal, residual, freedom_of(params), count)
        loss = -whole / jnp.maximum(count, 1)
        return loss + below_the_floor(params), TaskResult(loss, judged.predictive.mean)

    def evidence(self, params: HeadParams, examples: Examples) -> Float[Array, ""]:
        design, residual = self._seen(params, examples)
        kernel = self._kernel(params, design, examples.mask)
        cholesky = jnp.linalg.cholesky(kernel)
        if self.classes:
            return self._left_out(params, cholesky, residual, examples)
        whitened = solve_triangular(cholesky, residual, lower=True)
        return log_student(freedom_of(params), cholesky, whitened, jnp.sum(examples.mask))

    def adapt(self, params: HeadParams, support: Examples) -> HeadPosterior:
        design, residual = self._seen(params, support)
        cholesky = jnp.linalg.cholesky(self._kernel(params, design, support.mask))
        weights = cho_solve((cholesky, True), residual)
        scale, freedom = self._scale(
            params, jnp.sum(residual * weights, axis=0), jnp.sum(support.mask)
        )
        return HeadPosterior(params, design, cholesky, weights, scale, freedom)

    def predict(
        self,
        posterior: HeadPosterior,
        query_x: Array,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Predictive:
        if self.classes:
            mean = jax.nn.softmax(self._logits(posterior, query_x, query_mask))
            return Predictive(mean, jnp.zeros_like(mean), jnp.zeros_like(mean))
        params = posterior.params
        phi = self._phi(params, query_x, query_mask)
        design, mean = projected(params, phi)
        cross = design @ posterior.design.T
        mean = mean + cross @ posterior.weights
        explained = solve_triangular(posterior.cholesky, cross.T, lower=True)
        unknown = jnp.sum(jnp.square(design), axis=-1) - jnp.sum(jnp.square(explained), axis=0)
        return self._spread(params, mean, unknown, posterior.scale, posterior.freedom)

    def judge(self, params: HeadParams, support: Examples, query: Examples) -> Judgement:
        """One factor for all: that of the support set is its upper left corner."""
        if self.classes:
            posterior = self.adapt(params, support)
            return Judgement(
                support=self.evidence(params, support),
                whole=self.evidence(params, together(support, query)),
                predictive=self.predict(posterior, query.x, query.mask),
            )
        examples = together(support, query)
        seen = projected(params, self._phi(params, examples.x, examples.mask))
        return self._judged(params, *seen, support, query)

    def _judged(
        self,
        params: HeadParams,
        design: Float[Array, "examples width"],
        mean: Float[Array, "examples outputs"],
        support: Examples,
        query: Examples,
    ) -> Judgement:
        examples, first = together(support, query), support.mask.shape[0]
        design, residual = self._told(design, mean, examples)
        cholesky = factored(self._kernel(params, design, examples.mask))
        whitened = solve_triangular(cholesky, residual, lower=True)
        seen = jnp.sum(support.mask)
        scale, freedom = self._scale(params, jnp.sum(jnp.square(whitened[:first]), axis=0), seen)
        explained = cholesky[first:, :first]
        mean = mean[first:] + explained @ whitened[:first]
        unknown = jnp.sum(jnp.square(design[first:]), -1) - jnp.sum(jnp.square(explained), -1)
        return Judgement(
            support=log_student(
                freedom_of(params), cholesky[:first, :first], whitened[:first], seen
            ),
            whole=log_student(freedom_of(params), cholesky, whitened, jnp.sum(examples.mask)),
            predictive=self._spread(params, mean, unknown, scale, freedom),
        )

    def _phi(
        self, params: HeadParams, x: Array, mask: Bool[Array, " examples"] | None
    ) -> Float[Array, "examples width"]:
        parts = [self.features.apply(params.features, x, mask)]
        if self.inputs:
            parts.append(x.reshape(x.shape[0], -1) / self.input_scale)
        return jnp.concatenate([*parts, jnp.ones((x.shape[0], 1))], axis=1)

    def _seen(
        self, params: HeadParams, examples: Examples
    ) -> tuple[Float[Array, "examples width"], Float[Array, "examples outputs"]]:
        """Phi L and the residuals of the prior mean, zero for padding."""
        phi = self._phi(params, examples.x, examples.mask)
        return self._told(*projected(params, phi), examples)

    def _told(
        self,
        design: Float[Array, "examples width"],
        mean: Float[Array, "examples outputs"],
        examples: Examples,
    ) -> tuple[Float[Array, "examples width"], Float[Array, "examples outputs"]]:
        """The same from what the last layer makes of the features."""
        if self.classes:
            residual = jax.nn.one_hot(examples.y, self.outputs) - 1 / self.outputs
        else:
            residual = examples.y - mean
        real = examples.mask[:, None]
        return jnp.where(real, design, 0), jnp.where(real, residual, 0)

    def _kernel(
        self, params: HeadParams, design: Float[Array, "examples width"], mask: Array
    ) -> Float[Array, "examples examples"]:
        """K, with ones on the diagonal where there is padding: it then adds nothing."""
        return design @ design.T + jnp.diag(self._diagonal(params, design, mask))

    def _diagonal(
        self, params: HeadParams, design: Float[Array, "examples width"], mask: Array
    ) -> Float[Array, " examples"]:
        """What K has on its diagonal beside Phi L L' Phi'."""
        largest = jax.lax.stop_gradient(jnp.max(jnp.sum(jnp.square(design), axis=-1)))
        return jnp.where(mask, noise_of(params) + JITTER * largest, 1.0)

    def _scale(
        self, params: HeadParams, squared: Float[Array, " outputs"], count: Array
    ) -> tuple[Float[Array, " outputs"], Float[Array, ""]]:
        """The factor by which a task is wider than the prior, and degrees of freedom."""
        if self.classes:
            return jnp.ones_like(squared), jnp.asarray(jnp.inf)
        freedom = freedom_of(params)
        return (freedom + squared) / (freedom + count), freedom + count

    def _spread(
        self,
        params: HeadParams,
        mean: Float[Array, "query outputs"],
        unknown: Float[Array, " query"],
        scale: Float[Array, " outputs"],
        freedom: Float[Array, ""],
    ) -> Predictive:
        widened = scale * freedom / (freedom - 2)
        uncertainty = jnp.maximum(unknown, 0)[:, None] * widened
        noise = jnp.broadcast_to(noise_of(params) * widened, mean.shape)
        return Predictive(mean, uncertainty, noise)

    def _logits(
        self, posterior: HeadPosterior, x: Array, mask: Bool[Array, " query"] | None
    ) -> Float[Array, "query classes"]:
        design = self._phi(posterior.params, x, mask) @ posterior.params.factor
        scores = design @ (posterior.design.T @ posterior.weights)
        return jnp.exp(posterior.params.log_scale) * scores

    def _left_out(
        self,
        params: HeadParams,
        cholesky: Float[Array, "examples examples"],
        targets: Float[Array, "examples classes"],
        examples: Examples,
    ) -> Float[Array, ""]:
        """Sum of log p(label | the other labels); its scores are y - [K^-1 y] / diag(K^-1)."""
        inverse = cho_solve((cholesky, True), jnp.eye(cholesky.shape[0]))
        scores = targets - inverse @ targets / jnp.diag(inverse)[:, None]
        losses = self.likelihood.loss(jnp.exp(params.log_scale) * scores, examples.y)
        return -jnp.sum(jnp.where(examples.mask, losses, 0))
