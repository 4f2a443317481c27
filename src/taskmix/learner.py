"""The contract that every method meets."""

from __future__ import annotations

import enum
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, Key

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

    loss: Float[Array, ""]
    """Query loss that the update minimised, averaged over the tasks."""
    error: Float[Array, " tasks"]
    """Error of each task's query, predicted before anything was learned from the batch."""
    responsibilities: Float[Array, "tasks clusters"]
    """How much of each task each cluster took."""
    clusters: Int[Array, ""]
    """Clusters alive after the step."""
    spawned: Bool[Array, ""]
    """Whether this step opened a cluster."""
    suspicion: Float[Array, ""]
    """Probability, in the learner's own eyes, that the batch is of a kind not seen before."""


class Prediction(eqx.Module):
    """The predictive distribution for the query of one task, and what it was made of."""

    mean: Float[Array, "query outputs"]
    """Predictive mean, or class probabilities."""
    variance: Float[Array, "query outputs"]
    """Predictive variance: noise within the clusters plus disagreement between them."""
    components: Float[Array, "clusters query outputs"]
    """What each cluster alone would predict."""
    responsibilities: Float[Array, " clusters"]
    """Posterior probability of each cluster given the support set; 0 for dead ones."""
    novelty: Float[Array, ""]
    """Between 0 and 1: how untypical the support set is of every cluster (0 where unknown)."""


@runtime_checkable
class Learner(Protocol):
    """Hyperparameters in a frozen dataclass; pure methods that can be jitted and vmapped."""

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

    def has_room(self, state: State, iterations: int) -> Bool[Array, ""]:
        """Whether there is capacity for every cluster that ``iterations`` steps could open."""

    def grow(self, state: State) -> State:
        """The same state with more capacity; the only operation that changes shapes."""

    def parameters(self, state: State) -> int:
        """How many numbers were learned: no optimiser, no statistics, no capacity kept free.

        A state of shapes only is enough, unless the learner opens clusters.
        """
