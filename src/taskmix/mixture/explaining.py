"""The E-step: how well every cluster explains every task, and what the mixture predicts."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from taskmix.adaptation import Judgement, Predictive
from taskmix.adaptation.task_model import over_rows
from taskmix.likelihood import Categorical, input_statistics, masked_mean
from taskmix.mixture.inputs import SUPPORT, WHOLE, Description
from taskmix.mixture.members import of_living, row
from taskmix.mixture.reference import Reference, Scores
from taskmix.mixture.settings import OnlineSettings
from taskmix.mixture.state import EStep, OnlineState
from taskmix.mixture.widths import Widths
from taskmix.prediction import Mix
from taskmix.tasks import TaskBatch

WORST = -1e30
"""Evidence of what diverged."""
UNLIKE = -3.0
"""Typicality, in nats, below which a task is nobody's sample of anything."""
LEAST_COUNT = 0.1
DOUBT = -4.0
"""Least typicality, in nats, that a support set has for its cluster when a prediction is asked for:
what is a little unlike a cluster's tasks is predicted better by it than by nothing at all."""
ROUNDS = 3
"""Rounds of EM for the mixing weights of a batch."""
BLANK_PRIOR = -2.0
"""Logarithm of the background's weight beside that of a cluster, when a task comes alone."""


def judge(learner: OnlineSettings, params: PyTree, tasks: TaskBatch) -> Judgement:
    """Every task under one cluster, with what is not a number as bad as can be."""
    of_tasks = over_rows(learner.task_model, partial(learner.task_model.judge, params))
    judged = of_tasks(tasks.support, tasks.query)
    return Judgement(usable(judged.support), usable(judged.whole), judged.predictive)


def of_each(
    learner: OnlineSettings, tasks: TaskBatch
) -> tuple[Float[Array, "tasks examples statistics"], Bool[Array, "tasks examples"]]:
    """Statistics of every input, those of support sets first, and which inputs are real."""
    x = jnp.concatenate([tasks.support.x, tasks.query.x], axis=1)
    mask = jnp.concatenate([tasks.support.mask, tasks.query.mask], axis=1)
    # Networks of images have tasks one after the other, and so has what describes the images.
    describe = over_rows(learner.task_model, partial(input_statistics, learner.likelihood))
    return describe(x[:, :, None], mask[..., None]), mask


def described(learner: OnlineSettings, tasks: TaskBatch) -> tuple[Array, Array]:
    """Statistics of the inputs of support sets, and of whole tasks."""
    each, mask = of_each(learner, tasks)
    columns = jnp.moveaxis(each, -1, 0)
    known = tasks.support.mask.shape[1]
    means = masked_mean(columns[..., :known], mask[:, :known]), masked_mean(columns, mask)
    support, whole = (jnp.moveaxis(one, 0, -1) for one in means)
    return support, whole


def description(learner: OnlineSettings, tasks: TaskBatch) -> Description:
    """What the inputs of tasks look like, and how much that varies with the classes in a task."""
    each, mask = of_each(learner, tasks)
    count = mask.shape[1]
    kind = jnp.broadcast_to(jnp.arange(count), mask.shape)
    if isinstance(learner.likelihood, Categorical):
        kind = jnp.concatenate([tasks.support.y, tasks.query.y], axis=1)
    return Description.of(
        each, kind, mask & (jnp.arange(count) < tasks.support.mask.shape[1]), mask
    )


def of_inputs(
    learner: OnlineSettings, state: OnlineState, tasks: TaskBatch
) -> Float[Array, "tasks rows"]:
    """Log-density of the inputs of whole tasks under every member, and last the background."""
    return state.inputs.log_density(described(learner, tasks)[1], WHOLE)


def explained(learner: OnlineSettings, state: OnlineState, batch: TaskBatch, real: Array) -> EStep:
    """Evidence, mixing weights of the batch, responsibilities per task."""
    members, clusters = state.members, state.alive.size
    living = jnp.append(state.alive, True)
    judged = of_living(lambda index: judge(learner, row(members.averaged, index), batch), living)
    judged = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), judged)
    blank = jax.vmap(partial(state.background.judge, learner.likelihood))(
        batch.support, batch.query
    )
    inputs = description(learner, batch)
    of_support = state.inputs.log_density(inputs.mean[:, SUPPORT], SUPPORT)
    of_whole = state.inputs.log_density(inputs.mean[:, WHOLE], WHOLE)
    judged = dataclasses.replace(
        judged,
        support=jnp.where(living, judged.support + of_support[:, :-1], -jnp.inf),
        whole=jnp.where(living, judged.whole + of_whole[:, :-1], -jnp.inf),
    )
    blank = dataclasses.replace(
        blank, support=blank.support + of_support[:, -1], whole=blank.whole + of_whole[:, -1]
    )
    count = examples(batch)
    seen = jnp.maximum(batch.support.count(), 1)
    scores = Scores(judged.whole.T / count, judged.support.T / seen)
    mature = jnp.append(learner.mature(state), False)
    unlike = jax.vmap(lambda one, score: one.whole_typicality(score, count))(
        members.reference, scores.whole
    ).T
    unlike = jnp.where(mature, unlike, 0)
    # Before anything is known, nothing can be said to be unlike it.
    void = jnp.where(jnp.any(mature), blank.whole, -jnp.inf)
    evidence = jnp.concatenate([(judged.whole + unlike)[:, :-1], void[:, None]], axis=1)
    prior = state.counts + LEAST_COUNT * jnp.append(state.alive, True)
    prior = prior / jnp.sum(prior)
    weights, shares = mixing(prior, evidence, real, learner.persistence)
    known = jnp.where(state.alive, judged.whole[:, :-1] + jnp.log(prior[:-1]), -jnp.inf)
    best = jnp.argmax(known, axis=-1)[:, None] == jnp.arange(clusters)
    ranks = jax.vmap(Reference.rank)(members.reference, scores.whole)
    return EStep(
        inputs=inputs,
        judged=judged,
        blank=blank,
        scores=scores,
        unlike=unlike,
        evidence=evidence,
        prior=prior,
        weights=weights,
        shares=shares,
        density=jax.nn.logsumexp(jnp.log(weights) + evidence, axis=-1),
        best=best & real[:, None],
        ranks=ranks[:-1].T,
    )


def routed(
    learner: OnlineSettings,
    state: OnlineState,
    evidence: Float[Array, " clusters"],
    blank: Float[Array, ""],
) -> Float[Array, " clusters_and_background"]:
    """Responsibilities of a task that comes alone, known by its support set only."""
    known = jnp.any(learner.mature(state))
    evidence = jnp.where(state.alive, evidence, -jnp.inf)
    void = jnp.where(known, blank + BLANK_PRIOR, -jnp.inf)
    return jax.nn.softmax(jnp.append(evidence, void))


def unlike_support(
    learner: OnlineSettings,
    state: OnlineState,
    scores: Float[Array, "clusters ..."],
    count: Int[Array, "*tasks"],
) -> Float[Array, "clusters ..."]:
    """How much less likely support sets are for being unlike each cluster's own, up to a bound."""
    references = row(state.members.reference, jnp.arange(state.alive.size))
    unlike = jax.vmap(lambda one, score: one.support_typicality(score, count))(references, scores)
    mature = learner.mature(state).reshape(-1, *[1] * (scores.ndim - 1))
    return jnp.where(mature, jnp.maximum(unlike, DOUBT), 0)


def voices(
    learner: OnlineSettings,
    state: OnlineState,
    evidence: Float[Array, " clusters"],
    weights: Float[Array, " clusters_and_background"],
) -> Float[Array, " clusters_and_background"]:
    """By which weights the prediction is mixed.

    The background knows a level and a spread of targets, but nothing about labels: the clusters
    speak about these even where they are out of their depth.
    """
    if isinstance(learner.likelihood, Categorical):
        return routed(learner, state, evidence, jnp.asarray(-jnp.inf))
    return weights


def predicted(
    learner: OnlineSettings, state: OnlineState, batch: TaskBatch, seen: EStep, real: Array
) -> tuple[Float[Array, " tasks"], OnlineState]:
    """The error that ``predict`` would have made, and what residuals say about widths."""
    count = jnp.maximum(batch.support.count(), 1)
    unlike = unlike_support(learner, state, seen.scores.support[:-1], count).T
    parts = jax.tree.map(lambda leaf: leaf[:, :-1], seen.judged.predictive)
    evidence = seen.judged.support[:, :-1] + unlike
    routes = jax.vmap(partial(routed, learner, state))(evidence, seen.blank.support)
    weights = jax.vmap(partial(voices, learner, state))(evidence, routes)
    mean, *_ = jax.vmap(partial(mixed, widths=state.widths))(weights, parts, seen.blank.predictive)
    error = masked_mean(learner.likelihood.error(mean, batch.query.y), batch.query.mask)
    error = jnp.where(real, error, jnp.nan)
    if parts.variance is None or seen.blank.predictive.variance is None:
        return error, state
    every = jax.tree.map(
        lambda part, void: jnp.concatenate([part, void[:, None]], axis=1),
        parts,
        seen.blank.predictive,
    )
    residuals = jnp.abs(batch.query.y[:, None] - every.mean) / jnp.sqrt(every.variance)
    # Strays do not say how wide the predictions of a cluster have to be for its own tasks: it has
    # to be in use, to have tasks in this batch, and not to lose the task to another cluster when
    # all of it is known. What nothing explains counts: these residuals are the large ones.
    held = jnp.sum(seen.shares, axis=0) / jnp.maximum(jnp.sum(real), 1)
    in_use = jnp.minimum(seen.weights, held) * jnp.sum(state.alive) >= 0.5
    lost = jnp.sum(seen.shares[:, :-1], axis=1, keepdims=True)
    lost = lost - seen.shares.at[:, -1].set(0) > 0.5
    own = (routes > 0.5) & in_use & ~lost & ~state.alarm.raised & real[:, None]
    widths = state.widths.observe(residuals, batch.query.mask, own)
    return error, dataclasses.replace(state, widths=widths)


def examples(tasks: TaskBatch) -> Int[Array, " tasks"]:
    """Examples of each task, at least 1."""
    return jnp.maximum(tasks.support.count() + tasks.query.count(), 1)


def usable(evidence: Float[Array, "*any"]) -> Float[Array, "*any"]:
    return jnp.where(jnp.isfinite(evidence), evidence, WORST)


def mixing(
    prior: Float[Array, " parts"],
    evidence: Float[Array, "tasks parts"],
    real: Bool[Array, " tasks"],
    persistence: float,
) -> tuple[Float[Array, " parts"], Float[Array, "tasks parts"]]:
    """Mixing weights of a batch by EM from those of the past, and responsibilities."""

    def shares(weights: Array) -> Array:
        return jax.nn.softmax(jnp.log(weights) + evidence, axis=-1) * real[:, None]

    weights = prior
    for _ in range(ROUNDS):
        weights = persistence * prior + jnp.sum(shares(weights), axis=0)
        weights = weights / jnp.sum(weights)
    return weights, shares(weights)


def mixed(
    weights: Float[Array, " clusters_and_background"],
    parts: Predictive,
    blank: Predictive,
    widths: Widths,
) -> tuple[Array, Array | None, Array | None, Mix | None]:
    """Mean, variance, noise and distribution of a mixture of predictions of one task.

    A part whose prediction is not finite has no say in it.
    """
    means = jnp.concatenate([parts.mean, blank.mean[None]])
    finite = jnp.all(jnp.isfinite(means), axis=(-2, -1))
    weights = jnp.where(finite, weights, 0)
    weights = weights / jnp.maximum(jnp.sum(weights), 1e-30)
    means = jnp.where(finite[:, None, None], means, 0)
    mean = jnp.tensordot(weights, means, axes=1)
    own, void = parts.variance, blank.variance
    if own is None or void is None or parts.noise is None or blank.noise is None:
        return mean, None, None, None
    variances = jnp.concatenate([own, void[None]])
    noises = jnp.concatenate([parts.noise, blank.noise[None]])
    variance = jnp.tensordot(weights, variances + jnp.square(means - mean), axes=1)
    noise = jnp.tensordot(weights, noises, axes=1)
    mix = Mix(weights, means, jnp.sqrt(jnp.maximum(variances, 1e-12)), widths.levels())
    return mean, variance, noise, mix
