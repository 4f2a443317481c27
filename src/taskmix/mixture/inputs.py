"""What the inputs of a cluster's tasks look like, where the likelihood describes them.

The description of a task is normal around the mean of its cluster, with a covariance that all
clusters share: what sets one task apart from the next of the same kind (which objects it shows)
is much the same for every kind. Mean and covariance are estimated from few tasks at first, so that
the density is the Student t that a normal-inverse-Wishart prior leads to.

A. Gelman et al.: Bayesian data analysis, 3rd edition, section 3.6.
O. Ledoit, M. Wolf: A well-conditioned estimator for large-dimensional covariance matrices. 2004
(shrinkage).
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

MEMORY = 1000.0
"""Tasks over which a description is remembered."""
PRIOR_VARIANCE = 1e-2
"""Of a statistic between tasks, before any are seen."""
PRIOR_TASKS = 4.0
"""Tasks that this counts for."""
LEAST_FREEDOM = 3.0
"""Degrees of freedom before any task is seen; each adds one."""
BREADTH = 4.0
"""How many times wider the background's description is than that of all tasks together."""
SUPPORT, WHOLE = 0, 1
"""The two descriptions of a task: by its support set, and by all its examples.

The mean of a few images varies more than that of many, so that each has moments of its own."""


class Inputs(eqx.Module):
    """Moments of the statistics of inputs, one row per cluster; the last: of all tasks."""

    mean: Float[Array, "rows views statistics"]
    scatter: Float[Array, "rows views statistics statistics"]
    """Mean product of deviations from the row's mean."""
    count: Float[Array, " rows"]
    """Tasks that each has followed, at most those it remembers."""

    @staticmethod
    def begin(rows: int, statistics: int) -> Inputs:
        shape = (rows, 2, statistics)
        return Inputs(jnp.zeros(shape), jnp.zeros((*shape, statistics)), jnp.zeros(rows))

    def log_density(
        self, statistics: Float[Array, "*tasks statistics"], view: int
    ) -> Float[Array, "*tasks rows"]:
        """Of tasks' statistics under each row; one that has seen nothing is as the background."""
        width = statistics.shape[-1]
        if not width:
            return jnp.zeros((*statistics.shape[:-1], self.count.shape[0]))
        scatter, own = self.scatter[:, view], self.count[:-1]
        together = jnp.sum(own)
        share = own / jnp.maximum(together, 1e-9)
        pooled = jnp.tensordot(share, scatter[:-1], axes=1)
        clusters = _student(
            statistics[..., None, :] - self.mean[:-1, view],
            _shrunk(pooled, together),
            1 + 1 / jnp.maximum(own, 0.5),
            together,
        )
        blank = _student(
            statistics - self.mean[-1, view],
            _shrunk(scatter[-1], self.count[-1]),
            jnp.asarray(BREADTH),
            self.count[-1],
        )[..., None]
        known = jnp.where(own > 0, clusters, blank)
        return jnp.where(self.count[-1] > 0, jnp.concatenate([known, blank], axis=-1), 0)

    def log_densities(
        self, support: Float[Array, "*tasks statistics"], whole: Float[Array, "*tasks statistics"]
    ) -> tuple[Float[Array, "*tasks rows"], Float[Array, "*tasks rows"]]:
        """Of both descriptions of tasks."""
        return self.log_density(support, SUPPORT), self.log_density(whole, WHOLE)

    def observe(
        self,
        support: Float[Array, "tasks statistics"],
        whole: Float[Array, "tasks statistics"],
        weights: Float[Array, "tasks rows"],
    ) -> Inputs:
        """Follow the tasks of a batch, by how much of each belongs to each row."""
        statistics = jnp.stack([support, whole], axis=1)
        mass = jnp.sum(weights, axis=0)
        mass = jnp.where(mass > 0.5, mass, 0)
        share = weights / jnp.maximum(jnp.sum(weights, axis=0), 1e-9)
        count = jnp.minimum(self.count + mass, MEMORY)
        rate = mass / jnp.maximum(count, 1e-9)
        shift = jnp.einsum("tr,tvs->rvs", share, statistics) - self.mean
        mean = self.mean + rate[:, None, None] * shift
        # With nothing seen there is no level to be far from: the rate is then one.
        before = statistics[:, None] - self.mean
        after = statistics[:, None] - mean
        products = jnp.einsum("tr,trvs,trvu->rvsu", share, before, after)
        step = rate[:, None, None, None]
        scatter = self.scatter + step * (products - self.scatter)
        return Inputs(mean, (scatter + scatter.mT) / 2, count)


def _shrunk(
    scatter: Float[Array, "statistics statistics"], count: Float[Array, ""]
) -> Float[Array, "statistics statistics"]:
    """The covariance: the scatter as far as so many tasks tell it, else independent statistics."""
    width = scatter.shape[0]
    told = count / (count + PRIOR_TASKS)
    variance = told * jnp.maximum(jnp.diag(scatter), 0) + (1 - told) * PRIOR_VARIANCE
    shrinkage = width / (width + count)
    return (1 - shrinkage) * scatter + jnp.diag(
        variance - (1 - shrinkage) * jnp.diag(scatter) + 1e-2 * PRIOR_VARIANCE
    )


def _student(
    deviations: Float[Array, "*tasks statistics"],
    covariance: Float[Array, "statistics statistics"],
    widened: Float[Array, "*rows"],
    count: Float[Array, ""],
) -> Float[Array, "*tasks"]:
    """Log-density of a multivariate t with a covariance of ``widened`` times that given."""
    width, freedom = deviations.shape[-1], LEAST_FREEDOM + count
    cholesky = jnp.linalg.cholesky(covariance)
    flat = deviations.reshape(-1, width)
    whitened = solve_triangular(cholesky, flat.T, lower=True).T.reshape(deviations.shape)
    scale = widened * (freedom - 2) / freedom
    squared = jnp.sum(jnp.square(whitened), axis=-1) / scale
    constant = (
        jax.lax.lgamma((freedom + width) / 2)
        - jax.lax.lgamma(freedom / 2)
        - width / 2 * jnp.log(freedom * math.pi * scale)
        - jnp.sum(jnp.log(jnp.diag(cholesky)))
    )
    return constant - (freedom + width) / 2 * jnp.log1p(squared / freedom)
