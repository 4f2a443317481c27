"""Clusters that are no longer needed, and tasks that have found a better home."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from taskmix.adaptation import Judgement
from taskmix.mixture.members import Member, of_living, row
from taskmix.tasks import Examples, TaskBatch

REVIEWED = 50
"""Tasks of each cluster that are looked at."""

Judge = Callable[[PyTree, TaskBatch], Judgement]
OfInputs = Callable[[TaskBatch], Float[Array, "tasks rows"]]
"""Log-density of the inputs of tasks under every cluster, and last under the background."""


def purged(
    judge: Judge,
    member: Member,
    newborn: PyTree,
    nearer: Callable[[TaskBatch], Float[Array, " tasks"]],
) -> Member:
    """A member without the kept tasks that a newborn explains better.

    ``nearer`` says by how much their inputs are likelier for the newborn.
    """
    reservoir, reference = member.reservoir, member.reference
    tasks = jax.tree.map(
        lambda *parts: jnp.concatenate(parts), reservoir.tasks, reference.sample.tasks
    )
    own, theirs = evidence_under(judge, tasks, member.averaged, newborn)
    better = theirs + nearer(tasks) > own
    return dataclasses.replace(
        member,
        reservoir=reservoir.drop(better[: reservoir.places]),
        reference=reference.drop(better[reservoir.places :]),
    )


def evidence_under(
    judge: Judge, tasks: TaskBatch, *several: PyTree
) -> Float[Array, "several tasks"]:
    """Evidence of tasks under several models: a loop, so that it is compiled once for all."""
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *several)
    evidence: Array = jax.lax.map(lambda params: judge(params, tasks).whole, stacked)
    return evidence


def redundant(
    judge: Judge,
    background: Callable[[Examples, Examples], Float[Array, ""]],
    of_inputs: OfInputs,
    members: Member,
    alive: Bool[Array, " clusters"],
    judged: Bool[Array, " clusters"],
    worth: float,
) -> Bool[Array, " clusters"]:
    """The cluster to go, if there is one: without it its tasks would lose less than ``worth`` each.

    Of several it is the one that has learned for the shortest time: of twins the older one
    stays. The last cluster never goes.
    """
    lost = losses(judge, background, of_inputs, members, alive)
    unneeded = alive & judged & (lost < worth)
    least = jnp.argmin(jnp.where(unneeded, members.updates[: alive.size], jnp.inf))
    return (jnp.arange(alive.size) == least) & unneeded & (jnp.sum(alive) > 1)


def losses(
    judge: Judge,
    background: Callable[[Examples, Examples], Float[Array, ""]],
    of_inputs: OfInputs,
    members: Member,
    alive: Bool[Array, " clusters"],
) -> Float[Array, " clusters"]:
    """What the kept tasks of each cluster would lose without it, in nats per task."""
    clusters = alive.size
    tasks, filled = jax.tree.map(
        lambda leaf: leaf[:clusters, :REVIEWED],
        (members.reservoir.tasks, members.reservoir.filled),
    )

    def under(model: Array) -> Float[Array, "owners places"]:
        params = row(members.averaged, model)
        return of_living(lambda owner: judge(params, row(tasks, owner)).whole, alive)

    inputs = of_living(lambda owner: of_inputs(row(tasks, owner)), alive)
    every = of_living(under, alive) + jnp.moveaxis(inputs[..., :clusters], -1, 0)
    every = jnp.where(alive[:, None, None], every, -jnp.inf)
    blank = jax.vmap(jax.vmap(background))(tasks.support, tasks.query) + inputs[..., -1]
    every = jnp.concatenate([every, blank[None]])
    own = jnp.arange(clusters + 1)[:, None, None] == jnp.arange(clusters)[:, None]
    lost = jnp.max(every, axis=0) - jnp.max(jnp.where(own, -jnp.inf, every), axis=0)
    count = jnp.maximum(jnp.sum(filled, axis=-1), 1)
    return jnp.sum(jnp.where(filled, lost, 0), axis=-1) / count
