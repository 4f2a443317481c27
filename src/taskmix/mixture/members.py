"""Rows of a state: the clusters, and in the last row the candidate for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from taskmix.mixture.reference import Reference
from taskmix.mixture.reservoir import Reservoir

Rows = TypeVar("Rows")


class Member(eqx.Module):
    """A cluster or the candidate; in a state every leaf has a leading axis of rows."""

    params: PyTree
    optimiser: PyTree
    averaged: PyTree
    """Parameters averaged over the last updates: what judges tasks."""
    reservoir: Reservoir
    """Tasks to be rehearsed: a sample of those that are clearly its own."""
    reference: Reference
    updates: Float[Array, "*rows"]
    """How many updates it has had."""


def row(tree: PyTree, index: Int[Array, "*some"] | int) -> PyTree:
    """One row of every leaf, or some."""
    if jnp.ndim(index):
        return jax.tree.map(lambda leaf: leaf[index], tree)
    # The same as indexing, for a third of the operations that have to be traced and compiled.
    return jax.tree.map(
        lambda leaf: jax.lax.dynamic_index_in_dim(
            leaf, index, keepdims=False, allow_negative_indices=False
        ),
        tree,
    )


def with_row(tree: PyTree, index: Int[Array, ""] | int, one: PyTree) -> PyTree:
    """The same with another row in one place."""
    return jax.tree.map(
        lambda leaf, new: jax.lax.dynamic_update_index_in_dim(
            leaf, new, index, axis=0, allow_negative_indices=False
        ),
        tree,
        one,
    )


def of_living(function: Callable[[Int[Array, ""]], Any], living: Bool[Array, " rows"]) -> Any:
    """``function`` of the number of each living row, stacked; zeros for the others.

    A loop over the living: dead rows cost nothing.
    """
    # Traced once, for its shapes and for the loop.
    function = jax.jit(function)
    shapes = jax.eval_shape(function, jnp.zeros((), dtype=int))
    room = jax.tree.map(lambda leaf: jnp.zeros((living.shape[0], *leaf.shape), leaf.dtype), shapes)
    order = jnp.argsort(~living)

    def one(turn: Int[Array, ""], filled: Any) -> Any:
        return with_row(filled, order[turn], function(order[turn]))

    return jax.lax.fori_loop(0, jnp.sum(living), one, room)


def changed(
    members: Rows,
    function: Callable[[Int[Array, ""], Any], Any],
    where: Bool[Array, " rows"],
) -> Rows:
    """The rows of a tree with ``function`` of those ``where`` asked; the others bit for bit."""
    order = jnp.argsort(~where)

    def one(turn: Int[Array, ""], members: Rows) -> Rows:
        index = order[turn]
        return with_row(members, index, function(index, row(members, index)))

    return jax.lax.fori_loop(0, jnp.sum(where), one, members)
