"""Whether tasks have stopped looking like those that a cluster knows.

Each task is ranked among the tasks of the cluster that explains it best, and the rank becomes a
normal score: a standard normal number as long as nothing changes. Means of the newest scores, over
windows of several lengths, are compared with what chance allows.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

RATES = (1.0, 0.5, 0.2, 0.08, 0.03, 0.012)
"""Shares of the past that a window forgets per batch with tasks: from 1 batch to about 100."""


MOST = 20.0


class Alarm(eqx.Module):
    """Sums of normal scores over the windows, per cluster."""

    total: Float[Array, "clusters windows"]
    weight: Float[Array, "clusters windows"]
    """Sum of the weights of these scores."""
    squared: Float[Array, "clusters windows"]
    """Sum of their squares."""
    wealth: Float[Array, ""]
    """Logarithm of what a bet on low ranks has won since it was last at 0."""
    raised: Bool[Array, ""]
    """Whether the alarm was on after the last batch."""
    since: Int[Array, ""]
    """Batches since it was raised, or since the last birth."""
    calm: Int[Array, ""]
    """Batches since there was reason to raise it."""

    @staticmethod
    def begin(clusters: int) -> Alarm:
        nothing = jnp.zeros((clusters, len(RATES)))
        return Alarm(nothing, nothing, nothing, jnp.zeros(()), jnp.asarray(False), *(jnp.zeros((), int),) * 2)

    def observe(
        self, ranks: Float[Array, "tasks clusters"], lead: Float[Array, ""], members: Bool[Array, "tasks clusters"]
    ) -> Alarm:
        """Take in the normal scores of each cluster's members of a batch."""
        scores = jax.scipy.stats.norm.ppf(jnp.clip(ranks, 1e-3, 1 - 1e-3))
        wealth = jnp.maximum(self.wealth + lead, 0)
        wealth = jnp.minimum(wealth, MOST)
        count = jnp.sum(members, axis=0)[:, None]
        added = jnp.sum(jnp.where(members, scores, 0), axis=0)[:, None]
        keep = jnp.where(count > 0, 1 - jnp.asarray(RATES), 1.0)
        return Alarm(
            keep * self.total + added,
            keep * self.weight + count,
            jnp.square(keep) * self.squared + count,
            wealth,
            self.raised,
            self.since,
            self.calm,
        )

    def surprise(
        self, known: Float[Array, " clusters"], wander: float
    ) -> Float[Array, " clusters"]:
        """Largest distance of a window's mean from 0, in the standard deviations chance allows.

        A mean of n scores varies by 1/n, the level of a reference of m scores by 1/m, and the
        level of a cluster that learns strays by ``wander`` besides.
        """
        weight = jnp.maximum(self.weight, 1e-9)
        mean = self.total / weight
        variance = self.squared / jnp.square(weight)
        variance = variance + 1 / jnp.maximum(known, 1)[:, None] + wander**2
        # Fewer than a few scores have heavier tails than their mean's normal law says.
        usable = self.weight >= 3
        return jnp.max(jnp.where(usable, -mean / jnp.sqrt(variance), 0), axis=-1)

    def strange(self, known: Float[Array, " clusters"]) -> Float[Array, " clusters"]:
        window = 2
        weight = jnp.maximum(self.weight[:, window], 1e-9)
        variance = self.squared[:, window] / jnp.square(weight) + 1 / jnp.maximum(known, 1)
        return jnp.where(weight > 2, -self.total[:, window] / weight / jnp.sqrt(variance), 0)

    def forget(self, where: Bool[Array, " clusters"]) -> Alarm:
        """Begin anew for some clusters."""

        def cleared(sums: Array) -> Array:
            return jnp.where(where[:, None], 0, sums)

        return Alarm(
            cleared(self.total), cleared(self.weight), cleared(self.squared), self.wealth, self.raised, self.since, self.calm
        )
