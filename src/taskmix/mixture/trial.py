"""How the candidate in the shadow is doing, and when it has earned to be a cluster.

The mixture as it is never sees the candidate. With p the density of a task under the mixture and q
under the candidate, neither of which has learned from the task, a share e of the tasks being the
candidate's gains log((1 - e) p + e q) - log p on a task. If the mixture is right, the exponential
of the sum of these gains is a test martingale; its CUSUM exceeds b no more often than once in e^b
tasks on average. So b bounds how often a candidate is promoted without reason. And it must be worth
a cluster: on tasks that are its own it has to gain several nats each.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

FRESH, HARDER, EASIER, JOINED, FORKED = 0, 1, 2, 3, 4
"""How a candidate begins: at random, as a copy that takes one half of a cluster's tasks, as a copy
that takes those of another cluster as well, or as one that learns what the cluster must not."""
PATIENT = 20
"""Candidates in vain after which the next has to gain twice as much."""
SHARE_RATE = 0.05
GAIN_RATE = 0.03


class Trial(eqx.Module):
    """The candidate's record."""

    share: Float[Array, ""]
    """Share of all tasks that it explains better than the mixture does."""
    evidence: Float[Array, ""]
    """The CUSUM of its gains, in nats."""
    gained: Float[Array, ""]
    """Gains on its own tasks, those of the past being forgotten."""
    weight: Float[Array, ""]
    """How many tasks these were."""
    age: Int[Array, ""]
    """Batches since it began."""
    origin: Int[Array, ""]
    parent: Int[Array, ""]
    """The cluster that it is a copy of."""
    partner: Int[Array, ""]
    """The cluster that it is to be joined with."""
    tries: Int[Array, ""]
    """Candidates since the last birth that came to nothing."""
    centre: Float[Array, ""]
    """Mean of how far a copy is ahead of its parent on the parent's tasks."""

    @staticmethod
    def begin(
        origin: Int[Array, ""] | int = FRESH,
        parent: Int[Array, ""] | int = 0,
        partner: Int[Array, ""] | int = 0,
        tries: Int[Array, ""] | int = 0,
    ) -> Trial:
        nothing = jnp.zeros(())
        first = jnp.zeros((), dtype=int)
        return Trial(
            share=nothing + 0.1,
            evidence=nothing,
            gained=nothing,
            weight=nothing,
            age=first,
            origin=first + origin,
            parent=first + parent,
            partner=first + partner,
            tries=first + tries,
            centre=nothing,
        )

    def is_new(self) -> Bool[Array, ""]:
        """Whether it is to learn what nothing knows yet, rather than what a cluster serves."""
        return (self.origin == FRESH) | (self.origin == FORKED)

    def scepticism(self) -> Float[Array, ""]:
        """How many times as much a candidate has to gain where many before it found nothing."""
        return 1 + jnp.minimum(self.tries / PATIENT, 1)

    def is_copy(self) -> Bool[Array, ""]:
        """Whether it learns from what clusters keep before it is judged."""
        return ~self.is_new()

    def worth(self) -> Float[Array, ""]:
        """Mean gain on its own tasks."""
        return self.gained / jnp.maximum(self.weight, 1e-3)

    def taken(
        self, mixture: Float[Array, " tasks"], candidate: Float[Array, " tasks"]
    ) -> Float[Array, " tasks"]:
        """Probability that each task is the candidate's rather than the mixture's."""
        return jax.nn.sigmoid(jnp.log(self.share) + candidate - jnp.log1p(-self.share) - mixture)

    def tried(
        self,
        mixture: Float[Array, " tasks"],
        candidate: Float[Array, " tasks"],
        fair: Bool[Array, " tasks"],
        real: Bool[Array, " tasks"],
    ) -> Trial:
        """After one more batch; gains count where the comparison is ``fair``."""
        taken = jnp.where(real, self.taken(mixture, candidate), 0)
        low, high = jnp.log1p(-self.share) + mixture, jnp.log(self.share) + candidate
        gain = jnp.where(fair, jnp.logaddexp(low, high) - mixture, 0)
        own = jnp.where(fair, taken, 0)
        ahead = jnp.where(fair, candidate - mixture, 0)
        share = jnp.sum(taken) / jnp.maximum(jnp.sum(real), 1)
        return Trial(
            share=jnp.clip(self.share + SHARE_RATE * (share - self.share), 0.05, 0.5),
            evidence=jnp.maximum(0, self.evidence + jnp.sum(gain)),
            gained=(1 - GAIN_RATE) * self.gained + jnp.sum(own * ahead),
            weight=(1 - GAIN_RATE) * self.weight + jnp.sum(own),
            age=self.age + 1,
            origin=self.origin,
            parent=self.parent,
            partner=self.partner,
            tries=self.tries,
            centre=self.centre,
        )
