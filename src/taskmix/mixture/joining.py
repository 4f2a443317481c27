"""How two clusters become one, where one can serve the tasks of both.

The candidate begins as a copy of one cluster and learns, as quickly as a copy that parts, from what
both of them keep. Afterwards it is asked about their references, from which nobody has learned. If
neither loses what a cluster has to be worth to be kept, the candidate takes the place of both. So
opening, removing and joining clusters all ask how many nats per task a cluster is worth.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from taskmix.mixture.clusters import as_rows
from taskmix.mixture.explaining import judge, of_inputs
from taskmix.mixture.members import Member, of_living, row, with_row
from taskmix.mixture.reference import Reference
from taskmix.mixture.reservoir import Reservoir
from taskmix.mixture.review import REVIEWED, evidence_under
from taskmix.mixture.settings import OnlineSettings
from taskmix.mixture.state import OnlineState, Progress
from taskmix.mixture.trial import JOINED


def nearest(
    learner: OnlineSettings,
    state: OnlineState,
    parent: Int[Array, ""],
    mature: Bool[Array, " clusters"],
) -> Int[Array, ""]:
    """The other grown-up cluster that explains best what the ``parent`` keeps."""
    reservoir = row(state.members.reservoir, parent)
    tasks, filled = jax.tree.map(lambda leaf: leaf[:REVIEWED], (reservoir.tasks, reservoir.filled))
    others = mature & (jnp.arange(mature.size) != parent)

    def under(index: Int[Array, ""]) -> Float[Array, " places"]:
        return judge(learner, row(state.members.averaged, index), tasks).whole

    mean = jnp.sum(jnp.where(filled, of_living(under, others), 0), axis=-1)
    return jnp.argmax(jnp.where(others, mean, -jnp.inf))


def of_both(one: Reservoir, other: Reservoir) -> Reservoir:
    """Every second place of each."""
    tasks, filled = alternating((one.tasks, one.filled), (other.tasks, other.filled))
    return Reservoir(tasks, filled, one.offered + other.offered)


def alternating(one: PyTree, other: PyTree) -> PyTree:
    """Even rows of one, odd rows of the other."""

    def chosen(even: Array, odd: Array) -> Array:
        return jnp.where(as_rows(jnp.arange(even.shape[0]) % 2 == 1, even), odd, even)

    return jax.tree.map(chosen, one, other)


def joined(learner: OnlineSettings, state: OnlineState, due: Bool[Array, ""]) -> OnlineState:
    """With the candidate in the place of two clusters, if it was to join them and serves both."""
    if not learner.reservoir or not learner.reference:
        return state
    trial = state.trial
    ended = due & (trial.origin == JOINED) & (trial.age == learner.parting)
    return jax.lax.cond(ended, partial(_judged, learner), lambda state: state, state)


def _judged(learner: OnlineSettings, state: OnlineState) -> OnlineState:
    clusters, trial = state.alive.size, state.trial
    candidate = row(state.members.averaged, clusters)

    def lost(owner: Int[Array, ""]) -> Float[Array, ""]:
        member = row(state.members, owner)
        sample = member.reference.sample
        own, theirs = evidence_under(
            partial(judge, learner), sample.tasks, member.averaged, candidate
        )
        likely = of_inputs(learner, state, sample.tasks)
        ahead = own - theirs + likely[:, owner] - likely[:, clusters]
        count = jnp.maximum(jnp.sum(sample.filled), 1)
        return jnp.sum(jnp.where(sample.filled, ahead, 0)) / count

    pair = jnp.stack([trial.parent, trial.partner])
    serves = jnp.all(jax.lax.map(lost, pair) < learner.keep_worth)
    serves &= jnp.all(state.alive[pair]) & (trial.parent != trial.partner)
    return jax.lax.cond(serves, partial(_replaced, learner), lambda state: state, state)


def _replaced(learner: OnlineSettings, state: OnlineState) -> OnlineState:
    clusters, parent, partner = state.alive.size, state.trial.parent, state.trial.partner
    member: Member = row(state.members, clusters)
    one, other = row(state.members.reference, parent), row(state.members.reference, partner)
    scores = alternating(one.scores, other.scores)
    reference = Reference(of_both(one.sample, other.sample), scores)
    updates = jnp.max(state.members.updates[jnp.stack([parent, partner])])
    member = dataclasses.replace(member, reference=reference, updates=updates)
    gone = jnp.arange(clusters) == partner
    begun = gone | (jnp.arange(clusters) == parent)
    counts = state.counts.at[parent].add(state.counts[partner]).at[partner].set(0)
    nothing = jnp.zeros(())
    return eqx.tree_at(
        lambda state: (
            state.members,
            state.alive,
            state.counts,
            state.alarm,
            state.progress,
            state.widths,
        ),
        state,
        (
            with_row(state.members, parent, member),
            state.alive & ~gone,
            counts,
            state.alarm.forget(begun),
            with_row(state.progress, parent, Progress(nothing, nothing, nothing)),
            state.widths.forget(jnp.append(begun, False)),
        ),
    )
