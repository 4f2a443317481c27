"""The M-step: every cluster learns from the tasks that are its own."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from taskmix.mixture.alarm import RECENT
from taskmix.mixture.explaining import UNLIKE, described, examples, judge
from taskmix.mixture.members import Member, changed, row
from taskmix.mixture.parting import is_parting
from taskmix.mixture.reference import Reference, Scores
from taskmix.mixture.reservoir import offered, put
from taskmix.mixture.settings import OnlineSettings
from taskmix.mixture.state import HELD, EStep, OnlineState
from taskmix.tasks import TaskBatch

LEAST_WEIGHT = 0.03
"""Mixing weight from which on a cluster moves: strays do not teach it."""
LESSON = 0.2
"""Share of a batch that is a whole lesson; of less than that a cluster takes smaller steps."""
STRANGE = 2.5
"""Lowness of its newest tasks, in deviations, from which on a cluster does not learn from them."""
BEGINNING = 20
"""Batches in which a candidate finds out what new tasks look like."""

Trained = tuple[PyTree, PyTree, PyTree, Float[Array, ""]]
"""Parameters, optimiser state, averaged parameters and how many updates they had."""


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
    # A cluster learns to explain what is like its tasks, though nothing explains it yet; unless
    # nothing else in the batch is its own, when what is like them is more likely a stray.
    present = jnp.sum(seen.shares[:, :-1], axis=0) >= HELD
    taught = seen.best & alike[:, :-1] & present
    shares = seen.shares[:, :-1] + jnp.where(taught, seen.shares[:, -1:], 0)
    own = jnp.where((shares > 0.5) & moves, shares, 0)
    credit = jnp.concatenate([own, lessons[:, None]], axis=1)
    credit = jnp.where(apart[:, None], 0, credit)
    held = jnp.concatenate([shares, taken[:, None]], axis=1) > HELD
    held &= alike & ~apart[:, None]
    sampled = jnp.concatenate([seen.best, (taken > 0.5)[:, None]], axis=1)
    sampled &= alike & apart[:, None] & ~jnp.append(raised & mature, False)
    learns = jnp.sum(credit, axis=0) >= jnp.append(jnp.full(clusters, HELD), 0.1)
    # A copy learns no faster than its parent: it has to win by what it learns, not by haste.
    hopeful = learner.worthy(state.trial, state.alarm, 0.5) | raised
    hopeful &= state.trial.is_new()
    hasty = jnp.append(~mature, hopeful)
    updates = jnp.where(hasty, learner.youth, 1) * learner.updates
    parting = is_parting(learner, state)
    updates = updates.at[-1].set(jnp.where(parting, learner.parting_updates, updates[-1]))
    updates = jnp.where(learns, updates, 0)
    touched = learns | jnp.any(held | sampled, axis=0)

    rows = jnp.arange(clusters + 1)
    keys = jax.vmap(lambda index: jax.random.split(jax.random.fold_in(key, index), 3))(rows)
    members = updated(learner, state.members, batch, credit, updates, keys[:, 0])
    # Always true, and known only after the updates: what they read is not written before, and so
    # stays where it is in memory.
    held &= members.updates >= 0
    members = with_kept(learner, members, batch, seen.scores, held, sampled, keys[:, 1:])
    members = rescored(learner, state, members, touched)
    parts = jnp.concatenate([own, followed(state, seen, lessons)[:, None], real[:, None]], axis=1)
    return dataclasses.replace(
        state,
        members=members,
        age=state.age + jnp.where(learns, lesson(credit, real), 0)[:-1],
        inputs=state.inputs.observe(seen.inputs, parts),
        progress=state.progress.observe(seen.judged.whole[:, :-1], own),
    )


def followed(
    state: OnlineState, seen: EStep, lessons: Float[Array, " tasks"]
) -> Float[Array, " tasks"]:
    """How much of each task the candidate follows in what it knows of inputs.

    While the alarm is on, one that has just begun follows all that is unlike the cluster which
    explains it best: before it knows what these tasks look like it cannot take them.
    """
    unlike = jnp.any(seen.best & (seen.unlike[:, :-1] < UNLIKE), axis=1)
    begins = state.alarm.raised & state.trial.is_new() & (state.trial.age < BEGINNING)
    return jnp.where(begins & unlike, 1.0, lessons)


def lesson(
    credit: Float[Array, "tasks ..."], real: Bool[Array, " tasks"]
) -> Float[Array, "*members"]:
    """How much of a whole lesson a batch is for those who learn from it."""
    return jnp.minimum(1.0, jnp.sum(credit, axis=0) / (LESSON * jnp.maximum(jnp.sum(real), 1)))


def updated(
    learner: OnlineSettings,
    members: Member,
    batch: TaskBatch,
    credit: Float[Array, "tasks members"],
    updates: Int[Array, " members"],
    keys: Key[Array, " members"],
) -> Member:
    """The members after their updates, each scaled by its share of the batch.

    What they keep is only looked at. As a part of what the loop changes it would be copied.
    """
    sizes = lesson(credit, batch.real)

    def one(index: Int[Array, ""], own: Trained) -> Trained:
        total = jnp.sum(credit[:, index])
        again = jnp.minimum(1.0, total / max(learner.rehearsed, 1))
        kept = row(members.reservoir, index)

        def update(turn: Int[Array, ""], own: Trained) -> Trained:
            params, optimiser, averaged, count = own
            params, optimiser, _ = learner.rehearsal(
                learner.task_model,
                learner.optimiser(),
                params,
                optimiser,
                batch,
                credit[:, index],
                kept,
                jax.random.fold_in(keys[index], turn),
                sizes[index],
                again,
            )
            rate = sizes[index] * jnp.maximum(learner.averaging_rate, 1 / (count + 1))
            averaged = jax.tree.map(lambda a, p: a + rate * (p - a), averaged, params)
            return params, optimiser, averaged, count + 1

        trained: Trained = jax.lax.fori_loop(0, updates[index], update, own)
        return trained

    trained = (members.params, members.optimiser, members.averaged, members.updates)
    params, optimiser, averaged, count = changed(trained, one, updates > 0)
    return dataclasses.replace(
        members, params=params, optimiser=optimiser, averaged=averaged, updates=count
    )


def with_kept(
    learner: OnlineSettings,
    members: Member,
    batch: TaskBatch,
    scores: Scores,
    held: Bool[Array, "tasks members"],
    sampled: Bool[Array, "tasks members"],
    keys: Key[Array, "members 2"],
) -> Member:
    """The members with those tasks of the batch that come into their samples."""
    reservoir, reference = members.reservoir, members.reference
    if learner.reservoir:
        reservoir, _ = offered(reservoir, (), batch, (), held.T, keys[:, 0])
    if learner.reference:
        sample, kept = reference.sample, reference.scores
        reference = Reference(*offered(sample, kept, batch, scores, sampled.T, keys[:, 1]))
    return dataclasses.replace(members, reservoir=reservoir, reference=reference)


def rescored(
    learner: OnlineSettings, state: OnlineState, members: Member, where: Bool[Array, " members"]
) -> Member:
    """The members with some places of their references scored as they are now."""
    if not learner.reference:
        return members
    sample = members.reference.sample
    some = (state.iteration * learner.rescored + jnp.arange(learner.rescored)) % sample.places

    def one(index: Int[Array, ""], scores: Scores) -> Scores:
        tasks = jax.tree.map(lambda leaf: leaf[index, some], sample.tasks)
        judged = judge(learner, row(members.averaged, index), tasks)
        of_support, of_whole = (
            state.inputs.log_density_of(statistics, view, index)
            for view, statistics in enumerate(described(learner, tasks))
        )
        whole = (judged.whole + of_whole) / examples(tasks)
        support = (judged.support + of_support) / jnp.maximum(tasks.support.count(), 1)
        return put(scores, some, Scores(whole, support))

    scores = changed(members.reference.scores, one, where)
    return dataclasses.replace(members, reference=Reference(sample, scores))
