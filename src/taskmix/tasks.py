"""What flows through every room: examples, tasks and the hints only some learners get."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Shaped


class Examples(eqx.Module):
    """Labelled examples of one task, or of many tasks along leading axes.

    Tasks may be ragged: an example whose ``mask`` is false is padding and changes
    nothing, whatever its ``x`` and ``y`` hold.

    Examples
    --------
    >>> Examples.full(jnp.ones((4, 1)), jnp.ones((4, 1))).count().item()
    4
    """

    x: Shaped[Array, ...]
    """Axes (tasks, examples) and those of an input: one for a vector, three for an image."""
    y: Shaped[Array, ...]
    """Axes (tasks, examples) and those of a target: one for a vector, none for a label."""
    mask: Bool[Array, "*tasks examples"]
    """False where an example is padding."""

    @staticmethod
    def full(x: Array, y: Array, input_axes: int = 1) -> Examples:
        """Examples without padding.

        Parameters
        ----------
        x, y
            Inputs and targets.
        input_axes
            Axes of one input: 1 for vectors, 3 for images.

        Returns
        -------
        Examples
            With a mask that is true throughout.
        """
        return Examples(x, y, jnp.ones(x.shape[: x.ndim - input_axes], dtype=bool))

    def without_padding_values(self) -> Examples:
        """The same examples with zeros where there is padding.

        A gradient turns a masked NaN into a NaN (0 * NaN), so padding has to be
        replaced before it enters a computation, not only after it.

        Returns
        -------
        Examples
            Equal where there is no padding.
        """
        expand = (...,) + (None,) * (self.x.ndim - self.mask.ndim)
        x = jnp.where(self.mask[expand], self.x, jnp.zeros_like(self.x))
        expand = (...,) + (None,) * (self.y.ndim - self.mask.ndim)
        y = jnp.where(self.mask[expand], self.y, jnp.zeros_like(self.y))
        return Examples(x, y, self.mask)

    def count(self) -> Int[Array, "*tasks"]:
        """Count the examples that are not padding.

        Returns
        -------
        Array
            One number per task.
        """
        return jnp.sum(self.mask, axis=-1)


class Hints(eqx.Module):
    """Facts about the stream; a learner sees those of them that its ``told`` names.

    Examples
    --------
    >>> Hints(family=jnp.array([0, 2])).boundary is None
    True
    """

    family: Int[Array, "*tasks"] | None = None
    """Of each task; None if it is not to be seen, or not known."""
    boundary: Bool[Array, "*batches"] | None = None
    """Whether a phase begins with the batch; None if it is not to be seen, or not known."""

    def of_tasks(self, tasks: Int[Array, "*some"] | int) -> Hints:
        """The same for some tasks of a batch; a boundary is the batch's.

        Parameters
        ----------
        tasks
            Their numbers, or that of one.

        Returns
        -------
        Hints
            Of these tasks.
        """
        family = None if self.family is None else self.family[tasks]
        return Hints(family, self.boundary)


class Task(eqx.Module):
    """One task: a support set to adapt on, a query set to be judged on, and what it is told.

    Examples
    --------
    >>> x = jnp.ones((3, 4, 1))
    >>> TaskBatch(Examples.full(x, x), Examples.full(x, x)).task(0).support.x.shape
    (4, 1)
    """

    support: Examples
    query: Examples
    hints: Hints | None = None


class TaskBatch(eqx.Module):
    """A meta-batch: every task has a support set to adapt on and a query set to be judged on.

    Batches may be ragged, too: a task without a single real example is padding and changes
    nothing.

    Examples
    --------
    >>> x = jnp.ones((3, 4, 1))
    >>> TaskBatch(Examples.full(x, x), Examples.full(x, x)).take(jnp.array([2])).real.tolist()
    [True]
    """

    support: Examples
    """What a learner adapts to."""
    query: Examples
    """What it is judged on."""
    hints: Hints | None = None
    """Facts for learners that are told something; None if there are none."""

    @property
    def real(self) -> Bool[Array, "*tasks"]:
        """Which tasks are not padding."""
        return jnp.any(self.support.mask, axis=-1) | jnp.any(self.query.mask, axis=-1)

    def padded(self, tasks: int) -> TaskBatch:
        """The same batch filled up to so many tasks, so that all batches have one shape.

        The family that hints give for padding is 0 and means nothing.

        Parameters
        ----------
        tasks
            How many there are to be.

        Returns
        -------
        TaskBatch
            What was added is padding.

        Examples
        --------
        >>> x = jnp.ones((3, 4, 1))
        >>> batch = TaskBatch(Examples.full(x, x), Examples.full(x, x)).padded(5)
        >>> batch.real.tolist()
        [True, True, True, False, False]
        """
        present = self.query.mask.shape[0]
        if tasks < present:
            raise ValueError(
                f"The batch has {present} tasks, too many to be padded to {tasks}; split it."
            )

        def filled(leaf: Array) -> Array:
            nothing = jnp.zeros((tasks - present, *leaf.shape[1:]), leaf.dtype)
            return jnp.concatenate([jnp.asarray(leaf), nothing])

        support, query = jax.tree.map(filled, (self.support, self.query))
        hints = self.hints
        if hints is not None and hints.family is not None:
            hints = Hints(filled(hints.family), hints.boundary)
        return TaskBatch(support, query, hints)

    def take(self, tasks: Int[Array, " some"]) -> TaskBatch:
        """Some tasks of the batch.

        Parameters
        ----------
        tasks
            Their numbers.

        Returns
        -------
        TaskBatch
            In this order.
        """
        support, query = jax.tree.map(lambda leaf: leaf[tasks], (self.support, self.query))
        return TaskBatch(support, query, self.hints and self.hints.of_tasks(tasks))

    def task(self, number: int) -> Task:
        """One task of the batch.

        Parameters
        ----------
        number
            From 0.

        Returns
        -------
        Task
            Without the axis of tasks.
        """
        support, query = jax.tree.map(lambda leaf: leaf[number], (self.support, self.query))
        return Task(support, query, self.hints and self.hints.of_tasks(number))

    def without_hints(self) -> TaskBatch:
        """What a learner sees that is told nothing.

        Returns
        -------
        TaskBatch
            The same examples.
        """
        return dataclasses.replace(self, hints=None)

    def without_padding_values(self) -> TaskBatch:
        """The same tasks with zeros where there is padding.

        Returns
        -------
        TaskBatch
            Equal where there is no padding.
        """
        return TaskBatch(
            self.support.without_padding_values(), self.query.without_padding_values(), self.hints
        )


LARGEST_NUMBER = 1e15
"""Squares of it, and sums of many of them, are still numbers in single precision."""
LARGEST_CLASS = 2**31 - 1


def usable(values: np.ndarray) -> Bool[np.ndarray, ...]:
    """Which numbers can be computed with as they are when they have been cast for a learner."""
    if values.dtype.kind in "iu":
        return (values >= 0) & (values <= LARGEST_CLASS)
    largest = min(LARGEST_NUMBER, float(np.finfo(values.dtype).max))
    fine: Bool[np.ndarray, ...] = np.isfinite(values) & (np.abs(values) <= largest)
    return fine


def unusable(values: np.ndarray) -> str:
    """What those are that can not."""
    if values.dtype.kind in "iu":
        return f"no class number (0 to {LARGEST_CLASS})"
    return f"not finite, or beyond {LARGEST_NUMBER:g} (scale it)"


def check_batch(batch: TaskBatch) -> TaskBatch:
    """Return ``batch``, or raise a ``ValueError`` that names what is wrong with it.

    Tasks without any example are padding; at least one task must be real. Needs concrete
    values, so it is called on data that enters from outside and not inside a compiled loop.

    Parameters
    ----------
    batch
        What is to be learned from.

    Returns
    -------
    TaskBatch
        The same.

    Examples
    --------
    >>> x = jnp.ones((3, 4, 1))
    >>> check_batch(TaskBatch(Examples.full(x, x), Examples.full(x[:2], x[:2])))
    Traceback (most recent call last):
        ...
    ValueError: There are 3 support sets but 2 query sets; a task needs one of each.
    """
    for name, examples in (("support", batch.support), ("query", batch.query)):
        x, y, mask = (np.asarray(a) for a in (examples.x, examples.y, examples.mask))
        if mask.ndim != 2 or mask.dtype != bool:
            raise ValueError(
                f"{name}.mask is {mask.dtype} of shape {mask.shape}; a task batch needs bool "
                f"(tasks, examples)."
            )
        if not mask.shape[0]:
            raise ValueError(f"{name} holds no task; a batch needs at least one.")
        if x.ndim < 3 or x.shape[:2] != mask.shape or 0 in x.shape[2:]:
            raise ValueError(
                f"{name}.x has shape {x.shape}; with a mask of shape {mask.shape} it needs "
                f"(tasks, examples, features)."
            )
        if y.shape[:2] != mask.shape or 0 in y.shape[2:]:
            raise ValueError(
                f"{name}.y has shape {y.shape}; its first two axes must be {mask.shape}."
            )
        if x.dtype.kind != "f" or y.dtype.kind not in "fiu":
            raise ValueError(
                f"{name} holds inputs of type {x.dtype} and targets of type {y.dtype}; inputs "
                f"must be floats, targets floats or class numbers."
            )
        for field, values in (("x", x), ("y", y)):
            bad = ~usable(values) & mask.reshape(mask.shape + (1,) * (values.ndim - 2))
            if bad.any():
                task, example = np.argwhere(bad)[0][:2]
                raise ValueError(
                    f"{name}.{field} of task {task}, example {example} is {unusable(values)}; "
                    f"remove the example or set its mask to False."
                )
    if batch.support.mask.shape[0] != batch.query.mask.shape[0]:
        raise ValueError(
            f"There are {batch.support.mask.shape[0]} support sets but "
            f"{batch.query.mask.shape[0]} query sets; a task needs one of each."
        )
    _check_tasks(batch)
    for field in ("x", "y"):
        one, other = (np.shape(getattr(e, field))[2:] for e in (batch.support, batch.query))
        if one != other:
            raise ValueError(
                f"support.{field} holds examples of shape {one} but query.{field} of {other}; "
                f"they must be of one kind."
            )
    return batch


def _check_tasks(batch: TaskBatch) -> None:
    """A task has examples of both kinds, or of neither, and not all are padding."""
    given = {
        name: np.asarray(examples.mask).any(axis=1)
        for name, examples in (("support", batch.support), ("query", batch.query))
    }
    for name, other in (("support", "query"), ("query", "support")):
        lacking = np.flatnonzero(~given[name] & given[other])
        if lacking.size:
            raise ValueError(
                f"Task {lacking[0]} has no {name} example; drop the task or give it at least one."
            )
    if not given["query"].any():
        raise ValueError("Task 0 and all others are padding; a batch needs at least one real task.")
