"""How a candidate that is a copy of a cluster parts from it.

Where a cluster serves two kinds of tasks, a copy that learns from one kind alone soon does better
at it. Which tasks these are nobody says; but the cluster keeps a sample of its tasks. The copy
begins with the harder or the easier half of them, and goes on with those on which it is further
ahead of its parent than on the others, so that what it has begun to do better it does better and
better. Many updates per batch make this quick, and what it has come to is judged afterwards, on
tasks that neither of them has learned from.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from taskmix.mixture.explaining import examples, judge, of_inputs
from taskmix.mixture.joining import of_both
from taskmix.mixture.members import row, with_row
from taskmix.mixture.reservoir import Reservoir
from taskmix.mixture.review import evidence_under
from taskmix.mixture.settings import OnlineSettings
from taskmix.mixture.state import OnlineState
from taskmix.mixture.trial import HARDER, JOINED, Trial


def is_parting(learner: OnlineSettings, state: OnlineState) -> Bool[Array, ""]:
    return state.trial.is_copy() & (state.trial.age < learner.parting)


def parted(learner: OnlineSettings, state: OnlineState, due: Bool[Array, ""]) -> OnlineState:
    """The candidate with those tasks of its parent's sample that it is to learn from now."""
    if not learner.reservoir:
        return state
    clusters, trial = state.alive.size, state.trial

    def chosen(parent: Reservoir) -> tuple[Reservoir, Float[Array, ""]]:
        tasks, filled = parent.tasks, parent.filled
        models = row(state.members.averaged, trial.parent), row(state.members.averaged, clusters)
        before, after = evidence_under(partial(judge, learner), tasks, *models)
        likely = of_inputs(learner, state, tasks)
        before, after = before + likely[:, trial.parent], after + likely[:, clusters]
        score = before / examples(tasks)
        middle = jnp.nanmedian(jnp.where(filled, score, jnp.nan))
        ahead = after - before
        mean = jnp.sum(jnp.where(filled, ahead, 0)) / jnp.maximum(jnp.sum(filled), 1)
        by_score = jnp.where(trial.origin == HARDER, score < middle, score >= middle)
        last = trial.age == learner.parting - 1
        further = ahead > jnp.where(last, 0, mean)
        kept = jnp.where(trial.age == 0, by_score, further)
        return parent.drop(~kept), mean

    def turn(_: Array, now: tuple[Reservoir, Array]) -> tuple[Reservoir, Array]:
        parent = row(now[0], trial.parent)
        sample, centre = jax.lax.cond(
            trial.origin == JOINED,
            lambda: (of_both(parent, row(now[0], trial.partner)), now[1]),
            lambda: chosen(parent),
        )
        return with_row(now[0], clusters, sample), centre

    # A loop of one turn or none: what does not part is not copied, and images are large.
    turns = (due & is_parting(learner, state)).astype(int)
    reservoir, centre = jax.lax.fori_loop(0, turns, turn, (state.members.reservoir, trial.centre))
    return dataclasses.replace(
        state,
        members=eqx.tree_at(lambda members: members.reservoir, state.members, reservoir),
        trial=dataclasses.replace(trial, centre=centre),
    )


def half(
    trial: Trial,
    ahead: Float[Array, " tasks"],
    ranks: Float[Array, " tasks"],
    shares: Float[Array, " tasks"],
) -> Float[Array, " tasks"]:
    """What a copy that parts learns from a batch: those of its parent's tasks, by the same rule.

    ``ahead`` is how far it is ahead of its parent on each task; ``ranks`` and ``shares`` are the
    parent's. One that is to join two clusters learns from all of its parent's.
    """
    by_rank = jnp.where(trial.origin == HARDER, ranks < 0.5, ranks >= 0.5)
    own = jnp.where(trial.age == 0, by_rank, ahead > trial.centre)
    return (own | (trial.origin == JOINED)) * shares
