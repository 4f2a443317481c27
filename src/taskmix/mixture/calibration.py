"""What a cluster's tasks usually look like: the part of its likelihood that is learned.

A fixed observation variance cannot say that a specialised cluster is sharp and a young
one diffuse. So every cluster carries a normal distribution over the signatures of its own
tasks, and a task is judged by how well it fits there. A signature is the logarithm of the
loss after adaptation, followed by what the likelihood says of the task's inputs.
"""

from __future__ import annotations

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from taskmix.adaptation import Adaptation, task_loss
from taskmix.likelihood import Likelihood, masked_mean
from taskmix.mixture.clusters import as_rows
from taskmix.models import Model, for_each
from taskmix.tasks import Examples

SMALLEST_LOG_LOSS = -20.0
LARGEST_LOG_LOSS = 20.0
SMALLEST_VARIANCE = 1e-2

FITTED_SHARE = 0.25
"""Weight of the fitted loss beside the held-out one; docs/routing.md compares others."""


class Typical(eqx.Module):
    """Mean and variance of signatures seen one batch at a time, one entry per cluster.

    A plain average at first, an exponential one later: the rate is
    max(floor, 1 / (batches + 1)). The variance starts at 1, an e-fold of spread of the
    loss, which counts as one batch.
    """

    mean: Float[Array, "*clusters statistics"]
    variance: Float[Array, "*clusters statistics"]
    batches: Float[Array, "*clusters"]

    @staticmethod
    def unknown(clusters: int, statistics: int) -> Typical:
        shape = (clusters, statistics)
        return Typical(jnp.zeros(shape), jnp.ones(shape), jnp.zeros(clusters))

    def spread(self) -> Float[Array, "*clusters statistics"]:
        """The variance, never so small that one odd task is infinitely surprising."""
        return self.variance + SMALLEST_VARIANCE

    def deviation(
        self, signatures: Float[Array, "*clusters statistics"]
    ) -> Float[Array, "*clusters statistics"]:
        """Squared distance from each cluster's mean, in its variances."""
        return jnp.square(signatures - self.mean) / self.spread()

    def log_density(
        self, signatures: Float[Array, "*clusters statistics"]
    ) -> Float[Array, "*clusters"]:
        """Log-density of a signature under each cluster, without the constant of 2 pi."""
        return -0.5 * jnp.sum(self.deviation(signatures) + jnp.log(self.spread()), axis=-1)

    def novelty(
        self, signatures: Float[Array, "*clusters statistics"]
    ) -> Float[Array, "*clusters"]:
        """The share of a cluster's tasks that look more typical of it than this one."""
        freedom = self.mean.shape[-1]
        return jax.scipy.special.gammainc(
            freedom / 2, jnp.sum(self.deviation(signatures), axis=-1) / 2
        )

    def expected_loss(self) -> Float[Array, "*clusters"]:
        """The mean of the log-normal distribution of the loss itself."""
        return jnp.exp(self.mean[..., 0] + self.variance[..., 0] / 2)

    def put(self, index: Int[Array, ""], entry: Typical, where: Bool[Array, ""]) -> Typical:
        """Replace one cluster's entry if ``where``; else change no bit."""
        chosen = (jnp.arange(self.mean.shape[0]) == index) & where
        return jax.tree.map(lambda old, new: jnp.where(as_rows(chosen, old), new, old), self, entry)

    def heir(self, parent: Int[Array, ""]) -> Typical:
        """The entry of a newborn: its parent's spread, and no memory of a level."""
        return Typical(self.mean[parent], self.variance[parent], jnp.zeros(()))

    def observe(
        self,
        index: Int[Array, ""],
        signatures: Float[Array, "tasks statistics"],
        floor: float,
        where: Bool[Array, ""],
    ) -> Typical:
        """Let one cluster see the signatures of a batch of its tasks, if ``where``."""
        old = jax.tree.map(lambda leaf: leaf[index], self)
        rate = jnp.maximum(floor, 1 / (old.batches + 1))
        centre = jnp.mean(signatures, axis=0)
        shift = centre - old.mean
        within = jnp.mean(jnp.square(signatures - centre), axis=0)
        between = (1 - rate) * jnp.square(shift)
        slow = jnp.maximum(floor, 1 / (old.batches + 2))
        # With nothing seen there is no level to be far from.
        between = jnp.where(old.batches > 0, between, 0)
        seen = Typical(
            mean=old.mean + rate * shift,
            variance=(1 - slow) * old.variance + slow * (within + between),
            batches=old.batches + 1,
        )
        return self.put(index, seen, where)


def signature(
    log_losses: Float[Array, "*tasks"], inputs: Float[Array, "*any statistics"]
) -> Float[Array, "*tasks all_statistics"]:
    """Log losses, and behind them what is known of the inputs (which may broadcast)."""
    inputs = jnp.broadcast_to(inputs, (*log_losses.shape, inputs.shape[-1]))
    return jnp.concatenate([log_losses[..., None], inputs], axis=-1)


def log_loss(loss: Float[Array, "*tasks"]) -> Float[Array, "*tasks"]:
    """The logarithm, kept within bounds; a loss that is not finite is as bad as can be."""
    safe = jnp.where(jnp.isfinite(loss), loss, jnp.inf)
    return jnp.clip(jnp.log(safe), SMALLEST_LOG_LOSS, LARGEST_LOG_LOSS)


def support_log_loss(
    model: Model,
    likelihood: Likelihood,
    adaptation: Adaptation,
    params: PyTree,
    support: Examples,
    parts: int,
) -> Float[Array, ""]:
    """How well a cluster explains the support set of one task, as a log loss.

    A weighted geometric mean of two losses. The fitted one, after adaptation to the whole
    support set, says how far the cluster bends to the task; the held-out one says how
    well that carries over. For it the support set is cut into ``parts``, and every two of
    them are predicted after adaptation to the others. With 0 parts the fitted loss is all.
    """
    adapted = adaptation(model, likelihood, params, support)
    fitted = task_loss(model, likelihood, adapted, support)
    if parts == 0:
        return log_loss(fitted)
    part = jnp.arange(support.mask.shape[0]) % parts
    pairs = jnp.asarray(list(itertools.combinations(range(parts), 2)))

    def held_out(pair: Int[Array, " 2"]) -> Float[Array, " examples"]:
        left_out = (part == pair[0]) | (part == pair[1])
        rest = Examples(support.x, support.y, support.mask & ~left_out)
        adapted = adaptation(model, likelihood, params, rest)
        losses = likelihood.loss(model.apply(adapted, support.x, support.mask), support.y)
        return jnp.where(left_out, losses, 0)

    times_left_out = parts - 1
    losses = jnp.sum(for_each(model, held_out)(pairs), axis=0) / times_left_out
    held = masked_mean(losses, support.mask)
    return FITTED_SHARE * log_loss(fitted) + (1 - FITTED_SHARE) * log_loss(held)
