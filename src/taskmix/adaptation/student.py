"""The evidence of a multivariate Student t whose covariance comes from features."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float


def factored(kernel: Float[Array, "examples examples"]) -> Float[Array, "examples examples"]:
    """The Cholesky factor of what is symmetric as it is made."""
    factor: Array = jax.lax.linalg.cholesky(kernel, symmetrize_input=False)
    return factor


@jax.custom_vjp
def student_evidence(
    design: Float[Array, "examples width"],
    diagonal: Float[Array, " examples"],
    residual: Float[Array, "examples outputs"],
    freedom: Float[Array, ""],
    count: Float[Array, ""],
) -> Float[Array, ""]:
    """The evidence of all examples, with a gradient in closed form: cheaper than through a factor.

    With K = D D' + diag(d) of n examples, a = K^-1 r, q = r' a and p = (nu + n) / (nu + q) the
    gradient of one output is (p a a' - K^-1) / 2 in K, -p a in r, and in nu
    (psi((nu + n) / 2) - psi(nu / 2) - n / nu - log(1 + q / nu) + p q / nu) / 2.
    """
    return _student_evidence(design, diagonal, residual, freedom, count)[0]


def _student_evidence(
    design: Array, diagonal: Array, residual: Array, freedom: Array, count: Array
) -> tuple[Array, tuple[Array, ...]]:
    cholesky = factored(design @ design.T + jnp.diag(diagonal))
    unit = jnp.eye(diagonal.shape[0], dtype=diagonal.dtype)
    solved = solve_triangular(cholesky, jnp.concatenate([unit, residual], axis=1), lower=True)
    # By columns, as the solver leaves them in memory.
    columns = solved.T
    turned, whitened = columns[: diagonal.shape[0]], columns[diagonal.shape[0] :].T
    evidence = log_student(freedom, cholesky, whitened, count)
    return evidence, (design, turned, whitened, freedom, count)


def _student_gradient(kept: tuple[Array, ...], change: Array) -> tuple[Array, ...]:
    design, turned, whitened, freedom, count = kept
    squared = jnp.sum(jnp.square(whitened), axis=0)
    pull = (freedom + count) / (freedom + squared)
    solved = turned @ whitened
    outputs = whitened.shape[1]
    in_kernel = change / 2 * ((pull * solved) @ solved.T - outputs * (turned @ turned.T))
    in_freedom = (
        jax.lax.digamma((freedom + count) / 2)
        - jax.lax.digamma(freedom / 2)
        - count / freedom
        - jnp.log1p(squared / freedom)
        + pull * squared / freedom
    )
    return (
        2 * in_kernel @ design,
        jnp.diag(in_kernel),
        -change * pull * solved,
        change / 2 * jnp.sum(in_freedom),
        jnp.zeros_like(count),
    )


student_evidence.defvjp(_student_evidence, _student_gradient)


def log_student(
    freedom: Float[Array, ""],
    cholesky: Float[Array, "examples examples"],
    whitened: Float[Array, "examples outputs"],
    count: Array,
) -> Float[Array, ""]:
    """Log-density of the multivariate t, summed over the outputs; padding adds nothing to it."""
    squared = jnp.sum(jnp.square(whitened), axis=0)
    constant = (
        jax.lax.lgamma((freedom + count) / 2)
        - jax.lax.lgamma(freedom / 2)
        - count / 2 * jnp.log(freedom * math.pi)
        - jnp.sum(jnp.log(jnp.diag(cholesky)))
    )
    return jnp.sum(constant - (freedom + count) / 2 * jnp.log1p(squared / freedom))
