"""Gradient steps whose evidence is that of examples they were not taken on."""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from taskmix.adaptation.gradient import Gradient
from taskmix.adaptation.means import query_result
from taskmix.adaptation.task_model import Judgement, Predictive, TaskResult, over_rows
from taskmix.likelihood import Categorical
from taskmix.models import check_repeated
from taskmix.tasks import Examples

LEAST_FREEDOM = 2.1
"""Degrees of freedom; above 2, so that residuals have a variance."""


FIRST_FREEDOM = 6.0
"""Degrees of freedom above the least before anything was learned."""


class CalibratedParams(eqx.Module):
    """An initialisation, and how far its predictions are from the truth."""

    network: PyTree
    log_scale: Float[Array, "*clusters"]
    """Logarithm of the residuals' scale."""
    log_freedom: Float[Array, "*clusters"]
    """Logarithm of the degrees of freedom above the least."""


@dataclasses.dataclass(frozen=True)
class CalibratedGradient(Gradient):
    """Gradient steps whose evidence is that of residuals of examples they were not taken on.

    The examples of a set are cut into parts, and each is predicted after adaptation to the
    others. The residuals have a multivariate Student t, independent for each output,

        r ~ t_nu(0, s^2 I),  s = exp(log_scale),  nu = 2.1 + exp(log_freedom),

    whose scale and freedom are learned from the residuals of query sets and move nothing else:
    the network learns as ``Gradient`` does, bit for bit, unless the optimiser clips the norm of
    all gradients together. Labels have the log-likelihood that held-out ones get.

    Examples
    --------
    >>> from taskmix.models import MLP
    >>> CalibratedGradient(MLP(hidden=(8,)), parts=3).exact
    False
    """

    parts: int = 5
    """Into how many parts a set of examples is cut."""

    def __post_init__(self) -> None:
        check_repeated(parts=self.parts)
        if self.parts < 2:
            raise ValueError(f"parts is {self.parts}; it must be at least 2.")

    @property
    def classes(self) -> bool:
        return isinstance(self.likelihood, Categorical)

    def init(self, key: Key[Array, ""]) -> CalibratedParams:
        return CalibratedParams(
            self.model.init(key), jnp.zeros(()), math.log(FIRST_FREEDOM) * jnp.ones(())
        )

    def loss(
        self, params: CalibratedParams, support: Examples, query: Examples
    ) -> tuple[Float[Array, ""], TaskResult]:
        """The query loss, and minus the log-density of the query's residuals per example."""
        adapted = super().adapt(params.network, support)
        outputs = self.model.apply(adapted, query.x, query.mask)
        result = query_result(self.likelihood, outputs, query)
        loss = result.loss
        if not self.classes:
            residual = jax.lax.stop_gradient(_residual(outputs, query.y, query.mask))
            # What a diverged task says of the scale would be the end of it.
            usable = jnp.isfinite(_density(params, residual, query.mask))
            density = _density(params, jnp.where(usable, residual, 0), query.mask)
            each = density / jnp.maximum(jnp.sum(query.mask), 1)
            loss = loss - jnp.where(usable, each, 0)
        return loss, TaskResult(loss, result.predicted)

    def evidence(self, params: CalibratedParams, examples: Examples) -> Float[Array, ""]:
        count = jnp.cumsum(examples.mask) - examples.mask
        part = jnp.where(examples.mask, count % self.parts, -1)

        def held_out(number: Array) -> Float[Array, "examples outputs"]:
            """Outputs for the examples of one part, zero elsewhere."""
            held = part == number
            others = Examples(examples.x, examples.y, examples.mask & ~held)
            adapted = super(CalibratedGradient, self).adapt(
                params.network, others.without_padding_values()
            )
            outputs = self.model.apply(adapted, examples.x, examples.mask)
            return jnp.where(held[:, None], outputs, 0)

        outputs = jnp.sum(over_rows(self, held_out)(jnp.arange(self.parts)), axis=0)
        return self._judged(params, outputs, examples)

    def adapt(self, params: CalibratedParams, support: Examples) -> CalibratedParams:
        adapted = super().adapt(params.network, support)
        return CalibratedParams(adapted, params.log_scale, params.log_freedom)

    def predict(
        self,
        posterior: CalibratedParams,
        query_x: Array,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Predictive:
        outputs = self.model.apply(posterior.network, query_x, query_mask)
        mean = self.likelihood.predictive(outputs)
        nothing = jnp.zeros_like(mean)
        if self.classes:
            return Predictive(mean, nothing, nothing)
        freedom = _freedom(posterior)
        noise = jnp.exp(2 * posterior.log_scale) * freedom / (freedom - 2)
        return Predictive(mean, nothing, nothing + noise)

    def judge(self, params: CalibratedParams, support: Examples, query: Examples) -> Judgement:
        adapted = self.adapt(params, support)
        outputs = self.model.apply(adapted.network, query.x, query.mask)
        known = self.evidence(params, support)
        return Judgement(
            support=known,
            whole=known + self._judged(params, outputs, query),
            predictive=self.predict(adapted, query.x, query.mask),
        )

    def _judged(
        self, params: CalibratedParams, outputs: Float[Array, "examples outputs"], truth: Examples
    ) -> Float[Array, ""]:
        """What outputs for examples not adapted to say of these; -inf where they diverged."""
        finite = jnp.all(jnp.isfinite(outputs) | ~truth.mask[:, None])
        outputs = jnp.where(finite, outputs, 0)
        if self.classes:
            each = self.likelihood.log_likelihood(outputs, truth.y)
            known = jnp.sum(jnp.where(truth.mask, each, 0))
        else:
            known = _density(params, _residual(outputs, truth.y, truth.mask), truth.mask)
        return jnp.where(finite & jnp.isfinite(known), known, -jnp.inf)


def _residual(
    outputs: Float[Array, "examples outputs"],
    y: Float[Array, "examples outputs"],
    mask: Bool[Array, " examples"],
) -> Float[Array, "examples outputs"]:
    """Target minus prediction, zero for padding."""
    return jnp.where(mask[:, None], y - outputs, 0)


def _freedom(params: CalibratedParams) -> Float[Array, ""]:
    return LEAST_FREEDOM + jnp.exp(params.log_freedom)


def _density(
    params: CalibratedParams,
    residual: Float[Array, "examples outputs"],
    mask: Bool[Array, " examples"],
) -> Float[Array, ""]:
    """Log-density of residuals under the multivariate t, summed over the outputs."""
    freedom, count = _freedom(params), jnp.sum(mask)
    squared = jnp.sum(jnp.square(residual * jnp.exp(-params.log_scale)), axis=0)
    constant = (
        jax.lax.lgamma((freedom + count) / 2)
        - jax.lax.lgamma(freedom / 2)
        - count / 2 * jnp.log(freedom * math.pi)
        - count * params.log_scale
    )
    return jnp.sum(constant - (freedom + count) / 2 * jnp.log1p(squared / freedom))
