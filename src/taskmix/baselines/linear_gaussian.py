"""Linear models with normal priors and noise: evidence, prediction, and what a task says of a mean.

Examples that are padding add nothing to any of these.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Bool, Float


class Seen(eqx.Module):
    """A task through the features: its statistics for the mean of its kind."""

    precision: Float[Array, "*tasks width width"]
    information: Float[Array, "*tasks width"]

    def total(self, weights: Float[Array, " tasks"]) -> Seen:
        """The sum over tasks, each so many times."""
        return Seen(
            jnp.tensordot(weights, self.precision, axes=1),
            jnp.tensordot(weights, self.information, axes=1),
        )


def statistics(
    own: Float[Array, "width width"],
    phi: Float[Array, "examples width"],
    y: Float[Array, " examples"],
    mask: Bool[Array, " examples"],
    noise: Float[Array, ""],
) -> Seen:
    """What a task says of the mean of its kind: phi' K^-1 phi and phi' K^-1 y."""
    phi, y = jnp.where(mask[:, None], phi, 0), jnp.where(mask, y, 0)
    lower = jnp.linalg.cholesky(_kernel(own, phi, mask, noise))
    solved = cho_solve((lower, True), jnp.concatenate([phi, y[:, None]], axis=1))
    return Seen(phi.T @ solved[:, :-1], phi.T @ solved[:, -1])


def log_normal(
    mean: Float[Array, " width"],
    covariance: Float[Array, "width width"],
    phi: Float[Array, "examples width"],
    y: Float[Array, " examples"],
    mask: Bool[Array, " examples"],
    noise: Float[Array, ""],
) -> Float[Array, ""]:
    """log N(y; phi m, phi C phi' + noise), of the examples that are no padding."""
    phi = jnp.where(mask[:, None], phi, 0)
    lower = jnp.linalg.cholesky(_kernel(covariance, phi, mask, noise))
    whitened = solve_triangular(lower, jnp.where(mask, y - phi @ mean, 0), lower=True)
    constant = jnp.sum(jnp.where(mask, math.log(2 * math.pi) / 2, 0.0))
    return -constant - jnp.sum(jnp.log(jnp.diag(lower))) - jnp.sum(jnp.square(whitened)) / 2


def conditioned(
    mean: Float[Array, " width"],
    covariance: Float[Array, "width width"],
    phi: Float[Array, "examples width"],
    y: Float[Array, " examples"],
    mask: Bool[Array, " examples"],
    aside: Float[Array, "query width"],
    noise: Float[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, " query"], Float[Array, " query"]]:
    """Evidence of a support set, and mean and variance of the function at the queries."""
    phi = jnp.where(mask[:, None], phi, 0)
    lower = jnp.linalg.cholesky(_kernel(covariance, phi, mask, noise))
    cross = aside @ covariance @ phi.T
    residual = jnp.where(mask, y - phi @ mean, 0)
    explained = solve_triangular(lower, cross.T, lower=True)
    prior = jnp.sum((aside @ covariance) * aside, axis=1)
    variance = jnp.maximum(prior - jnp.sum(jnp.square(explained), axis=0), 0)
    predicted = aside @ mean + cross @ cho_solve((lower, True), residual)
    return log_normal(mean, covariance, phi, y, mask, noise), predicted, variance


def _kernel(
    covariance: Float[Array, "width width"],
    phi: Float[Array, "examples width"],
    mask: Bool[Array, " examples"],
    noise: Float[Array, ""],
) -> Float[Array, "examples examples"]:
    """Ones on the diagonal where there is padding: it then adds nothing."""
    return phi @ covariance @ phi.T + jnp.diag(jnp.where(mask, noise, 1.0))
