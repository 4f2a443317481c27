"""What a cluster with a Bayesian head has learned, and how its numbers are bounded."""

from __future__ import annotations

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

SMALLEST_NOISE = 1e-3
"""Added to the noise variance: what float32 needs to factor K for targets of order one."""
LEAST_LOG_NOISE = math.log(0.01)
"""Below it the learned part of the noise is less than a tenth of what is added to it."""
LEAST_FREEDOM = 2.1
"""Above 2, so that every prediction has a variance."""


class HeadParams(eqx.Module):
    """What a cluster with a Bayesian head has learned."""

    features: PyTree
    location: Float[Array, "*clusters width outputs"]
    """m, the prior mean of the last layer."""
    factor: Float[Array, "*clusters width width"]
    """L, a factor of its prior covariance."""
    log_noise: Float[Array, "*clusters"]
    """Logarithm of the noise's standard deviation above the floor."""
    log_scale: Float[Array, "*clusters"]
    """Regression: of the degrees of freedom above the least; classes: of the softmax's scale."""


class HeadPosterior(eqx.Module):
    """What the head knows of a task: the support set, seen through the cluster."""

    params: HeadParams
    design: Float[Array, "support width"]
    """Phi L, without padding."""
    cholesky: Float[Array, "support support"]
    weights: Float[Array, "support outputs"]
    """K^-1 (y - Phi m)."""
    scale: Float[Array, " outputs"]
    """How much wider this task is than the prior says."""
    freedom: Float[Array, ""]


def projected(
    params: HeadParams, phi: Float[Array, "examples width"]
) -> tuple[Float[Array, "examples width"], Float[Array, "examples outputs"]]:
    """Phi L and Phi m, by one product: the second one is too thin for one of its own."""
    both = phi @ jnp.concatenate([params.factor, params.location], axis=1)
    width = params.factor.shape[1]
    return both[:, :width], both[:, width:]


def noise_of(params: HeadParams) -> Float[Array, ""]:
    return SMALLEST_NOISE + jnp.exp(2 * params.log_noise)


def freedom_of(params: HeadParams) -> Float[Array, ""]:
    return LEAST_FREEDOM + jnp.exp(params.log_scale)


def below_the_floor(params: HeadParams) -> Float[Array, ""]:
    """What keeps the logarithm of the noise from values that say nothing: a prior, 0 above them.

    Tasks without noise push the logarithm down by the same step again and again, although nothing
    depends on it any more. Had it gone far, it would have to come all that way back before
    the noise of another kind of tasks could be learned.
    """
    return jnp.square(jnp.maximum(LEAST_LOG_NOISE - params.log_noise, 0))
