"""The contract that every method meets."""

from __future__ import annotations

import dataclasses
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
    """What a learner is told beyond the examples; tables mark it.

    Examples
    --------
    >>> [told.value for told in Told]
    ['nothing', 'boundaries', 'family']
    """

    NOTHING = "nothing"
    BOUNDARIES = "boundaries"
    FAMILY = "family"


class Info(eqx.Module):
    """What a person may want to see of one step; its structure never changes.

    Examples
    --------
    >>> import taskmix as tm
    >>> learner, batch = tm.MAML(), tm.streams.regression().batch(jax.random.key(0), 0)
    >>> state = learner.init(jax.random.key(1), batch)
    >>> state, info = jax.jit(learner.step)(state, batch, jax.random.key(2))
    >>> info.error.shape, int(info.clusters)
    ((10,), 1)
    """

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
        """Lower and upper bounds that should hold a target with probability ``level``."""
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


@runtime_checkable
class Learner(Protocol):
    """Hyperparameters in a frozen dataclass; pure methods that can be jitted and vmapped.

    Everything that the loop, the evaluation and the reports ask of a learner stands here;
    ``taskmix.testing.check_learner`` checks that it is done as it says.

    Examples
    --------
    >>> import taskmix as tm
    >>> isinstance(tm.MAML(), Learner)
    True
    """

    @property
    def likelihood(self) -> Likelihood:
        """How predictions are judged."""

    @property
    def one_at_a_time(self) -> bool:
        """Whether tasks, and seeds, are faster one after the other than all at once."""

    @property
    def told(self) -> Told:
        """What of the hints this learner sees; it sees nothing else of them."""

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
    """A learner that opens clusters.

    Examples
    --------
    >>> import taskmix as tm
    >>> isinstance(tm.OnlineMixture(), Growing), isinstance(tm.MAML(), Growing)
    (True, False)
    """

    def has_room(self, state: State, iterations: int) -> Bool[Array, ""]:
        """Whether there is capacity for every cluster that ``iterations`` steps could open."""

    def grow(self, state: State) -> State:
        """The same state with more capacity; the only operation that changes shapes."""


def visible_hints(learner: Learner, hints: Hints | None) -> Hints | None:
    """What of the hints a learner is told, and nothing else.

    Examples
    --------
    >>> import taskmix as tm
    >>> hints = Hints(family=jnp.array([1]), boundary=jnp.asarray(True))
    >>> visible_hints(tm.EWC(), hints).family is None
    True
    """
    if learner.told is Told.NOTHING:
        return None
    told = "family" if learner.told is Told.FAMILY else "boundary"
    known = None if hints is None else getattr(hints, told)
    if known is None:
        raise ValueError(
            f"{type(learner).__name__} has to be told the {told} of tasks, but there are no such "
            f"hints; give them, or use a learner whose `told` is NOTHING."
        )
    return Hints(family=known) if learner.told is Told.FAMILY else Hints(boundary=known)


def visible(learner: Learner, batch: TaskBatch) -> TaskBatch:
    """A batch with those hints only that the learner is told."""
    return dataclasses.replace(batch, hints=visible_hints(learner, batch.hints))
