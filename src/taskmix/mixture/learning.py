"""The M-step: every cluster learns from the tasks that are its own."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from taskmix.mixture.alarm import RECENT
from taskmix.mixture.explaining import UNLIKE, described, examples, judge
from taskmix.mixture.members import Member, changed, row
from taskmix.mixture.parting import is_parting
from taskmix.mixture.reference import Reference, Scores
from taskmix.mixture.settings import RESCORED, OnlineSettings
from taskmix.mixture.state import HELD, EStep, OnlineState
from taskmix.mixture.trial import FRESH
from taskmix.tasks import TaskBatch

LEAST_WEIGHT = 0.03
"""Mixing weight from which on a cluster moves: strays do not teach it."""
LESSON = 0.2
"""Share of a batch that is a whole lesson; of less than that a cluster takes smaller steps."""
STRANGE = 2.5
"""Lowness of its newest tasks, in deviations, from which on a cluster does not learn from them."""
PARTING = 20
"""Updates per batch of a copy that parts from its parent."""


def learned(
    learner: OnlineSettings,
    state: OnlineState,
    batch: TaskBatch,
    seen: EStep,
    taken: Float[Array, " tasks"],
    lessons: Float[Array, " tasks"],
    apart: Bool[Array, " tasks"],
    key: Key[Array, ""],
) -> OnlineState:
    """The M-step: every cluster learns from the tasks that are its own."""
    clusters, real = state.alive.size, batch.real
    mature, raised = learner.mature(state), state.alarm.raised
    known = row(state.members.reference, jnp.arange(clusters))
    strange = state.alarm.lowness(known.count(), 0.0)[:, RECENT] > STRANGE
    moves = (seen.weights[:-1] >= LEAST_WEIGHT) & ~((raised | strange) & mature)
    alike = (seen.unlike > UNLIKE) & jnp.append(state.alive, True)
    # A cluster learns to explain what is like its tasks, though nothing explains it yet.
    shares = seen.shares[:, :-1] + jnp.where(seen.best & alike[:, :-1], seen.shares[:, -1:], 0)
    own = jnp.where((shares > 0.5) & moves, shares, 0)
    credit = jnp.concatenate([own, lessons[:, None]], axis=1)
    credit = jnp.where(apart[:, None], 0, credit)
    held = jnp.concatenate([shares, taken[:, None]], axis=1) > HELD
    held &= alike & ~apart[:, None]
    sampled = jnp.concatenate([seen.best, (taken > 0.5)[:, None]], axis=1)
    sampled &= alike & apart[:, None] & ~jnp.append(raised & mature, False)
    learns = jnp.sum(credit, axis=0) >= jnp.append(jnp.full(clusters, HELD), 0.1)
    hopeful = learner.worthy(state.trial, 0.5) | (raised & (state.trial.origin == FRESH))
    hasty = jnp.append(~mature, hopeful)
    updates = jnp.where(hasty, learner.youth, 1) * learner.updates
    updates = updates.at[-1].set(jnp.where(is_parting(learner, state), PARTING, updates[-1]))
    updates = jnp.where(learns, updates, 0)
    touched = learns | jnp.any(held | sampled, axis=0)

    def one(index: Int[Array, ""], member: Member) -> Member:
        learn_key, keep_key, sample_key = jax.random.split(jax.random.fold_in(key, index), 3)
        member = updated(learner, member, batch, credit[:, index], updates[index], learn_key)
        reservoir = member.reservoir
        if learner.reservoir:
            reservoir, _ = reservoir.offer(batch, held[:, index], keep_key)
        scores = row(seen.scores, index)
        reference = member.reference
        if learner.reference:
            reference = reference.offer(batch, scores, sampled[:, index], sample_key)
            reference = rescored(learner, state, index, member, reference)
        return dataclasses.replace(member, reservoir=reservoir, reference=reference)

    _, statistics = described(learner, batch)
    rows = jnp.concatenate([own, lessons[:, None], real[:, None]], axis=1)
    return dataclasses.replace(
        state,
        members=changed(state.members, one, touched),
        age=state.age + jnp.where(learns, lesson(credit, real), 0)[:-1],
        inputs=state.inputs.observe(statistics, rows),
        progress=state.progress.observe(seen.judged.whole[:, :-1], own),
    )


def lesson(
    credit: Float[Array, tasks * members], real: Bool[Array, " tasks"]
) -> Float[Array, "*members"]:
    """How much of a whole lesson a batch is for those who learn from it."""
    return jnp.minimum(1.0, jnp.sum(credit, axis=0) / (LESSON * jnp.maximum(jnp.sum(real), 1)))


def updated(
    learner: OnlineSettings,
    member: Member,
    batch: TaskBatch,
    credit: Float[Array, " tasks"],
    updates: Int[Array, ""],
    key: Key[Array, ""],
) -> Member:
    """A member after its updates, each scaled by its share of the batch."""
    total, size = jnp.sum(credit), lesson(credit, batch.real)
    again = jnp.minimum(1.0, total / max(learner.rehearsed, 1))

    def update(turn: Int[Array, ""], carry: tuple) -> tuple:
        params, optimiser, averaged, count = carry
        params, optimiser, _ = learner.rehearsal(
            learner.task_model,
            learner.optimiser(),
            params,
            optimiser,
            batch,
            credit,
            member.reservoir,
            jax.random.fold_in(key, turn),
            size,
            again,
        )
        rate = size * jnp.maximum(learner.averaging_rate, 1 / (count + 1))
        averaged = jax.tree.map(lambda a, p: a + rate * (p - a), averaged, params)
        return params, optimiser, averaged, count + 1

    start = (member.params, member.optimiser, member.averaged, member.updates)
    params, optimiser, averaged, count = jax.lax.fori_loop(0, updates, update, start)
    return dataclasses.replace(
        member, params=params, optimiser=optimiser, averaged=averaged, updates=count
    )


def rescored(
    learner: OnlineSettings, state: OnlineState, index: Array, member: Member, reference: Reference
) -> Reference:
    """Some places of a reference, scored by the cluster as it is now."""
    places = reference.known.shape[0]
    some = (state.iteration * RESCORED + jnp.arange(min(RESCORED, places))) % places
    tasks = row(reference.sample.tasks, some)
    judged = judge(learner, member.averaged, tasks)
    of_support, of_whole = map(state.inputs.log_density, described(learner, tasks))
    whole = (judged.whole + of_whole[:, index]) / examples(tasks)
    support = (judged.support + of_support[:, index]) / jnp.maximum(tasks.support.count(), 1)
    return reference.rescored(some, Scores(whole, support))
