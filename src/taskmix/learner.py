"""The contract that every method meets."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, overload, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from taskmix.likelihood import Likelihood
from taskmix.prediction import Prediction as Prediction
from taskmix.tasks import LARGEST_NUMBER, Examples, Hints, TaskBatch

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
        """The state before the first batch.

        Parameters
        ----------
        key
            Decides what is random in it.
        example
            A batch, of which only the shapes may be looked at.

        Returns
        -------
        pytree of arrays
            All that survives from one batch to the next.
        """

    def step(self, state: State, batch: TaskBatch, key: Key[Array, ""]) -> tuple[State, Info]:
        """Predict the batch, then learn from it; ``protected`` keeps the state finite.

        Parameters
        ----------
        state
            What was learned so far.
        batch
            Tasks, with those hints only that ``told`` names.
        key
            Decides what is random in this step.

        Returns
        -------
        state
            Of the same structure, shapes and types.
        info : Info
            What a person may want to see of the step.
        """

    def predict(
        self,
        state: State,
        support: Examples,
        query_x: Array,
        hints: Hints | None = None,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Prediction:
        """Predict one task from its support set, changing nothing.

        Parameters
        ----------
        state
            What was learned.
        support
            The known examples.
        query_x
            Inputs to predict the targets of.
        hints
            Of the task, for learners that are told something.
        query_mask
            False where a query is padding. To most networks it makes no difference, but batch
            normalisation looks at all queries together.

        Returns
        -------
        Prediction
            Mean, and whatever else the learner knows.
        """

    def parameters(self, state: State) -> int:
        """How many numbers were learned: no optimiser, no statistics, no capacity kept free.

        Parameters
        ----------
        state
            Its shapes are enough, unless the learner opens clusters.

        Returns
        -------
        int
            As tables show it.
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
        """Whether there is capacity for every cluster that some steps could open.

        Parameters
        ----------
        state
            What was learned so far.
        iterations
            Steps to come.

        Returns
        -------
        Array
            A truth value.
        """

    def grow(self, state: State) -> State:
        """More capacity; the only operation that changes shapes.

        Parameters
        ----------
        state
            What was learned so far.

        Returns
        -------
        pytree of arrays
            The same, with room for more clusters.
        """


Step = TypeVar("Step", bound=Callable[..., tuple[Any, Info]])
AliveOf = Callable[[Any], Bool[Array, " clusters"]]
"""The method of a learner."""


@overload
def protected(step: Step, *, alive: AliveOf | None = None) -> Step: ...


@overload
def protected(step: None = None, *, alive: AliveOf | None = None) -> Callable[[Step], Step]: ...


def protected(step: Any = None, *, alive: AliveOf | None = None) -> Any:
    """A learner's ``step`` whose state stays finite, whatever a batch holds.

    Numbers that are finite may overflow on the way, and would be in the state for good. A batch
    that leaves such a number is not learned from: the state is as before, bit for bit, and
    ``info.loss`` is NaN. Nor is one with numbers that ``check_batch`` refuses: a learner that keeps
    tasks would overflow when it learns from them again. It costs a copy of the state per step, and
    changes no other bit.

    Parameters
    ----------
    step : the method to protect; this is its decorator.
    alive : which clusters there are in a state, for learners that open or remove some.

    Returns
    -------
    A method of the same signature.

    Examples
    --------
    >>> import taskmix as tm
    >>> learner, batch = tm.MAML(), tm.streams.regression().batch(jax.random.key(0), 0)
    >>> state = learner.init(jax.random.key(1), batch)
    >>> huge = jax.tree.map(lambda leaf: leaf * 1e30 if leaf.dtype == float else leaf, batch)
    >>> state, info = jax.jit(learner.step)(state, huge, jax.random.key(2))
    >>> all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(state))
    True
    """
    if step is None:
        return functools.partial(protected, alive=alive)

    @functools.wraps(step)
    def safe(self: Any, state: State, batch: TaskBatch, key: Key[Array, ""]) -> tuple[State, Info]:
        after, info = step(self, state, batch, key)
        fine = stayed_finite(state, after) & within_bounds(batch)
        return _chosen(fine, state, after, info, None if alive is None else alive(state))

    return safe


def unprotected(learner: Learner) -> Callable[..., tuple[State, Info]]:
    """The step without ``protected``, for loops that look at the state: it changes in place."""
    raw = getattr(type(learner).step, "__wrapped__", None)
    return learner.step if raw is None else functools.partial(raw, learner)


def _chosen(
    fine: Bool[Array, ""],
    before: State,
    after: State,
    info: Info,
    alive: Bool[Array, " clusters"] | None,
) -> tuple[State, Info]:
    """What came out if it is fine, otherwise what there was."""
    state = jax.tree.map(lambda new, old: jnp.where(fine, new, old), after, before)
    return state, Info(
        loss=jnp.where(fine, info.loss, jnp.nan),
        error=jnp.where(fine, info.error, jnp.nan),
        responsibilities=jnp.where(fine, info.responsibilities, 0),
        alive=info.alive if alive is None else jnp.where(fine, info.alive, alive),
        spawned=info.spawned & fine,
        alarm=info.alarm & fine,
        suspicion=jnp.where(fine, info.suspicion, 0.0),
    )


def stayed_finite(before: State, after: State) -> Bool[Array, ""]:
    """Whether everything in a state is finite that was so before."""

    def stayed(old: Array, new: Array) -> Bool[Array, ""]:
        if not jnp.issubdtype(new.dtype, jnp.inexact):
            return jnp.asarray(True)
        return jnp.all(jnp.isfinite(new) | ~jnp.isfinite(old))

    return jnp.all(jnp.asarray(jax.tree.leaves(jax.tree.map(stayed, before, after))))


def within_bounds(batch: TaskBatch) -> Bool[Array, ""]:
    """Whether ``check_batch`` has nothing against the numbers of a batch, padding aside."""
    clean = batch.without_padding_values()
    leaves = (clean.support.x, clean.support.y, clean.query.x, clean.query.y)
    floats = [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.all(jnp.asarray([jnp.all(jnp.abs(leaf) <= LARGEST_NUMBER) for leaf in floats]))


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
