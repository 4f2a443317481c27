"""Whether a batch gives reason for the alarm, and the scout that asks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from taskmix.mixture.alarm import RATES, Alarm, winnings
from taskmix.mixture.explaining import described, examples, judge
from taskmix.mixture.members import row
from taskmix.mixture.rehearsal import Rehearsal
from taskmix.mixture.settings import SCOUT_HASTE, OnlineSettings
from taskmix.mixture.state import EStep, OnlineState, Scout
from taskmix.tasks import TaskBatch

SCOUT_RETURN = 0.1
"""How much of the way back to its cluster the scout goes before each batch."""
AT_ONCE = 2
"""Windows, from the shortest on, that count for a cluster that is not in use."""
COMPARED = 30
"""Reference tasks per batch that the scout is judged on beside the new ones."""


def alarmed(
    learner: OnlineSettings, state: OnlineState, batch: TaskBatch, seen: EStep, told: Array | None
) -> tuple[Alarm, Bool[Array, ""], Float[Array, ""]]:
    """The alarm after the batch, whether it was raised by it, and how near it is to that."""
    if learner.boundaries:
        reason = jnp.asarray(False) if told is None else told
        alarm = state.alarm.judged(reason, learner.patience)
        return alarm, reason, alarm.raised.astype(float)
    clusters = state.alive.size
    known = row(state.members.reference, jnp.arange(clusters))
    judged = learner.mature(state) & known.enough()
    # Leads are compared with those on tasks of the same age, so that a young cluster will do.
    grown = state.alive & (learner.lessons(state) >= learner.maturity / 3) & known.enough()
    won, betting = bets(learner, state, batch, seen, grown)
    in_use = state.alive & (seen.prior[:-1] * jnp.sum(state.alive) >= 0.25)
    alarm = state.alarm.back_in_use(in_use)
    alarm = alarm.observe(seen.ranks, seen.best & judged, won, betting)
    # Some strays that come to a cluster are no change, nor is what a young one still has to
    # learn to explain; half of a batch at once is. Of a batch of four tasks alone not even the
    # lowest ranks are proof, so that the window of two counts as well.
    in_use &= ~jnp.any(in_use & ~learner.mature(state))
    at_once = (jnp.mean(seen.best, axis=0) > 0.5)[:, None] & (jnp.arange(len(RATES)) < AT_ONCE)
    low = alarm.lowness(known.count(), learner.wander)
    low = jnp.where(in_use[:, None] | at_once, low, 0)
    wealth = alarm.wealth / -jnp.log(learner.false_alarms)
    suspicion = jnp.maximum(jnp.max(low) / learner.lowness, wealth)
    alarm = alarm.judged(suspicion > 1, learner.calm)
    return alarm, alarm.raised & ~state.alarm.raised, jnp.clip(suspicion, 0, 1)


def bets(
    learner: OnlineSettings, state: OnlineState, batch: TaskBatch, seen: EStep, judged: Array
) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """What bets on the scout win with a batch, and whether there were any."""
    home, places = state.scout.home, learner.reference
    if not places or not learner.scouting:
        return jnp.zeros(()), jnp.asarray(False)
    reference = row(state.members.reference, home)
    # The places that were scored last, so that scores are those of the cluster as it is.
    newest = state.iteration * learner.rescored - 1 - jnp.arange(min(COMPARED, places))
    kept, scores, usable = row(
        (reference.sample.tasks, reference.scores.whole, reference.known), newest % places
    )
    tasks = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), kept, batch)
    _, of_inputs = state.inputs.log_densities(*described(learner, tasks))
    lead = judge(learner, state.scout.params, tasks).whole + of_inputs[:, home]
    lead = lead / examples(tasks) - jnp.concatenate([scores, seen.scores.whole[home]])
    ordinary, lead = lead[: scores.size], lead[scores.size :]
    counted = seen.best[:, home] & judged[home] & (jnp.sum(usable) >= COMPARED // 3)
    won = jnp.sum(jnp.where(counted, winnings(lead, ordinary, usable), 0))
    return won, jnp.any(counted)


def scouted(
    learner: OnlineSettings, state: OnlineState, batch: TaskBatch, seen: EStep, real: Array
) -> Scout:
    """The scout after it has learned from the batch."""
    scout = state.scout
    if not learner.scouting:
        return scout
    home = jnp.argmax(jnp.where(state.alive, seen.weights[:-1], -1))
    averaged = row(state.members.averaged, home)
    moved = home != scout.home
    fresh = learner.scout_at(averaged, home)
    params = jax.tree.map(
        lambda own, back: jnp.where(moved, back, own + SCOUT_RETURN * (back - own)),
        scout.params,
        averaged,
    )
    optimiser = jax.tree.map(
        lambda old, new: jnp.where(moved, new, old), scout.optimiser, fresh.optimiser
    )
    quick = Rehearsal(learner.scouting, 0)
    params, optimiser, _ = quick(
        learner.task_model,
        learner.optimiser(SCOUT_HASTE),
        params,
        optimiser,
        batch,
        real.astype(seen.density.dtype),
        None,
        jax.random.key(0),
    )
    return Scout(params, optimiser, home)
