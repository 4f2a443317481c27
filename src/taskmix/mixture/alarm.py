"""Whether tasks have stopped looking like those that the clusters know.

Two questions are asked of every batch. Do its tasks rank low among those of the cluster that
explains them best? Ranks become normal scores, and means of these over windows of several lengths
show small changes that last. And does a copy of the cluster that has learned from the last batches
(the scout) explain its tasks better than it explains tasks of the reference? That shows at once
what looks plausible to the cluster and is new all the same. As long as nothing changes, new tasks
and reference tasks are exchangeable, so that the rank of the scout's lead is a p-value, bets on it
are fair, and their wealth is an e-detector.

V. Vovk: Testing randomness online. Statistical Science 36, 2021.
J. Shin, A. Ramdas, A. Rinaldo: E-detectors. New England Journal of Statistics in Data Science
2, 2023.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

RATES = (1.0, 0.5, 0.2, 0.08, 0.03, 0.012)
"""Shares of the past that the windows forget per batch with tasks: of 1 to about 100 batches."""
RECENT = 2
"""The window that says whether a cluster's present tasks are its own."""
FEWEST = 3
"""Scores that a window needs: of fewer, the mean is not normal enough."""
STAKES = (0.3, 0.6)
"""Exponents of the bets e = s p^(s - 1); their mean is fair, too."""
FADING = 0.9
"""What is left of the wealth after a batch with nothing to bet on."""
MOST = 20.0
"""Wealth, in nats, that is kept at the most: an alarm has to end some time."""


class Alarm(eqx.Module):
    """What both questions have come to so far."""

    total: Float[Array, "clusters windows"]
    """Sum of normal scores, those of the past being forgotten."""
    weight: Float[Array, "clusters windows"]
    """Sum of the weights of these scores."""
    squared: Float[Array, "clusters windows"]
    """Sum of the squares of these weights."""
    used: Bool[Array, " clusters"]
    """Which clusters were in use: windows of one that comes back begin anew."""
    wealth: Float[Array, ""]
    """Logarithm of what bets on the scout have won since they were last without gain."""
    raised: Bool[Array, ""]
    """Whether the alarm is on."""
    since: Int[Array, ""]
    """Batches since it was raised, or since the last birth."""
    calm: Int[Array, ""]
    """Batches since there was reason to raise it."""

    @staticmethod
    def begin(clusters: int, raised: bool = False) -> Alarm:
        nothing = jnp.zeros((clusters, len(RATES)))
        never = jnp.zeros((), dtype=int)
        used = jnp.zeros(clusters, dtype=bool)
        on = jnp.asarray(raised)
        return Alarm(nothing, nothing, nothing, used, jnp.zeros(()), on, never, never)

    def observe(
        self,
        ranks: Float[Array, "tasks clusters"],
        members: Bool[Array, "tasks clusters"],
        won: Float[Array, ""],
        betting: Bool[Array, ""],
    ) -> Alarm:
        """Take in the ranks of each cluster's members of a batch, and what bets won, if any."""
        scores = jax.scipy.stats.norm.ppf(jnp.clip(ranks, 1e-3, 1 - 1e-3))
        count = jnp.sum(members, axis=0)[:, None]
        added = jnp.sum(jnp.where(members, scores, 0), axis=0)[:, None]
        keep = jnp.where(count > 0, 1 - jnp.asarray(RATES), 1.0)
        return dataclasses.replace(
            self,
            total=keep * self.total + added,
            weight=keep * self.weight + count,
            squared=jnp.square(keep) * self.squared + count,
            wealth=jnp.where(betting, jnp.clip(self.wealth + won, 0, MOST), FADING * self.wealth),
        )

    def back_in_use(self, used: Bool[Array, " clusters"]) -> Alarm:
        """Without what strays have left in the windows of clusters that come back into use."""
        return dataclasses.replace(self.forget(used & ~self.used), used=used)

    def lowness(
        self, known: Int[Array, " clusters"], wander: float
    ) -> Float[Array, "clusters windows"]:
        """How far the mean of each window lies below 0, in standard deviations.

        A mean of n scores varies by 1/n, the level of a reference of m scores by 1/m, and the
        level of a cluster strays by ``wander`` while it learns.
        """
        weight = jnp.maximum(self.weight, 1e-9)
        variance = self.squared / jnp.square(weight) + 1 / jnp.maximum(known, 1)[:, None]
        below = -self.total / weight / jnp.sqrt(variance + wander**2)
        return jnp.where(self.weight >= FEWEST, below, 0)

    def judged(self, reason: Bool[Array, ""], patience: int) -> Alarm:
        """On while there is reason, and for ``patience`` batches more."""
        calm = jnp.where(reason, 0, self.calm + 1)
        raised = reason | (self.raised & (calm < patience))
        since = jnp.where(raised, self.since + 1, 0)
        return dataclasses.replace(self, raised=raised, since=since, calm=calm)

    def forget(self, where: Bool[Array, " clusters"]) -> Alarm:
        """Begin the windows of some clusters anew."""
        sums = (self.total, self.weight, self.squared)
        total, weight, squared = (jnp.where(where[:, None], 0, one) for one in sums)
        return dataclasses.replace(self, total=total, weight=weight, squared=squared)


def winnings(
    lead: Float[Array, " tasks"],
    ordinary: Float[Array, " reference"],
    usable: Bool[Array, " reference"],
) -> Float[Array, " tasks"]:
    """Logarithm of what bets win on each task, given the scout's leads on it and on a reference.

    p = (1 + how many reference leads are at least as large) / (1 + how many there are).
    """
    above = jnp.sum((ordinary >= lead[:, None]) & usable, axis=-1)
    p = (above + 1) / (jnp.sum(usable) + 1)
    stakes = jnp.asarray(STAKES)[:, None]
    return jnp.log(jnp.mean(stakes * p ** (stakes - 1), axis=0))
