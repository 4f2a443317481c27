"""What small networks for images are built of: convolve, normalise and pool."""

from __future__ import annotations

import equinox as eqx
import jax
from jaxtyping import Array, Float

from taskmix.models.normalisation import Maps, Mask, batch_statistics
from taskmix.models.pooling import max_pool


class Statistics(eqx.Module):
    """Mean and variance of each filter's map before it is normalised."""

    mean: Float[Array, " filters"]
    variance: Float[Array, " filters"]


def normalised_maps(
    maps: Maps,
    mask: Mask | None,
    epsilon: float,
    statistics: Statistics | None = None,
) -> tuple[Float[Array, "images rows columns filters"], Statistics]:
    """The largest of (maps - mean) / sqrt(variance + epsilon) in every 2x2 window.

    Mean and variance are ``statistics``, or else those of all pixels of the real images of
    the call; they are given back. Maps are pooled before they are normalised, which leaves
    a quarter of the pixels to work on: both orders give the same, since normalisation
    increases. For the same reason a rectifier may follow instead of being pooled.
    """
    if statistics is None:
        statistics = Statistics(*batch_statistics(maps, mask))
    pooled = max_pool(maps)
    return (pooled - statistics.mean) * jax.lax.rsqrt(statistics.variance + epsilon), statistics
