"""The contract that every method meets."""

from __future__ import annotations

import enum
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from taskmix.likelihood import Likelihood
from taskmix.tasks import Examples, Hints, TaskBatch

State = Any
"""A pytree that holds everything which must survive a restart."""


class Told(enum.Enum):
    """What a learner is told beyond the examples; tables mark it."""

    NOTHING = "nothing"
    BOUNDARIES = "boundaries"
    FAMILY = "family"


class Info(eqx.Module):
    """What a person may want to see of one step; its structure never changes."""

    loss: Float[Array, "*steps"]
    """Query loss that the update minimised, averaged over the tasks."""
    error: Float[Array, "*steps tasks"]
    """Error that ``predict`` would have made on each task before the batch was learned from.

    NaN for tasks that are padding.
    """
    responsibilities: Float[Array, "*steps tasks clusters"]
    """How much of each task each cluster took; what is left to 1 went to the background."""
    alive: Bool[Array, "*steps clusters"]
    """Which clusters there are after the step."""
    spawned: Bool[Array, "*steps"]
    """Whether this step opened a cluster."""
    alarm: Bool[Array, "*steps"]
    """Whether the learner says, with this batch, that tasks fit nothing it knows."""
    suspicion: Float[Array, "*steps"]
    """From 0 to 1, how near it is to saying so."""

    @property
    def clusters(self) -> Int[Array, "*steps"]:
        """How many clusters there are after the step."""
        return self.alive.sum(axis=-1)


LEVELS = (*(level / 20 for level in range(1, 20)), 0.975, 0.99, 0.999)
"""Probabilities of intervals whose widths a learner may keep; others lie in between."""


class Prediction(eqx.Module):
    """The predictive distribution for the query of one task, and what it was made of.

    What a learner does not know is None.
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
    widths: Float[Array, "*tasks levels"] | None = None
    """Half the width of the intervals of ``LEVELS``, in standard deviations; None: normal."""
    background: Float[Array, "*tasks"] | None = None
    """Posterior probability that no cluster explains the support set."""
    novelty: Float[Array, "*tasks"] | None = None
    """From 0 to 1: how untypical the support set is of every cluster."""

    def interval(
        self, level: float = 0.9
    ) -> tuple[Float[Array, "*tasks query outputs"], Float[Array, "*tasks query outputs"]]:
        """Lower and upper bounds that should hold a target with probability ``level``."""
        if not 0 < level < 1:
            raise ValueError(f"level is {level}; it must lie between 0 and 1.")
        if self.variance is None:
            raise ValueError(
                "This learner does not know how uncertain it is; use one with a Bayesian head."
            )
        if self.widths is None:
            half = jax.scipy.stats.norm.ppf((1 + level) / 2)
        else:
            grid = jnp.asarray(LEVELS)
            half = jnp.vectorize(lambda w: jnp.interp(level, grid, w), signature="(l)->()")(
                self.widths
            )[..., None, None]
        half = half * jnp.sqrt(self.variance)
        return self.mean - half, self.mean + half


@runtime_checkable
class Learner(Protocol):
    """Hyperparameters in a frozen dataclass; pure methods that can be jitted and vmapped."""

    @property
    def likelihood(self) -> Likelihood:
        """How predictions are judged."""

    @property
    def one_at_a_time(self) -> bool:
        """Whether tasks, and seeds, are faster one after the other than all at once."""

    @property
    def told(self) -> Told:
        """The privilege this learner needs; without it, ``hints`` are None."""

    def init(self, key: Key[Array, ""], example: TaskBatch) -> State:
        """The state before the first batch; ``example`` gives shapes only."""

    def step(self, state: State, batch: TaskBatch, key: Key[Array, ""]) -> tuple[State, Info]:
        """Predict the batch, then learn from it."""

    def predict(
        self,
        state: State,
        support: Examples,
        query_x: Array,
        hints: Hints | None = None,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Prediction:
        """Predict one task from its support set, changing nothing.

        A query whose mask is false is padding. To most networks it makes no difference,
        but batch normalisation looks at all queries together.
        """

    def parameters(self, state: State) -> int:
        """How many numbers were learned: no optimiser, no statistics, no capacity kept free.

        A state of shapes only is enough, unless the learner opens clusters.
        """


@runtime_checkable
class Growing(Learner, Protocol):
    """A learner that opens clusters."""

    def has_room(self, state: State, iterations: int) -> Bool[Array, ""]:
        """Whether there is capacity for every cluster that ``iterations`` steps could open."""

    def grow(self, state: State) -> State:
        """The same state with more capacity; the only operation that changes shapes."""
