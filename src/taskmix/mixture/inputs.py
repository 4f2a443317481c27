"""What the inputs of a cluster's tasks look like, where the likelihood describes them."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

RATE = 0.02
"""Least rate at which a description follows the tasks."""
SMALLEST_VARIANCE = 1e-2
"""Keeps one odd task from being infinitely surprising."""
BREADTH = 4.0
"""How many times wider the background's description is than that of all tasks together."""


class Inputs(eqx.Module):
    """Normal distributions of the statistics of inputs, one per row; the last: of all tasks."""

    mean: Float[Array, "rows statistics"]
    variance: Float[Array, "rows statistics"]
    seen: Float[Array, " rows"]
    """How many batches each has followed."""

    @staticmethod
    def begin(rows: int, statistics: int) -> Inputs:
        shape = (rows, statistics)
        return Inputs(jnp.zeros(shape), jnp.ones(shape), jnp.zeros(rows))

    def log_density(
        self, statistics: Float[Array, "*tasks statistics"]
    ) -> Float[Array, "*tasks rows"]:
        """Of a task's statistics under each row; rows that have seen nothing say nothing."""
        broad = jnp.ones_like(self.seen).at[-1].set(BREADTH)[:, None]
        variance = broad * (self.variance + SMALLEST_VARIANCE)
        distance = jnp.square(statistics[..., None, :] - self.mean) / variance
        density = -0.5 * jnp.sum(distance + jnp.log(2 * jnp.pi * variance), axis=-1)
        return jnp.where(self.seen > 0, density, 0)

    def observe(
        self, statistics: Float[Array, "tasks statistics"], weights: Float[Array, "tasks rows"]
    ) -> Inputs:
        """Follow the tasks of a batch, by how much of each belongs to each row."""
        mass = jnp.sum(weights, axis=0)
        share = weights / jnp.maximum(mass, 1e-9)
        centre = share.T @ statistics
        within = share.T @ jnp.square(statistics) - jnp.square(centre)
        rate = jnp.where(mass > 0.5, jnp.maximum(RATE, 1 / (self.seen + 1)), 0)[:, None]
        shift = centre - self.mean
        # With nothing seen there is no level to be far from.
        between = jnp.where(self.seen[:, None] > 0, (1 - rate) * jnp.square(shift), 0)
        spread = jnp.maximum(within, 0) + between
        slow = jnp.minimum(rate, 1 / (self.seen + 2)[:, None].clip(max=1 / RATE))
        return Inputs(
            self.mean + rate * shift,
            self.variance + slow * (spread - self.variance),
            self.seen + (mass > 0.5),
        )
