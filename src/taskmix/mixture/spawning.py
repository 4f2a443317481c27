"""When the paper opens a cluster: threshold and cool-down."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def passes_threshold(
    share: Float[Array, " tasks"],
    clusters: Int[Array, ""],
    fraction: float,
    real: Bool[Array, " tasks"] | None = None,
) -> Bool[Array, ""]:
    """sum_j gamma_j,new > fraction * T / (L + 1): the candidate has nearly an equal share.

    The paper compares a single task's responsibility, at most 1, with a number that
    exceeds 1 for its own settings; its appendix speaks of the average over a batch. Tasks that
    are not ``real`` do not count; by default all are.
    """
    return jnp.mean(share, where=real) > fraction / (clusters + 1)


def cooled(remaining: Int[Array, ""], opened: Bool[Array, ""], length: int) -> Int[Array, ""]:
    """Iterations left in which no cluster may be opened, after one more has passed."""
    return jnp.where(opened, length, jnp.maximum(remaining - 1, 0))
