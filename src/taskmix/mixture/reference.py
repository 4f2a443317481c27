"""What the evidence of a cluster's own tasks usually is: a sample of scores to rank others in.

A score is the evidence of a task per example. Ranks in a sample of the cluster's own tasks need no
assumption about how scores are distributed, and since the sample is scored anew while the cluster
learns, they mean the same thing at every age.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from taskmix.mixture.reservoir import Reservoir
from taskmix.tasks import TaskBatch

LEAST = 20
"""Scores that a reference needs before anything is judged by it."""
OUTLYING = 4.0
"""How many times the distance from the median to the lowest tenth a typical score may lie below."""
TAIL = 0.1
ORDINARY = 0.02
LEAST_SCALE = 1.0
SMALLEST_RANK = 1e-4
EXTREME = 1e6


class Reference(eqx.Module):
    """A sample of the tasks that the cluster explains best, with their scores; never rehearsed."""

    sample: Reservoir
    whole: Float[Array, "*clusters places"]
    support: Float[Array, "*clusters places"]
    ahead: Float[Array, "*clusters places"]
    """How far the whole task is ahead of the background."""

    @staticmethod
    def empty(example: TaskBatch, places: int) -> Reference:
        nothing = jnp.zeros(places)
        return Reference(Reservoir.empty(example, places), nothing, nothing, nothing)

    @property
    def known(self) -> Bool[Array, "*clusters places"]:
        return self.sample.filled

    def count(self) -> Int[Array, "*clusters"]:
        return jnp.sum(self.known, axis=-1)

    def enough(self) -> Bool[Array, "*clusters"]:
        return self.count() >= LEAST

    def offer(
        self,
        batch: TaskBatch,
        whole: Float[Array, " tasks"],
        support: Float[Array, " tasks"],
        ahead: Float[Array, " tasks"],
        where: Bool[Array, " tasks"],
        key: Key[Array, ""],
    ) -> Reference:
        """Offer the tasks ``where`` asked, with their scores."""
        sample, source = self.sample.offer(batch, where, key)
        new = source >= 0
        return Reference(
            sample,
            jnp.where(new, whole[source], self.whole),
            jnp.where(new, support[source], self.support),
            jnp.where(new, ahead[source], self.ahead),
        )

    def rank(
        self, scores: Float[Array, " tasks"], support: bool = False
    ) -> Float[Array, " tasks"]:
        """Share of the cluster's own tasks with a lower score; of one cluster.

        Below the lowest tenth the sample is small, and an exponential tail takes its place.
        """
        own = self.support if support else self.whole
        count = self.count()
        ordered = jnp.sort(jnp.where(self.known, own, EXTREME))
        tenth = ordered[jnp.floor(TAIL * count).astype(int)]
        beyond = self.known & (own < tenth)
        scale = jnp.sum(jnp.where(beyond, tenth - own, 0)) / jnp.maximum(jnp.sum(beyond), 1)
        below = jnp.sum((own < scores[:, None]) & self.known, axis=-1)
        empirical = (below + 0.5) / (count + 1)
        far = TAIL * jnp.exp(-(tenth - scores) / jnp.maximum(scale, 1e-6))
        return jnp.where(scores < tenth, jnp.clip(far, SMALLEST_RANK, TAIL), empirical)

    def typicality(self, scores: Float[Array, " tasks"], count: Array, support: bool = False):
        """How much less likely a task is for being unlike the cluster's own: log of at most 1."""
        own = self.support if support else self.whole
        known = self.count()
        ordered = jnp.sort(jnp.where(self.known, own, EXTREME))
        tenth = ordered[jnp.floor(TAIL * known).astype(int)]
        beyond = self.known & (own < tenth)
        scale = jnp.sum(jnp.where(beyond, tenth - own, 0)) / jnp.maximum(jnp.sum(beyond), 1)
        scale = jnp.maximum(scale, LEAST_SCALE / count)
        log_rank = jnp.log(TAIL) - (tenth - scores) / scale
        return jnp.where(self.enough(), jnp.minimum(log_rank - jnp.log(ORDINARY), 0), 0)

    def rank_above(self, ahead: Float[Array, " tasks"]) -> Float[Array, " tasks"]:
        """Share of the cluster's own tasks that are further ahead of the background."""
        above = jnp.sum((self.ahead > ahead[:, None]) & self.known, axis=-1)
        return (above + 1) / (self.count() + 1)

    def lowest(self, support: bool = False) -> Float[Array, "*clusters"]:
        """The least score that is typical; minus infinity where too little is known."""
        own = self.support if support else self.whole
        ordered = jnp.sort(jnp.where(self.known, own, EXTREME), axis=-1)

        def quantile(level: float) -> Float[Array, "*clusters"]:
            index = jnp.floor(level * jnp.maximum(self.count() - 1, 0)).astype(int)
            return jnp.take_along_axis(ordered, index[..., None], axis=-1)[..., 0]

        middle = quantile(0.5)
        return jnp.where(
            self.enough(), middle - OUTLYING * (middle - quantile(0.1)), -jnp.inf
        )


def normal_score(rank: Float[Array, "*tasks"]) -> Float[Array, "*tasks"]:
    """The standard normal number that has this rank."""
    return jax.scipy.stats.norm.ppf(rank)
