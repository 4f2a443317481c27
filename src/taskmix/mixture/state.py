"""What the online mixture carries from batch to batch, and what it makes of one."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from taskmix.adaptation import Judgement
from taskmix.mixture.alarm import Alarm
from taskmix.mixture.background import Background
from taskmix.mixture.inputs import Description, Inputs
from taskmix.mixture.members import Member
from taskmix.mixture.reference import Scores
from taskmix.mixture.trial import Trial
from taskmix.mixture.widths import Widths

HELD = 0.9
"""Responsibility from which on a task is clearly a cluster's own."""
FAST, SLOW = 0.05, 0.01
"""Rates of the averages of a cluster's evidence whose difference says whether it still rises."""


class Progress(eqx.Module):
    """Whether the evidence of each cluster's own tasks still rises."""

    fast: Float[Array, "*clusters"]
    slow: Float[Array, "*clusters"]
    seen: Float[Array, "*clusters"]

    def observe(
        self, evidence: Float[Array, "tasks clusters"], own: Float[Array, "tasks clusters"]
    ) -> Progress:
        mass = jnp.sum(own, axis=0)
        level = jnp.sum(jnp.where(own > 0, own * evidence, 0), axis=0) / jnp.maximum(mass, 1e-6)
        seen = self.seen + (mass > HELD)

        def followed(old: Array, least: float) -> Array:
            rate = jnp.maximum(least, 1 / jnp.maximum(seen, 1))
            return jnp.where(mass > HELD, old + rate * (level - old), old)

        return Progress(followed(self.fast, FAST), followed(self.slow, SLOW), seen)

    def rise(self) -> Float[Array, " clusters"]:
        return self.fast - self.slow


class Scout(eqx.Module):
    """A copy of the cluster most in use that runs ahead of it."""

    params: PyTree
    optimiser: PyTree
    home: Int[Array, ""]
    """The cluster that it is a copy of."""


class OnlineState(eqx.Module):
    members: Member
    """Clusters, and in the last row the candidate."""
    alive: Bool[Array, " clusters"]
    age: Float[Array, " clusters"]
    """Lessons since a cluster was born, or last had to accept that its tasks have changed."""
    counts: Float[Array, " clusters_and_background"]
    """Tasks of the recent past."""
    background: Background
    inputs: Inputs
    trial: Trial
    scout: Scout
    alarm: Alarm
    progress: Progress
    widths: Widths
    iteration: Int[Array, ""]


class EStep(eqx.Module):
    """What the mixture makes of a batch; columns are clusters, candidate or background."""

    inputs: Description
    """What the inputs of the tasks look like."""
    judged: Judgement
    """Axes (tasks, clusters and candidate)."""
    blank: Judgement
    """Of the background."""
    scores: Scores
    """Per example, axes (clusters and candidate, tasks)."""
    unlike: Float[Array, "tasks clusters_and_candidate"]
    """Typicality: 0, or how much less likely a task is for being unlike a cluster's own."""
    evidence: Float[Array, "tasks clusters_and_background"]
    """Of the whole task, typicality included."""
    prior: Float[Array, " clusters_and_background"]
    weights: Float[Array, " clusters_and_background"]
    """Mixing weights of the batch."""
    shares: Float[Array, "tasks clusters_and_background"]
    """Responsibilities; 0 for padding."""
    density: Float[Array, " tasks"]
    """Log-density of each task under the mixture."""
    best: Bool[Array, "tasks clusters"]
    """Which cluster explains each task best, the background left aside."""
    ranks: Float[Array, "tasks clusters"]
