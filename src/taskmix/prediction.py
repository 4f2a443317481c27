"""What a learner predicts of a task, and the distributions that intervals are made of."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

LEVELS = (*(level / 20 for level in range(1, 20)), 0.975, 0.99, 0.999)
"""Probabilities of intervals whose widths a learner may keep; others lie in between."""


class Mix(eqx.Module):
    """A mixture of symmetric distributions, one per cluster and one for the background."""

    weights: Float[Array, "*tasks parts"]
    mean: Float[Array, "*tasks parts query outputs"]
    deviation: Float[Array, "*tasks parts query outputs"]
    """Standard deviations."""
    widths: Float[Array, "*tasks parts levels"]
    """Half the width of each part's own intervals of ``LEVELS``, in its standard deviations."""

    def quantile(self, level: float) -> Float[Array, "*tasks query outputs"]:
        """By bisection; the parts bracket what they are a mixture of."""
        reach = 2 * self.widths[..., -1][..., None, None] * self.deviation
        low, high = jnp.min(self.mean - reach, axis=-3), jnp.max(self.mean + reach, axis=-3)

        def halve(_: Int[Array, ""], bounds: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = bounds
            middle = (low + high) / 2
            above = self.cumulative(middle) > level
            return jnp.where(above, low, middle), jnp.where(above, middle, high)

        low, high = jax.lax.fori_loop(0, 40, halve, (low, high))
        quantile: Array = (low + high) / 2
        return quantile

    def cumulative(
        self, y: Float[Array, "*tasks query outputs"]
    ) -> Float[Array, "*tasks query outputs"]:
        """Probability of a target below ``y``."""
        distance = (y[..., None, :, :] - self.mean) / self.deviation
        inside = _interpolated(jnp.abs(distance), self.widths[..., None, None, :])
        below = 0.5 + 0.5 * jnp.sign(distance) * inside
        return jnp.sum(self.weights[..., None, None] * below, axis=-3)


def _interpolated(
    distance: Float[Array, "*#values"], widths: Float[Array, "*#values levels"]
) -> Float[Array, "*#values"]:
    """Probability of less than a distance, given the ``widths`` that have the ``LEVELS``.

    Between two of them it is linear; beyond the last, the rest falls with the third power.
    """
    levels = jnp.asarray((0.0, *LEVELS))
    widths = jnp.concatenate([jnp.zeros_like(widths[..., :1]), widths], axis=-1)
    widths = jnp.maximum(widths, 1e-9 * jnp.arange(1, levels.size + 1))
    distance = distance[..., None]
    step = jnp.clip((distance - widths[..., :-1]) / jnp.diff(widths, axis=-1), 0, 1)
    inside = jnp.sum(jnp.nan_to_num(step) * jnp.diff(levels), axis=-1)
    beyond = jnp.minimum(widths[..., -1] / jnp.maximum(distance[..., 0], 1e-9), 1)
    return inside + (1 - levels[-1]) * (1 - beyond**3)


class Prediction(eqx.Module):
    """The predictive distribution for the query of one task, and what it was made of.

    What a learner does not know is None.

    Examples
    --------
    >>> mean = jnp.zeros((2, 1))
    >>> prediction = Prediction(mean, mean[None], jnp.ones(1), variance=jnp.ones((2, 1)))
    >>> low, high = prediction.interval(0.9)
    >>> round(float(high[0, 0]), 2)
    1.64
    """

    mean: Float[Array, "*tasks query outputs"]
    """Predictive mean, or class probabilities."""
    components: Float[Array, "*tasks clusters query outputs"]
    """What each cluster alone would predict."""
    responsibilities: Float[Array, "*tasks clusters"]
    """Posterior probability of each cluster given the support set; 0 for dead ones."""
    variance: Float[Array, "*tasks query outputs"] | None = None
    """Noise, uncertainty within the clusters and disagreement between them."""
    noise: Float[Array, "*tasks query outputs"] | None = None
    """The part of it that more support examples would not take away."""
    mix: Mix | None = None
    """What intervals are made of; None: a normal distribution."""
    background: Float[Array, "*tasks"] | None = None
    """Posterior probability that no cluster explains the support set."""
    novelty: Float[Array, "*tasks"] | None = None
    """From 0 to 1: how untypical the support set is of every cluster."""

    def interval(
        self, level: float = 0.9
    ) -> tuple[Float[Array, "*tasks query outputs"], Float[Array, "*tasks query outputs"]]:
        """Bounds that should hold a target with a given probability.

        Parameters
        ----------
        level
            The probability.

        Returns
        -------
        tuple of two arrays
            Lower and upper bounds, each of the shape of ``mean``.
        """
        if not 0 < level < 1:
            raise ValueError(f"level is {level}; it must lie between 0 and 1.")
        if self.variance is None:
            raise ValueError(
                "This learner does not know how uncertain it is; use one with a Bayesian head."
            )
        if self.mix is not None:
            return self.mix.quantile((1 - level) / 2), self.mix.quantile((1 + level) / 2)
        half = jax.scipy.stats.norm.ppf((1 + level) / 2) * jnp.sqrt(self.variance)
        return self.mean - half, self.mean + half
