"""Births, what becomes of an alarm that nothing was born of, and removals."""

from __future__ import annotations

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from taskmix.mixture.alarm import Alarm
from taskmix.mixture.explaining import judge, of_inputs
from taskmix.mixture.inputs import Inputs
from taskmix.mixture.joining import nearest
from taskmix.mixture.members import Member, changed, row, with_row
from taskmix.mixture.parting import half, is_parting
from taskmix.mixture.review import purged, redundant
from taskmix.mixture.settings import OnlineSettings
from taskmix.mixture.state import EStep, OnlineState, Progress
from taskmix.mixture.trial import FORKED, FRESH, JOINED, Trial
from taskmix.tasks import TaskBatch

NEWBORN_COUNT = 10.0
SUDDEN = 0.25
"""Share of the recent tasks below which a candidate did not explain most batches until now."""
ABANDONED = 1.0
"""Count below which a cluster is no longer in use: it will not become better by itself."""


def tried(
    learner: OnlineSettings, state: OnlineState, seen: EStep, real: Array
) -> tuple[Trial, Float[Array, " tasks"], Float[Array, " tasks"]]:
    """The trial after the batch, which tasks the candidate takes, what it learns from."""
    trial, candidate = state.trial, seen.judged.whole[:, -1]
    settled = learner.mature(state) & (state.progress.rise() < learner.settled)
    in_use = seen.prior[:-1] * jnp.sum(state.alive) >= 0.25
    # Against a cluster that still improves by itself nothing is proven.
    settled = jnp.append(settled, jnp.all(settled | ~in_use))
    fair = settled[jnp.argmax(seen.evidence, axis=-1)] | (state.alarm.raised & trial.is_new())
    if learner.boundaries:
        fair = jnp.broadcast_to(state.alarm.raised, fair.shape)
    parting = is_parting(learner, state)
    taken = jnp.where(real, trial.taken(seen.density, candidate), 0)
    after = trial.tried(seen.density, candidate, fair & real & ~parting, real)
    parent = trial.parent
    ahead = candidate - seen.judged.whole[:, parent]
    lessons = half(trial, ahead, seen.ranks[:, parent], seen.shares[:, parent])
    return after, jnp.where(parting, 0, taken), jnp.where(parting, lessons, taken)


def births(
    learner: OnlineSettings,
    state: OnlineState,
    batch: TaskBatch,
    taken: Float[Array, " tasks"],
    sounded: Bool[Array, ""],
    key: Key[Array, ""],
) -> tuple[OnlineState, Bool[Array, ""], Bool[Array, ""]]:
    """Promote the candidate if it has earned it, and let another begin where one is due.

    Says whether one was born, and whether the batch has raised the alarm, by ``sounded`` or by
    a birth: a candidate that has won, explains most of the batch, and did not explain most of
    those before, has noticed a change as well as any test.
    """
    trial = state.trial
    worthy = learner.worthy(trial, state.alarm)
    hopeful = learner.worthy(trial, state.alarm, 0.5)
    born = worthy & (trial.weight > 10) & (trial.age > 20)
    born &= ~jnp.all(state.alive) & jnp.any(batch.real)
    if learner.boundaries:
        born &= state.alarm.raised
    sudden = (2 * jnp.sum(taken) > jnp.sum(batch.real)) & (trial.share < SUDDEN)
    sudden &= born & trial.is_new() & ~state.alarm.raised
    raised = state.alarm.judged(sudden, learner.calm)
    alarm = jax.tree.map(lambda new, old: jnp.where(sudden, new, old), raised, state.alarm)
    state = dataclasses.replace(state, alarm=alarm)
    state = jax.lax.cond(born, partial(promoted, learner), lambda state: state, state)
    over = (trial.age >= learner.probation) & ~hopeful | (trial.age >= 3 * learner.probation)
    over |= (trial.origin == JOINED) & (trial.age >= learner.parting)
    # What has begun to learn something else is no good start for what is new.
    # What is not learned from nothing may be learned by a copy of what comes nearest to it.
    forked = state.alarm.raised & (state.alarm.since == learner.patience)
    forked &= (trial.origin == FRESH) & (trial.evidence <= learner.certainty) & ~born
    forked &= jnp.any(learner.mature(state))
    due = (born | over | (sounded & ~worthy) | forked) & jnp.any(batch.real)
    tries = jnp.where(born, 0, trial.tries + (trial.origin != JOINED))
    state = dataclasses.replace(
        state, trial=dataclasses.replace(trial, tries=jnp.where(due, tries, trial.tries))
    )
    keys = jax.random.split(key, 3)
    # In two steps, so that no copy is made of what the clusters keep, which the first one reads.
    propose = partial(proposed, learner, state, keys[1:], sounded, forked)
    trial = jax.lax.cond(due, propose, lambda: state.trial)
    state = dataclasses.replace(state, trial=trial)
    again = partial(begun, learner, example=batch, key=keys[0])
    return jax.lax.cond(due, again, lambda state: state, state), born, sounded | sudden


def promoted(learner: OnlineSettings, state: OnlineState) -> OnlineState:
    """The candidate becomes a cluster; what it explains better leaves the others' samples."""
    clusters = state.alive.size
    free = jnp.argmin(state.alive)
    newborn = row(state.members, clusters)

    def without(index: Int[Array, ""], member: Member) -> Member:
        def nearer(tasks: TaskBatch) -> Float[Array, " tasks"]:
            likely = of_inputs(learner, state, tasks)
            return likely[:, clusters] - likely[:, index]

        return purged(partial(judge, learner), member, newborn.averaged, nearer)

    members = changed(state.members, without, jnp.append(state.alive, False))
    chosen = jnp.arange(clusters + 1) == free
    alarm = state.alarm.forget(chosen[:-1])
    begun = Alarm.begin(clusters, raised=True)
    # An alarm that was answered starts to look again; one that was not there stays away.
    alarm = jax.tree.map(lambda new, old: jnp.where(alarm.raised, new, old), begun, alarm)
    inputs = with_row(state.inputs, free, row(state.inputs, clusters))
    nothing = jnp.zeros(())
    return dataclasses.replace(
        state,
        members=with_row(members, free, newborn),
        alive=state.alive.at[free].set(True),
        age=state.age.at[free].set(0),
        counts=state.counts.at[free].max(NEWBORN_COUNT),
        inputs=inputs,
        alarm=alarm,
        progress=with_row(state.progress, free, Progress(nothing, nothing, nothing)),
        widths=state.widths.forget(chosen),
    )


def proposed(
    learner: OnlineSettings,
    state: OnlineState,
    keys: Key[Array, " 2"],
    fresh: Bool[Array, ""],
    forked: Bool[Array, ""],
) -> Trial:
    """What the next candidate is to be: new, or a copy of a grown-up cluster that is in use."""
    parent_key, origin_key = keys
    mature = learner.mature(state)
    use = jnp.where(mature, jnp.log(state.counts[:-1] + 1e-3), -1e3)
    parent = jax.random.categorical(parent_key, use)
    fresh |= state.alarm.raised | ~jnp.any(mature)
    # With a single cluster there is nothing to join.
    kinds = jnp.where(jnp.sum(mature) > 1, 4, 3)
    origin = jnp.where(fresh, FRESH, jax.random.randint(origin_key, (), 0, kinds))
    origin = jnp.where(forked, FORKED, origin)
    parent = jnp.where(forked, jnp.argmax(use), parent)
    partner = nearest(learner, state, parent, mature) if learner.reservoir else parent
    return Trial.begin(origin, parent, partner, state.trial.tries)


def begun(
    learner: OnlineSettings, state: OnlineState, example: TaskBatch, key: Key[Array, ""]
) -> OnlineState:
    """A new candidate: at random, or a copy of the parent that the trial names.

    One that inherits is such a copy too, which takes its tasks as if it had begun at random.
    """
    clusters, trial = state.alive.size, state.trial
    known = jnp.any(learner.mature(state))
    at_random = (trial.origin == FRESH) & ~(known & learner.inherits)
    params = jax.tree.map(
        lambda new, rows: jnp.where(at_random, new, rows[trial.parent]),
        learner.task_model.init(key),
        state.members.params,
    )
    blank = row(Inputs.begin(1, state.inputs.mean.shape[-1]), 0)
    return dataclasses.replace(
        state,
        members=with_row(state.members, clusters, learner.newborn(params, example)),
        inputs=with_row(state.inputs, clusters, blank),
    )


def accepted(learner: OnlineSettings, state: OnlineState, seen: EStep) -> OnlineState:
    """After an alarm from which nothing came: what is now is what there is to know."""
    wins = state.trial.evidence > learner.certainty
    since = state.alarm.since
    over = (since >= 2 * learner.patience) & (~wins | (since >= 3 * learner.patience))
    clusters = state.alive.size
    carried = state.alive & (jnp.mean(seen.best, axis=0) > 0.1) & over
    sample = state.members.reference.sample
    gone = jnp.append(carried, False)
    members = eqx.tree_at(
        lambda m: (m.reference.sample.filled, m.reference.sample.offered),
        state.members,
        (sample.filled & ~gone[:, None], jnp.where(gone, 0, sample.offered)),
    )
    alarm = jax.tree.map(
        lambda new, old: jnp.where(over, new, old), Alarm.begin(clusters), state.alarm
    )
    age = jnp.where(carried, 0, state.age)
    return dataclasses.replace(state, members=members, alarm=alarm, age=age)


def reviewed(learner: OnlineSettings, state: OnlineState, due: Bool[Array, ""]) -> OnlineState:
    """Without the least needed cluster, if it is not needed; now and then."""

    def look(state: OnlineState) -> OnlineState:
        abandoned = state.counts[:-1] < ABANDONED
        still = learner.mature(state) & (state.progress.rise() < learner.settled)
        gone = redundant(
            partial(judge, learner),
            partial(state.background.evidence, learner.likelihood),
            partial(of_inputs, learner, state),
            state.members,
            state.alive,
            still | abandoned,
            learner.keep_worth,
        )
        counts = jnp.where(jnp.append(gone, False), 0, state.counts)
        alarm = state.alarm.forget(gone)
        return dataclasses.replace(state, alive=state.alive & ~gone, counts=counts, alarm=alarm)

    due &= (state.iteration % learner.review == 0) & bool(learner.reservoir)
    return jax.lax.cond(due, look, lambda state: state, state)
