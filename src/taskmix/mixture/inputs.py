"""What the inputs of a cluster's tasks look like, where the likelihood describes them.

The description of a task is normal around the mean of its cluster. What sets one task apart from
the next of the same kind is mostly which objects it shows, and how much that is can be seen within
a single task: with x_c the mean description of the examples of class c, C classes and x the mean
over these, the covariance of x is estimated by sum_c (x_c - x)(x_c - x)' / (C (C - 1)). A task is
of one kind, so that this holds from the first tasks on, and however kinds are mixed. A cluster's
covariance is pooled of this and of how its own tasks differ. Mean and covariance are estimated from
few tasks at first, so that the density is the Student t that a normal-inverse-Wishart prior leads
to.

A. Gelman et al.: Bayesian data analysis, 3rd edition, section 3.6.
O. Ledoit, M. Wolf: A well-conditioned estimator for large-dimensional covariance matrices. 2004
(shrinkage).
"""

from __future__ import annotations

import math
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Int

from taskmix.mixture.members import of_living

MEMORY = 1000.0
"""Tasks over which a description is remembered."""
PRIOR_VARIANCE = 1e-2
"""Of a statistic between tasks, before any are seen."""
PRIOR_TASKS = 4.0
"""Tasks that this counts for."""
DEGREES = 4000.0
"""Degrees of freedom of what classes tell that are remembered: those of as many tasks of five."""
LEAST_FREEDOM = 3.0
"""Degrees of freedom before any task is seen; each adds one."""
BREADTH = 4.0
"""How many times wider the background's description is than that of all tasks together."""
SUPPORT, WHOLE = 0, 1
"""The two descriptions of a task: by its support set, and by all its examples.

The mean of a few images varies more than that of many, so that each has moments of its own."""


class Description(eqx.Module):
    """What the inputs of tasks look like, in both views."""

    mean: Float[Array, "tasks views statistics"]
    within: Float[Array, "tasks views statistics statistics"]
    """Covariance of this mean, as far as the classes of a task tell it."""
    freedom: Float[Array, " tasks"]
    """Classes less one."""

    @staticmethod
    def of(
        each: Float[Array, "tasks examples statistics"],
        kind: Int[Array, "tasks examples"],
        support: Bool[Array, "tasks examples"],
        whole: Bool[Array, "tasks examples"],
    ) -> Description:
        """Of the statistics of ``each`` example, its class, and which are in either view."""
        views = [jax.vmap(_of_classes)(each, kind, mask) for mask in (support, whole)]
        mean, within, freedom = (jnp.stack(parts, axis=1) for parts in zip(*views, strict=True))
        return Description(mean, within, jnp.min(freedom, axis=1))


class Inputs(eqx.Module):
    """Moments of the statistics of inputs, one row per cluster; the last: of all tasks."""

    mean: Float[Array, "rows views statistics"]
    scatter: Float[Array, "rows views statistics statistics"]
    """Mean product of the deviations of tasks from the row's mean."""
    count: Float[Array, " rows"]
    """Tasks that each has followed, at most those it remembers."""
    within: Float[Array, "rows views statistics statistics"]
    """Covariance of tasks as the classes in each of them tell it."""
    freedom: Float[Array, " rows"]
    """Degrees of freedom of this, at most those it remembers."""

    @staticmethod
    def begin(rows: int, statistics: int) -> Inputs:
        shape, nothing = (rows, 2, statistics), jnp.zeros(rows)
        square = jnp.zeros((*shape, statistics))
        return Inputs(jnp.zeros(shape), square, nothing, square, nothing)

    def log_density(
        self, statistics: Float[Array, "*tasks statistics"], view: int
    ) -> Float[Array, "*tasks rows"]:
        """Of tasks' statistics under each row; one that has seen nothing is as the background."""
        if not statistics.shape[-1]:
            return jnp.zeros((*statistics.shape[:-1], self.count.shape[0]))
        seen = self.count[:-1] > 0
        clusters = of_living(partial(self._of_cluster, statistics, view), seen)
        blank = self._blank(statistics, view)[..., None]
        known = jnp.where(seen, jnp.moveaxis(clusters, 0, -1), blank)
        return jnp.where(self.count[-1] > 0, jnp.concatenate([known, blank], axis=-1), 0)

    def log_density_of(
        self, statistics: Float[Array, "*tasks statistics"], view: int, index: Int[Array, ""]
    ) -> Float[Array, "*tasks"]:
        """The same under one row that is a cluster's."""
        if not statistics.shape[-1]:
            return jnp.zeros(statistics.shape[:-1])
        own, blank = self._of_cluster(statistics, view, index), self._blank(statistics, view)
        return jnp.where(self.count[-1] > 0, jnp.where(self.count[index] > 0, own, blank), 0)

    def _of_cluster(
        self, statistics: Float[Array, "*tasks statistics"], view: int, index: Int[Array, ""]
    ) -> Float[Array, "*tasks"]:
        row = jax.tree.map(lambda leaf: leaf[index], self)
        known = self.freedom[-1] + row.freedom + row.count
        told = self.freedom[-1] * self.within[-1, view] + row.freedom * row.within[view]
        covariance = (told + row.count * row.scatter[view]) / jnp.maximum(known, 1e-9)
        return _student(
            statistics - row.mean[view],
            _shrunk(covariance, known),
            1 + 1 / jnp.maximum(row.count, 0.5),
            known,
        )

    def _blank(
        self, statistics: Float[Array, "*tasks statistics"], view: int
    ) -> Float[Array, "*tasks"]:
        return _student(
            statistics - self.mean[-1, view],
            _shrunk(self.scatter[-1, view], self.count[-1]),
            jnp.asarray(BREADTH),
            self.count[-1],
        )

    def log_densities(
        self, support: Float[Array, "*tasks statistics"], whole: Float[Array, "*tasks statistics"]
    ) -> tuple[Float[Array, "*tasks rows"], Float[Array, "*tasks rows"]]:
        """Of both descriptions of tasks."""
        return self.log_density(support, SUPPORT), self.log_density(whole, WHOLE)

    def observe(self, tasks: Description, weights: Float[Array, "tasks rows"]) -> Inputs:
        """Follow the tasks of a batch, by how much of each belongs to each row."""
        mass = jnp.sum(weights, axis=0)
        weights = jnp.where(mass > 0.5, weights, 0)
        count, share, rate = _followed(self.count, weights, MEMORY)
        shift = jnp.einsum("tr,tvs->rvs", share, tasks.mean) - self.mean
        mean = self.mean + rate[:, None, None] * shift
        # With nothing seen there is no level to be far from: the rate is then one.
        before = tasks.mean[:, None] - self.mean
        after = tasks.mean[:, None] - mean
        products = jnp.einsum("tr,trvs,trvu->rvsu", share, before, after)
        scatter = self.scatter + rate[:, None, None, None] * (products - self.scatter)
        freedom, share, rate = _followed(self.freedom, weights * tasks.freedom[:, None], DEGREES)
        told = jnp.einsum("tr,tvsu->rvsu", share, tasks.within)
        within = self.within + rate[:, None, None, None] * (told - self.within)
        return Inputs(mean, (scatter + scatter.mT) / 2, count, within, freedom)


def _followed(
    count: Float[Array, " rows"], weights: Float[Array, "tasks rows"], most: float
) -> tuple[Float[Array, " rows"], Float[Array, "tasks rows"], Float[Array, " rows"]]:
    """The count after more, the share of each task in them, and their share of the count."""
    mass = jnp.sum(weights, axis=0)
    count = jnp.minimum(count + mass, most)
    return count, weights / jnp.maximum(mass, 1e-9), mass / jnp.maximum(count, 1e-9)


def _of_classes(
    each: Float[Array, "examples statistics"],
    kind: Int[Array, " examples"],
    mask: Bool[Array, " examples"],
) -> tuple[Float[Array, " statistics"], Float[Array, "statistics statistics"], Float[Array, ""]]:
    """Mean of the real examples of a task, its covariance by classes, and classes less one."""
    alike = (kind[:, None] == kind) & mask
    sizes = jnp.maximum(jnp.sum(alike, axis=1), 1)
    each = jnp.where(mask[:, None], each, 0)
    of_class = (alike @ each) / sizes[:, None]
    mean = jnp.sum(each, axis=0) / jnp.maximum(jnp.sum(mask), 1)
    # Each class counts once, however many examples it has.
    once = jnp.where(mask, 1 / sizes, 0)
    classes = jnp.sum(once)
    apart = of_class - mean
    products = (once[:, None] * apart).T @ apart
    return mean, products / jnp.maximum(classes * (classes - 1), 1), jnp.maximum(classes - 1, 0)


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
