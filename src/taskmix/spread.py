"""Tasks of a batch that several devices share.

A run on many devices is one program that all of them execute. Everything in it is computed by
every device alike, but for what costs: gradients and judgements of tasks. Of these a device takes
its own tasks, and one sum over all devices brings the parts together. So learners need not know
of it, and there is no array that a single device could not hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

TASKS, SEEDS = "tasks", "seeds"
"""Axes of the mesh of devices."""


def sharers() -> int:
    """How many devices share the tasks of a batch; 1 outside of a program for several.

    Examples
    --------
    >>> sharers()
    1
    """
    try:
        return jax.lax.axis_size(TASKS)
    except NameError:
        return 1


def mean_over_tasks(
    mean: Callable[[tuple[PyTree, ...], Float[Array, " some"]], tuple[PyTree, PyTree]],
    tasks: tuple[PyTree, ...],
    weights: Float[Array, " tasks"],
) -> tuple[PyTree, PyTree]:
    """``mean`` of all tasks, from those of the parts that each device takes.

    Parameters
    ----------
    mean
        Of some tasks and their weights, it gives a tree of sum_j w_j v_j / sum_j w_j, and what
        else each task came to, with an axis of tasks. It must not be differentiated from outside.
    tasks, weights
        All of them, on every device.

    Returns
    -------
    The same as of a single device, up to the order of the sum.
    """
    devices, count = sharers(), weights.shape[0]
    if devices == 1:
        return mean(tasks, weights)
    some, own = _own((tasks, weights), count, devices)
    # A device may have one task more than there are; it is a copy, and has no weight.
    place = _first(count, devices) + jnp.arange(own.shape[0])
    own = jnp.where(place < count, own, 0)
    part, results = mean(some, own)
    total = jnp.sum(weights)
    share = jnp.sum(own) / jnp.where(total > 0, total, 1)
    part = jax.tree.map(lambda leaf: leaf * share.astype(leaf.dtype), part)
    return _brought_together(part, results, count, devices)


def rows_of_all(function: Callable[..., PyTree], *tasks: PyTree) -> PyTree:
    """``function`` of all rows of ``tasks``, each device computing its own part of them.

    ``function`` takes and gives trees with an axis of tasks first. It must not be differentiated
    from outside.
    """
    devices, count = sharers(), len(jax.tree.leaves(tasks)[0])
    if devices == 1:
        return function(*tasks)
    results = function(*_own(tasks, count, devices))
    return _brought_together((), results, count, devices)[1]


def _size(count: int, devices: int) -> int:
    return math.ceil(count / devices)


def _first(count: int, devices: int) -> Array:
    """Where the part of this device begins."""
    return jax.lax.axis_index(TASKS) * _size(count, devices)


def _own(tree: PyTree, count: int, devices: int) -> PyTree:
    """The rows of this device, filled up with copies of the last."""
    place = _first(count, devices) + jnp.arange(_size(count, devices))
    return jax.tree.map(lambda leaf: leaf[jnp.minimum(place, count - 1)], tree)


def _brought_together(
    part: PyTree, results: PyTree, count: int, devices: int
) -> tuple[PyTree, PyTree]:
    """Sums of the parts and rows of all devices, by a single reduction per type of numbers.

    The rows travel in the same sum, each beside the zeros of the others: a second message would
    cost more than they do.
    """
    first, size = _first(count, devices), _size(count, devices)

    def placed(leaf: Array) -> Array:
        room = jnp.zeros((devices * size, *leaf.shape[1:]), _summable(leaf.dtype))
        return jax.lax.dynamic_update_slice_in_dim(room, leaf.astype(room.dtype), first, 0)

    parts, structure = jax.tree.flatten(part)
    rows, of_rows = jax.tree.flatten(results)
    summed = _summed([*parts, *map(placed, rows)])
    whole = summed[: len(parts)]
    every = [
        leaf[:count].astype(row.dtype) for leaf, row in zip(summed[len(parts) :], rows, strict=True)
    ]
    return jax.tree.unflatten(structure, whole), jax.tree.unflatten(of_rows, every)


def _summable(dtype: Any) -> Any:
    return jnp.int32 if dtype == jnp.bool_ else dtype


def _summed(leaves: list[Array]) -> list[Array]:
    """Of all devices that share tasks; those of one type in one message."""
    found: list[Array | None] = [None] * len(leaves)
    for dtype in dict.fromkeys(leaf.dtype for leaf in leaves):
        of_type = [place for place, leaf in enumerate(leaves) if leaf.dtype == dtype]
        message = jnp.concatenate([leaves[place].reshape(-1) for place in of_type])
        message, begin = jax.lax.psum(message, TASKS), 0
        for place in of_type:
            leaf = leaves[place]
            found[place] = message[begin : begin + leaf.size].reshape(leaf.shape)
            begin += leaf.size
    return [leaf for leaf in found if leaf is not None]
