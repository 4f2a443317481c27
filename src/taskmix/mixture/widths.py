"""How wide the intervals of a cluster's predictions have to be: a sample of its residuals.

H. Papadopoulos et al.: Inductive confidence machines for regression. ECML 2002.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from taskmix.prediction import LEVELS

KEPT = 512
"""Residuals of each cluster."""
PER_TASK = 2
"""Residuals that a task contributes: more of one task would say the same."""


class Widths(eqx.Module):
    """The newest residuals of each cluster and the background, in predicted deviations."""

    residuals: Float[Array, "parts kept"]
    seen: Float[Array, " parts"]

    @staticmethod
    def begin(parts: int) -> Widths:
        return Widths(jnp.ones((parts, KEPT)), jnp.zeros(parts))

    def observe(
        self,
        residuals: Float[Array, "tasks parts query outputs"],
        mask: Bool[Array, "tasks query"],
        where: Bool[Array, "tasks parts"],
    ) -> Widths:
        """Take in the first queries of the tasks ``where`` asked, per part."""
        some = jnp.moveaxis(residuals[:, :, :PER_TASK], 1, 0)
        usable = where.T[..., None, None] & mask[None, :, :PER_TASK, None]
        some, usable = (
            leaf.reshape(leaf.shape[0], -1) for leaf in (some, jnp.broadcast_to(usable, some.shape))
        )
        count = jnp.sum(usable, axis=1, keepdims=True)
        # Every place looks for what comes there: to write to scattered places takes a loop.
        first = (jnp.arange(KEPT) - self.seen[:, None].astype(int)) % KEPT
        last = first + KEPT * jnp.maximum((count - 1 - first) // KEPT, 0)
        order = jnp.argsort(~usable, axis=1, stable=True)
        ordered = jnp.take_along_axis(some, order, axis=1)
        new = jnp.take_along_axis(ordered, jnp.minimum(last, some.shape[1] - 1), axis=1)
        residuals = jnp.where(first < count, new, self.residuals)
        return Widths(residuals, self.seen + count[:, 0])

    def levels(self) -> Float[Array, "parts levels"]:
        """Half the width of the intervals of ``LEVELS``; normal where too little is known."""
        levels = jnp.asarray(LEVELS)
        measured = jnp.quantile(self.residuals, levels, axis=1).T
        normal = jax.scipy.stats.norm.ppf((1 + levels) / 2)
        return jnp.where((self.seen >= KEPT)[:, None], measured, normal)

    def forget(self, where: Bool[Array, " parts"]) -> Widths:
        return Widths(self.residuals, jnp.where(where, 0.0, self.seen))
