"""The paper's two heuristics for clusters that are not needed: few tasks, or tasks of another's."""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Prune = Literal["never", "few", "alike"]


def with_few_tasks(
    recent: Float[Array, " clusters"],
    alive: Bool[Array, " clusters"],
    old_enough: Bool[Array, " clusters"],
    share: float,
) -> Bool[Array, " clusters"]:
    """Clusters that took less than ``share`` of an equal share of the recent tasks.

    Those that were not there all the time stay, and so does the one that took most.
    """
    equal = jnp.sum(jnp.where(alive, recent, 0)) / jnp.maximum(jnp.sum(alive), 1)
    most = jnp.argmax(jnp.where(alive, recent, -1.0))
    return alive & old_enough & (recent < share * equal) & (jnp.arange(alive.size) != most)


def odds_ratios(
    evidence: Float[Array, "tasks clusters"],
    shares: Float[Array, "tasks clusters"],
    real: Bool[Array, " tasks"],
) -> Float[Array, "clusters clusters"]:
    """How far two clusters differ on the validation tasks that either of them takes.

    exp of the mean of |log(p_ja / p_jb)| over tasks j, weighted by p_ja + p_jb: 1 if they give
    every task the same probability. The log-odds are a difference of evidences.
    """
    log_odds = jnp.abs(evidence[:, :, None] - evidence[:, None, :])
    log_odds = jnp.where(jnp.isfinite(log_odds), log_odds, jnp.finfo(log_odds.dtype).max / 1e6)
    weights = jnp.where(real[:, None, None], shares[:, :, None] + shares[:, None, :], 0)
    total = jnp.sum(weights, axis=0)
    mean = jnp.sum(weights * log_odds, axis=0) / jnp.maximum(total, 1e-6)
    # Of two clusters that take none of the tasks nothing is known.
    return jnp.where(total > 1e-6, jnp.exp(jnp.minimum(mean, 80.0)), jnp.inf)


def like_a_larger_one(
    ratios: Float[Array, "clusters clusters"],
    alive: Bool[Array, " clusters"],
    sizes: Float[Array, " clusters"],
    threshold: float,
) -> Bool[Array, " clusters"]:
    """The smallest cluster whose odds ratio with a larger one is below the threshold, if any.

    One at a time: of three that are alike in a chain, the middle one may be what joins them.
    """
    order = jnp.arange(alive.size)
    larger = (sizes[None] > sizes[:, None]) | (
        (sizes[None] == sizes[:, None]) & (order[None] < order[:, None])
    )
    pairs = larger & alive[None] & alive[:, None] & (ratios < threshold)
    found = jnp.any(pairs, axis=1)
    smallest = jnp.argmin(jnp.where(found, sizes, jnp.inf))
    return found & (order == smallest)


def due(iteration: Int[Array, ""], every: int, warm_up: int) -> Bool[Array, ""]:
    """Whether it is time to look for clusters to prune."""
    return (iteration > warm_up) & (iteration % every == 0)
