"""The Chinese restaurant process: how many tasks sat at which cluster lately, and at a new one."""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import digamma
from jaxtyping import Array, Float, Int

ConcentrationFrom = Literal["batch", "gamma", "expected"]
"""What decides the concentration where it is not given as a number."""
HALVINGS = 50
"""Of the bracket of the mode: from 40 to less than what float32 can tell."""


class WindowedCounts(eqx.Module):
    """Responsibilities of the last iterations, newest first, summed over the tasks."""

    window: Float[Array, "iterations clusters"]

    @staticmethod
    def empty(iterations: int, clusters: int) -> WindowedCounts:
        return WindowedCounts(jnp.zeros((iterations, clusters)))

    def counts(self, iterations: Int[Array, ""] | int | None = None) -> Float[Array, " clusters"]:
        """Tasks of the newest ``iterations``, or of all that are remembered."""
        if iterations is None:
            return jnp.sum(self.window, axis=0)
        recent = jnp.arange(self.window.shape[0]) < iterations
        return jnp.sum(jnp.where(recent[:, None], self.window, 0), axis=0)

    def push(self, shares: Float[Array, "tasks clusters"]) -> WindowedCounts:
        newest = jnp.sum(shares, axis=0)
        return WindowedCounts(jnp.concatenate([newest[None], self.window[:-1]]))

    def without(self, gone: Array) -> WindowedCounts:
        """Nothing is remembered of clusters that are ``gone``."""
        return WindowedCounts(jnp.where(gone, 0, self.window))

    def resized(self, iterations: int, clusters: int) -> WindowedCounts:
        """The same with room for more iterations and clusters."""
        more = (iterations - self.window.shape[0], clusters - self.window.shape[1])
        return WindowedCounts(jnp.pad(self.window, ((0, more[0]), (0, more[1]))))


def log_places(
    counts: Float[Array, " clusters"], concentration: Float[Array, ""] | float, coefficient: float
) -> Float[Array, " places"]:
    """c * log n_l for every cluster, and c * log zeta for a new one as the last entry.

    The common normaliser n + zeta cancels. A cluster that took nothing lately counts as
    one task: log 0 would forbid it to return.
    """
    places = jnp.append(jnp.maximum(counts, 1.0), concentration)
    return coefficient * jnp.log(places)


def gamma_mode(clusters: Int[Array, ""] | int, tasks: Float[Array, ""] | float) -> Float[Array, ""]:
    """Mode of the concentration under a Gamma(1, 1) prior, in its logarithm.

    p(zeta | N, K) is proportional to Gamma(zeta) / Gamma(zeta + N) zeta^K e^-zeta. The density of
    log zeta, which has one more factor zeta, is log-concave (Rasmussen 2000); so its derivative
    zeta (psi(zeta) - psi(zeta + N)) + K + 1 - zeta falls, and its zero is found by bisection.
    """
    tasks = jnp.maximum(jnp.asarray(tasks, dtype=float), 1.0)

    def halve(
        _: Int[Array, ""], bounds: tuple[Float[Array, ""], Float[Array, ""]]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        low, high = bounds
        middle = (low + high) / 2
        zeta = jnp.exp(middle)
        rises = zeta * (digamma(zeta) - digamma(zeta + tasks)) + clusters + 1 - zeta > 0
        return jnp.where(rises, middle, low), jnp.where(rises, high, middle)

    start = (jnp.full_like(tasks, -20.0), jnp.full_like(tasks, 20.0))
    low, high = jax.lax.fori_loop(0, HALVINGS, halve, start)
    mode: Array = jnp.exp((low + high) / 2)
    return mode


def expected_concentration(clusters: float, tasks: Float[Array, ""] | float) -> Float[Array, ""]:
    """zeta from E[K] = zeta log N, for a number of clusters that is expected of N tasks."""
    return clusters / jnp.log(jnp.maximum(jnp.asarray(tasks, dtype=float), 2.0))
