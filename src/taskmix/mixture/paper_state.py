"""What the paper's mixture keeps from batch to batch, and what it makes of one."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from taskmix.adaptation.means import task_weights, weighted_mean
from taskmix.mixture.clusters import Clusters
from taskmix.mixture.global_prior import GlobalPrior
from taskmix.mixture.prior import WindowedCounts
from taskmix.mixture.reservoir import Reservoir
from taskmix.mixture.responsibilities import Assessment
from taskmix.tasks import TaskBatch


class PaperState(eqx.Module):
    clusters: Clusters
    counts: WindowedCounts
    sizes: Float[Array, " clusters"]
    """Tasks that each cluster took since it was born."""
    born: Int[Array, " clusters"]
    """The iteration in which each of them was."""
    recent: Float[Array, " clusters"]
    """Tasks since the last look for clusters to prune."""
    validation: Reservoir | None
    """Tasks to compare clusters on; None if nothing asks for them."""
    global_prior: GlobalPrior
    iteration: Int[Array, ""]
    newest: Int[Array, ""]
    """The cluster that was opened last."""
    cooling: Int[Array, ""]
    """Iterations left of the cool-down; 0 when the spawning test is open."""


class EStep(eqx.Module):
    """What the mixture makes of a batch."""

    found: Assessment
    """Axes (tasks, clusters), candidates left out."""
    without: Float[Array, "tasks clusters"]
    """Responsibilities of the clusters alone."""
    shares: Float[Array, "draws tasks places"]
    """With each of the candidates in turn, which stands last."""

    def suspicion(self, batch: TaskBatch) -> Float[Array, ""]:
        """Mean responsibility of a candidate."""
        return weighted_mean(jnp.mean(self.shares[..., -1], axis=0), task_weights(batch))
