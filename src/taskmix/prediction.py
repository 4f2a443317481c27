"""What a learner predicts of a task, and the distributions that intervals are made of."""

from __future__ import annotations

import bisect
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

LEVELS = (*(level / 20 for level in range(1, 20)), 0.975, 0.99, 0.999)
"""Probabilities of intervals whose widths a learner may keep; others lie in between."""
LEAST_SAY = 1e-9
"""Weight from which on a part counts when the quantiles of all are bracketed."""
CLOSE = 1e-6
"""How near the probability below a quantile has to come."""


class Mix(eqx.Module):
    """A mixture of symmetric distributions, one per cluster and one for the background."""

    weights: Float[Array, "*tasks parts"]
    mean: Float[Array, "*tasks parts query outputs"]
    deviation: Float[Array, "*tasks parts query outputs"]
    """Standard deviations."""
    widths: Float[Array, "*tasks parts levels"]
    """Half the width of each part's own intervals of ``LEVELS``, in its standard deviations."""

    def quantile(self, level: float) -> Float[Array, "*tasks query outputs"]:
        """By Newton's steps, between the quantiles of the parts that have a say.

        A step that leads out of what is left halves it instead, and so does every third one.
        """
        p = abs(2 * level - 1)
        reach = math.copysign(1, level - 0.5) * _half_width(self.widths, p)
        own = self.mean + reach[..., None, None] * self.deviation
        heaviest = jnp.max(self.weights, axis=-1, keepdims=True)
        has_say = (self.weights >= jnp.minimum(heaviest, LEAST_SAY))[..., None, None]
        low = jnp.min(jnp.where(has_say, own, jnp.inf), axis=-3)
        high = jnp.max(jnp.where(has_say, own, -jnp.inf), axis=-3)
        first = jnp.argmax(self.weights, axis=-1)[..., None, None, None]
        y = jnp.take_along_axis(own, first, axis=-3)[..., 0, :, :]

        def unmet(search: Bracket) -> Bool[Array, "*tasks query outputs"]:
            apart = search.high - search.low > 1e-6 * jnp.maximum(abs(search.low), abs(search.high))
            return apart & (jnp.abs(search.off) > CLOSE)

        def onward(search: Bracket) -> Bool[Array, ""]:
            return (search.turn < 60) & jnp.any(unmet(search))

        def step(search: Bracket) -> Bracket:
            low = jnp.where(search.off <= 0, search.y, search.low)
            high = jnp.where(search.off > 0, search.y, search.high)
            newton = search.y - search.off / search.density
            taken = (newton > low) & (newton < high) & (search.turn % 3 < 2)
            y = jnp.where(taken, newton, (low + high) / 2)
            y = jnp.where(unmet(search), y, search.y)
            cumulative, density = self._at(y)
            return Bracket(search.turn + 1, low, high, y, cumulative - level, density)

        cumulative, density = self._at(y)
        begin = Bracket(jnp.zeros((), dtype=int), low, high, y, cumulative - level, density)
        found: Bracket = jax.lax.while_loop(onward, step, begin)
        return found.y

    def cumulative(
        self, y: Float[Array, "*tasks query outputs"]
    ) -> Float[Array, "*tasks query outputs"]:
        """Probability of a target below ``y``."""
        return self._at(y)[0]

    def _at(
        self, y: Float[Array, "*tasks query outputs"]
    ) -> tuple[Float[Array, "*tasks query outputs"], Float[Array, "*tasks query outputs"]]:
        """The probability below ``y``, and its density there."""
        distance = (y[..., None, :, :] - self.mean) / self.deviation
        inside, rise = _interpolated(jnp.abs(distance), self.widths[..., None, None, :])
        below = 0.5 + 0.5 * jnp.sign(distance) * inside
        weights = self.weights[..., None, None]
        density = jnp.sum(0.5 * weights * rise / self.deviation, axis=-3)
        return jnp.sum(weights * below, axis=-3), density


class Bracket(NamedTuple):
    """Where a quantile is, as far as it is known."""

    turn: Int[Array, ""]
    low: Array
    high: Array
    y: Array
    off: Array
    """By how much the probability below ``y`` is too large."""
    density: Array


def _interpolated(
    distance: Float[Array, "*#values"], widths: Float[Array, "*#values levels"]
) -> tuple[Float[Array, "*#values"], Float[Array, "*#values"]]:
    """Probability of less than a distance, given the ``widths`` of ``LEVELS``, and its density.

    Between two of them it is linear; beyond the last, the rest falls with the third power.
    """
    rises = jnp.diff(jnp.asarray((0.0, *LEVELS)))
    widths = jnp.concatenate([jnp.zeros_like(widths[..., :1]), widths], axis=-1)
    widths = jnp.maximum(widths, 1e-9 * jnp.arange(1, rises.size + 2))
    slopes = rises / jnp.maximum(jnp.diff(widths, axis=-1), 1e-9)
    each = jnp.clip((distance[..., None] - widths[..., :-1]) * slopes, 0, rises)
    slope = jnp.sum(jnp.where((each > 0) & (each < rises), slopes, 0), axis=-1)
    beyond = jnp.minimum(widths[..., -1] / jnp.maximum(distance, 1e-9), 1)
    rest = (1 - LEVELS[-1]) * beyond**3
    inside = jnp.sum(each, axis=-1) + (1 - LEVELS[-1]) - rest
    return inside, slope + jnp.where(beyond < 1, 3 * rest / distance, 0)


def _half_width(widths: Float[Array, "*any levels"], p: float) -> Float[Array, "*any"]:
    """Half the width of the central interval of probability ``p``, by the same rule."""
    if p >= LEVELS[-1]:
        beyond: float = ((1 - LEVELS[-1]) / (1 - p)) ** (1 / 3)
        return widths[..., -1] * beyond
    levels = (0.0, *LEVELS)
    place = bisect.bisect_right(levels, p)
    share = (p - levels[place - 1]) / (levels[place] - levels[place - 1])
    below = widths[..., place - 2] if place > 1 else jnp.zeros_like(widths[..., 0])
    return below + share * (widths[..., place - 1] - below)


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
