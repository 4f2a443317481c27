"""What a cluster's losses usually look like: the part of its likelihood that is learned.

A fixed observation variance cannot say that a specialised cluster is sharp and a young
one diffuse. So every cluster carries a normal distribution over the logarithms of the
losses of its own tasks, and a task is judged by how well it fits there.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from taskmix.adapt import Adaptation, task_loss
from taskmix.likelihood import Likelihood, masked_mean
from taskmix.models import Model
from taskmix.tasks import Examples

SMALLEST_LOG_LOSS = -20.0
LARGEST_LOG_LOSS = 20.0
SMALLEST_VARIANCE = 1e-2


class RunningNormal(eqx.Module):
    """Mean and covariance of vectors seen one batch at a time, one row per cluster.

    A plain average at first, an exponential one later: the rate of a row is
    max(floor, 1 / (batches + 1)). The covariance starts as one batch's worth of the
    identity, an e-fold of spread, so that it is never singular.
    """

    mean: Float[Array, "*clusters size"]
    covariance: Float[Array, "*clusters size size"]
    batches: Float[Array, "*clusters"]

    @staticmethod
    def empty(clusters: int, size: int) -> RunningNormal:
        return RunningNormal(
            mean=jnp.zeros((clusters, size)),
            covariance=jnp.broadcast_to(jnp.eye(size), (clusters, size, size)),
            batches=jnp.zeros(clusters),
        )

    def row(self, index: Int[Array, ""]) -> RunningNormal:
        return jax.tree.map(lambda leaf: leaf[index], self)

    def put(
        self, index: Int[Array, ""], row: RunningNormal, where: Bool[Array, ""]
    ) -> RunningNormal:
        return jax.tree.map(
            lambda rows, new: rows.at[index].set(jnp.where(where, new, rows[index])), self, row
        )

    def distance(self, x: Float[Array, "*clusters size"]) -> Float[Array, "*clusters"]:
        """Squared Mahalanobis distance of one vector from each row."""
        deviation = x - self.mean
        # The inverse does not depend on x: one for all tasks, where a solve is one each.
        precision = jnp.linalg.inv(self._regular())
        return jnp.einsum("...i,...ij,...j->...", deviation, precision, deviation)

    def log_density(self, x: Float[Array, "*clusters size"]) -> Float[Array, "*clusters"]:
        """Log-density of one vector under each row, without the constant of 2 pi."""
        return -0.5 * (self.distance(x) + jnp.linalg.slogdet(self._regular())[1])

    def _regular(self) -> Float[Array, "*clusters size size"]:
        size = self.mean.shape[-1]
        return self.covariance + SMALLEST_VARIANCE * jnp.eye(size)


def observe(
    rows: RunningNormal,
    index: Int[Array, ""],
    x: Float[Array, "tasks size"],
    floor: float,
    where: Bool[Array, ""],
) -> RunningNormal:
    """Let one row see a batch of vectors, if ``where``."""
    row = rows.row(index)
    rate = jnp.maximum(floor, 1 / (row.batches + 1))
    centre = jnp.mean(x, axis=0)
    shift = centre - row.mean
    scatter = (x - centre).T @ (x - centre) / x.shape[0]
    # One batch later than the mean: the covariance it started from counts as a batch.
    slow = jnp.maximum(floor, 1 / (row.batches + 2))
    between = (1 - rate) * jnp.outer(shift, shift)
    seen = RunningNormal(
        mean=row.mean + rate * shift,
        covariance=(1 - slow) * row.covariance + slow * (scatter + between),
        batches=row.batches + 1,
    )
    return rows.put(index, seen, where)


def log_loss(loss: Float[Array, "*tasks"]) -> Float[Array, "*tasks"]:
    """The logarithm, kept within bounds; a loss that is not finite is as bad as can be."""
    safe = jnp.where(jnp.isfinite(loss), loss, jnp.inf)
    return jnp.clip(jnp.log(safe), SMALLEST_LOG_LOSS, LARGEST_LOG_LOSS)


def support_signature(
    model: Model,
    likelihood: Likelihood,
    adaptation: Adaptation,
    params: PyTree,
    support: Examples,
    folds: int,
) -> Float[Array, " 2"]:
    """Log loss on the support set of one task: after adaptation to it, and held out.

    The first says how far the cluster bends to the task, the second how well that
    carries over. Neither alone tells families apart as well as both do.
    """
    adapted = adaptation(model, likelihood, params, support)
    within = task_loss(model, likelihood, adapted, support)
    fold = jnp.arange(support.mask.shape[0]) % folds

    def held_out(left_out: Int[Array, ""]) -> Float[Array, " examples"]:
        rest = Examples(support.x, support.y, support.mask & (fold != left_out))
        adapted = adaptation(model, likelihood, params, rest)
        return likelihood.loss(model.apply(adapted, support.x), support.y)

    losses = jax.vmap(held_out)(jnp.arange(folds))
    own = jnp.take_along_axis(losses, fold[None], axis=0)[0]
    return log_loss(jnp.stack([within, masked_mean(own, support.mask)]))
