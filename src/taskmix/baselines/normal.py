"""Normal distributions over the parameters of a network."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key, PyTree


class DiagonalNormal(eqx.Module):
    """Independent normal variables in the shape of a tree."""

    mean: PyTree
    log_variance: PyTree

    @classmethod
    def around(cls, mean: PyTree, log_variance: float) -> DiagonalNormal:
        """The same variance for every variable."""
        return cls(mean, jax.tree.map(lambda leaf: jnp.full_like(leaf, log_variance), mean))

    def sample(self, key: Key[Array, ""]) -> PyTree:
        """mean + sqrt(variance) * noise, differentiable in both."""
        noise = optax.tree_utils.tree_random_like(key, self.mean)
        return jax.tree.map(
            lambda m, v, n: m + jnp.exp(v / 2) * n, self.mean, self.log_variance, noise
        )

    def divergence(self, other: DiagonalNormal) -> Float[Array, ""]:
        """KL(self || other), the sum over all variables of

        (log(w / v) + (v + (m - n)^2) / w - 1) / 2

        with means m, n and variances v, w of this one and the other.
        """
        each = jax.tree.map(
            lambda m, v, n, w: (w - v + jnp.exp(v - w) + jnp.square(m - n) * jnp.exp(-w) - 1) / 2,
            self.mean,
            self.log_variance,
            other.mean,
            other.log_variance,
        )
        return optax.tree_utils.tree_sum(each)
