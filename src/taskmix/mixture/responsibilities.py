"""The E-step: adapt every cluster to every task and ask which one explains it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from taskmix.adaptation import Adaptation
from taskmix.likelihood import Likelihood, masked_mean
from taskmix.models import Model, for_each
from taskmix.tasks import Examples, TaskBatch


class Judgement(eqx.Module):
    """How the clusters did on the tasks of a batch, after adaptation to their support sets."""

    support_log_likelihood: Float[Array, "*tasks_clusters"]
    query_loss: Float[Array, "*tasks_clusters"]
    predicted: Float[Array, "*tasks_clusters query outputs"]


def judge(
    model: Model,
    likelihood: Likelihood,
    adaptation: Adaptation,
    params: PyTree,
    batch: TaskBatch,
    alive: Bool[Array, " clusters"] | None = None,
) -> Judgement:
    """Adapt each cluster (leading axis of ``params``) to each task and score it.

    What a cluster that is not ``alive`` came to means nothing; by default all are.
    """

    def one(cluster: PyTree, support: Examples, query: Examples) -> Judgement:
        adapted = adaptation(model, likelihood, cluster, support)
        outputs = model.apply(adapted, query.x, query.mask)
        return Judgement(
            support_log_likelihood=fit(model, likelihood, adapted, support),
            query_loss=masked_mean(likelihood.loss(outputs, query.y), query.mask),
            predicted=likelihood.predictive(outputs),
        )

    def all_tasks(cluster: PyTree) -> Judgement:
        return for_each(model, partial(one, cluster))(batch.support, batch.query)

    judged = for_each_cluster(model, all_tasks, params, alive)
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), judged)


def support_log_likelihood(
    model: Model,
    likelihood: Likelihood,
    adaptation: Adaptation,
    params: PyTree,
    support: Examples,
    alive: Bool[Array, " clusters"],
) -> Float[Array, "tasks clusters"]:
    """How well each cluster fits each support set, the part of ``judge`` that needs no query."""

    def one(cluster: PyTree, support: Examples) -> Float[Array, ""]:
        adapted = adaptation(model, likelihood, cluster, support)
        return fit(model, likelihood, adapted, support)

    def all_tasks(cluster: PyTree) -> Float[Array, " tasks"]:
        return for_each(model, partial(one, cluster))(support)

    return for_each_cluster(model, all_tasks, params, alive).T


def fit(
    model: Model, likelihood: Likelihood, adapted: PyTree, support: Examples
) -> Float[Array, ""]:
    """Log-likelihood of one support set after adaptation to it."""
    each = likelihood.log_likelihood(model.apply(adapted, support.x, support.mask), support.y)
    return jnp.sum(jnp.where(support.mask, each, 0))


def for_each_cluster(
    model: Model,
    function: Callable[[PyTree], Any],
    params: PyTree,
    alive: Bool[Array, " clusters"] | None,
) -> Any:
    """``function`` of every cluster; what it gives for a dead one means nothing.

    Clusters that are gone through one after the other cost nothing while they are dead.
    Where all are alive for good, the loop is unrolled: that takes longer to compile, but the
    gradient of a loop has to copy what every turn leaves behind.
    """
    if not model.one_at_a_time:
        return jax.vmap(function)(params)
    if alive is None:
        count = jax.tree.leaves(params)[0].shape[0]
        each = [function(jax.tree.map(lambda leaf, c=c: leaf[c], params)) for c in range(count)]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)

    def living(row: tuple[PyTree, Bool[Array, ""]]) -> Any:
        cluster, exists = row
        shapes = jax.eval_shape(function, cluster)
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return jax.lax.cond(exists, function, lambda _: nothing, cluster)

    return jax.lax.map(living, (params, alive))


def responsibilities(
    log_joint: Float[Array, "*tasks clusters"],
    alive: Bool[Array, " clusters"],
    temperature: float = 1.0,
) -> Float[Array, "*tasks clusters"]:
    """softmax(v / temperature) over the clusters that are alive.

    A cluster whose adaptation diverged (v not finite) takes nothing; where all of them
    diverged, the task is shared equally.
    """
    usable = alive & jnp.isfinite(log_joint)
    usable = jnp.where(jnp.any(usable, axis=-1, keepdims=True), usable, alive)
    # Replace before the softmax as well as after it: its gradient must not see the dead.
    scores = jnp.where(usable & jnp.isfinite(log_joint), log_joint, 0) / temperature
    return jax.nn.softmax(jnp.where(usable, scores, -jnp.inf), axis=-1)


def mix(
    weights: Float[Array, "*tasks clusters"],
    predicted: Float[Array, "*tasks clusters query outputs"],
) -> Float[Array, "*tasks query outputs"]:
    """The mixture mean. A cluster whose prediction is not finite has no say in it."""
    finite = jnp.all(jnp.isfinite(predicted), axis=(-2, -1)) | (weights == 0)
    weights = jnp.where(finite, weights, 0)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    # Where nothing was left out the weights stay as they are, bit for bit.
    weights = jnp.where(jnp.all(finite, axis=-1, keepdims=True), weights, weights / total)
    weights = weights[..., None, None]
    return jnp.sum(jnp.where(weights > 0, weights * predicted, 0), axis=-3)


def spread(
    weights: Float[Array, " clusters"],
    predicted: Float[Array, "clusters query outputs"],
    noise: Float[Array, " clusters"],
) -> Float[Array, "query outputs"]:
    """Variance of the mixture: noise within the clusters plus disagreement between them."""
    deviation = jnp.square(predicted - mix(weights, predicted)[None])
    return mix(weights, noise[:, None, None] + deviation)
