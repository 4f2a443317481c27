"""The component of tasks that no cluster explains: targets without any structure."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from taskmix.adaptation import Judgement, Predictive
from taskmix.likelihood import Categorical, Likelihood
from taskmix.tasks import Examples, TaskBatch

FREEDOM = 3.0
"""Degrees of freedom of the Student t: the scale of a task is known to a factor of about 2."""
RATE = 0.01
"""Rate at which mean and scale follow the targets; at first it is one over the batches."""
WIDEST = 1e6


class Background(eqx.Module):
    """Targets of a task are independent Student t of one unknown scale; labels are uniform."""

    mean: Float[Array, " outputs"]
    square: Float[Array, " outputs"]
    """Mean square distance of targets from their mean."""
    batches: Float[Array, ""]

    @staticmethod
    def begin(outputs: int) -> Background:
        return Background(jnp.zeros(outputs), jnp.ones(outputs), jnp.zeros(()))

    def observe(self, batch: TaskBatch, likelihood: Likelihood) -> Background:
        """Follow the targets of a batch, each example counting alike."""
        if isinstance(likelihood, Categorical):
            return self
        y = jnp.concatenate([batch.support.y, batch.query.y], axis=1)
        mask = jnp.concatenate([batch.support.mask, batch.query.mask], axis=1)[..., None]
        count = jnp.maximum(jnp.sum(mask), 1)
        rate = jnp.where(jnp.any(mask), jnp.maximum(RATE, 1 / (self.batches + 1)), 0)
        mean = self.mean + rate * (jnp.sum(jnp.where(mask, y, 0), (0, 1)) / count - self.mean)
        squares = jnp.sum(jnp.where(mask, jnp.square(y - mean), 0), (0, 1)) / count
        square = self.square + rate * (squares - self.square)
        return Background(mean, jnp.clip(square, 1e-6, WIDEST), self.batches + jnp.any(mask))

    def judge(self, likelihood: Likelihood, support: Examples, query: Examples) -> Judgement:
        """What the background makes of one task, as a cluster would."""
        return Judgement(
            self.evidence(likelihood, support),
            self.evidence(likelihood, support, query),
            self.predict(likelihood, support, query.mask.shape[0]),
        )

    def evidence(self, likelihood: Likelihood, *parts: Examples) -> Float[Array, ""]:
        count = sum(jnp.sum(part.mask) for part in parts)
        if isinstance(likelihood, Categorical):
            return -count * jnp.log(float(self.mean.shape[0]))
        squared = sum(self._squared(part) for part in parts)
        constant = (
            jax.lax.lgamma((FREEDOM + count) / 2)
            - math.lgamma(FREEDOM / 2)
            - count / 2 * jnp.log(FREEDOM * math.pi * self.square)
        )
        return jnp.sum(constant - (FREEDOM + count) / 2 * jnp.log1p(squared / FREEDOM))

    def predict(self, likelihood: Likelihood, support: Examples, queries: int) -> Predictive:
        shape = (queries, self.mean.shape[0])
        if isinstance(likelihood, Categorical):
            uniform = jnp.full(shape, 1 / shape[1])
            return Predictive(uniform, None, None)
        freedom = FREEDOM + jnp.sum(support.mask)
        scale = self.square * (FREEDOM + self._squared(support)) / freedom
        noise = jnp.broadcast_to(scale * freedom / (freedom - 2), shape)
        mean = jnp.broadcast_to(self.mean, shape)
        return Predictive(mean, jnp.zeros(shape), noise)

    def _squared(self, examples: Examples) -> Float[Array, " outputs"]:
        distances = jnp.square(examples.y - self.mean) / self.square
        return jnp.sum(jnp.where(examples.mask[:, None], distances, 0), axis=0)
