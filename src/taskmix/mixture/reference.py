"""What the evidence of a cluster's own tasks usually is: a sample of scores to rank others in.

A score is the evidence of a task per example. The sample consists of tasks that were never learned
from, and is scored anew while the cluster learns. So it stays exchangeable with the tasks to come
as long as these are of the same kind: ranks in it need no assumption about how scores are
distributed, and mean the same thing at every age.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from taskmix.mixture.reservoir import Reservoir
from taskmix.tasks import TaskBatch

LEAST = 20
"""Scores that a reference needs before anything is judged by it."""
TAIL = 0.1
"""Share of the lowest scores whose tail is taken to be exponential."""
ORDINARY = 0.02
"""Rank from which on a task is not less likely for being unlike the cluster's own."""
LEAST_SCALE = 1.0
"""Least scale of the tail, in nats per task: sharper differences say nothing about kinds."""
SMALLEST_RANK = 1e-4
EXTREME = 1e6


class Scores(eqx.Module):
    """What a cluster makes of tasks, per example."""

    whole: Float[Array, "*clusters tasks"]
    support: Float[Array, "*clusters tasks"]


class Reference(eqx.Module):
    """A sample of the tasks that the cluster explains best, with their scores."""

    sample: Reservoir
    scores: Scores

    @staticmethod
    def empty(example: TaskBatch, places: int) -> Reference:
        return Reference(
            Reservoir.empty(example, places), Scores(jnp.zeros(places), jnp.zeros(places))
        )

    @property
    def known(self) -> Bool[Array, "*clusters places"]:
        return self.sample.filled

    def count(self) -> Int[Array, "*clusters"]:
        return jnp.sum(self.known, axis=-1)

    def enough(self) -> Bool[Array, "*clusters"]:
        return self.count() >= LEAST

    def drop(self, where: Bool[Array, " places"]) -> Reference:
        return Reference(self.sample.drop(where), self.scores)

    def rank(self, whole: Float[Array, " tasks"]) -> Float[Array, " tasks"]:
        """Share of the cluster's own tasks with a lower score, by the tail where it is low."""
        tenth, scale = self._tail(self.scores.whole)
        below = jnp.sum((self.scores.whole < whole[:, None]) & self.known, axis=-1)
        far = TAIL * jnp.exp((whole - tenth) / jnp.maximum(scale, 1e-6))
        ordinary = (below + 0.5) / (self.count() + 1)
        ranks = jnp.where(whole < tenth, jnp.clip(far, SMALLEST_RANK, TAIL), ordinary)
        return jnp.where(self.count() > 0, ranks, 0.5)

    def support_rank(self, support: Float[Array, ""]) -> Float[Array, ""]:
        """The same of a support set alone, without the tail."""
        below = jnp.sum((self.scores.support < support) & self.known)
        return (below + 0.5) / (self.count() + 1)

    def whole_typicality(
        self, whole: Float[Array, " tasks"], examples: Int[Array, " tasks"]
    ) -> Float[Array, " tasks"]:
        """How much less likely tasks are for being unlike the cluster's own, as a logarithm."""
        return self._typicality(self.scores.whole, whole, examples)

    def support_typicality(
        self, support: Float[Array, "*tasks"], examples: Int[Array, "*tasks"]
    ) -> Float[Array, "*tasks"]:
        """The same of support sets alone."""
        return self._typicality(self.scores.support, support, examples)

    def _typicality(
        self,
        own: Float[Array, " places"],
        scores: Float[Array, "*tasks"],
        examples: Int[Array, "*tasks"],
    ) -> Float[Array, "*tasks"]:
        """log min(1, rank / ORDINARY), by the exponential tail; 0 where too little is known."""
        tenth, scale = self._tail(own)
        log_rank = math.log(TAIL) + (scores - tenth) / jnp.maximum(scale, LEAST_SCALE / examples)
        less = jnp.minimum(log_rank - math.log(ORDINARY), 0)
        return jnp.where(self.enough(), less, 0)

    def _tail(self, own: Float[Array, " places"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Where the lowest tenth of the scores begins, and their mean distance from there."""
        lowest = min(math.floor(TAIL * own.shape[0]) + 2, own.shape[0])
        ordered, _ = jax.lax.top_k(-jnp.where(self.known, own, EXTREME), lowest)
        tenth = -ordered[jnp.floor(TAIL * self.count()).astype(int)]
        beyond = self.known & (own < tenth)
        distance = jnp.sum(jnp.where(beyond, tenth - own, 0))
        return tenth, distance / jnp.maximum(jnp.sum(beyond), 1)
