"""The E-step: adapt every cluster to every task and ask which one explains it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from taskmix.adaptation import TaskModel
from taskmix.adaptation.task_model import Paced, Predictive, over_rows
from taskmix.tasks import Examples, TaskBatch


class Assessment(eqx.Module):
    """What a task comes to in a cluster, and what the cluster makes of its support set."""

    loss: Float[Array, "*tasks"]
    predicted: Float[Array, "*tasks query outputs"]
    evidence: Float[Array, "*tasks"]


def assessments(
    task_model: TaskModel,
    params: PyTree,
    batch: TaskBatch,
    alive: Bool[Array, " clusters"] | None = None,
) -> Assessment:
    """What each task comes to in each cluster (leading axis of ``params``): axes (task, cluster).

    What a cluster that is not ``alive`` came to means nothing; by default all are.
    """

    def all_tasks(cluster: PyTree) -> Assessment:
        def one(support: Examples, query: Examples) -> Assessment:
            return assessed(task_model, cluster, support, query)[1]

        return over_rows(task_model, one)(batch.support, batch.query)

    found = for_each_cluster(task_model, all_tasks, params, alive)
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), found)


def assessed(
    task_model: TaskModel, params: PyTree, support: Examples, query: Examples
) -> tuple[Float[Array, ""], Assessment]:
    """Loss of one task in one cluster, and all it comes to."""
    loss, result = task_model.loss(params, support, query)
    evidence = result.evidence
    if evidence is None:
        evidence = task_model.evidence(params, support)
    return loss, Assessment(result.loss, result.predicted, evidence)


def foreseen(
    task_model: TaskModel,
    params: PyTree,
    support: Examples,
    query_x: Array,
    query_mask: Bool[Array, " query"] | None,
) -> tuple[Float[Array, ""], Predictive]:
    """Evidence of one support set under one cluster, and what it predicts from it."""
    posterior = task_model.adapt(params, support)
    predictive = task_model.predict(posterior, query_x, query_mask)
    return task_model.evidence(params, support), predictive


def for_each_cluster(
    paced: Paced,
    function: Callable[[PyTree], Any],
    params: PyTree,
    alive: Bool[Array, " clusters"] | None,
) -> Any:
    """``function`` of every cluster; what it gives for a dead one means nothing.

    Clusters that are gone through one after the other cost nothing while they are dead.
    Where all are alive for good, the loop is unrolled: that takes longer to compile, but the
    gradient of a loop has to copy what every turn leaves behind.
    """
    if not paced.one_at_a_time:
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


def mixed(
    weights: Float[Array, " clusters"], predictive: Predictive
) -> tuple[Float[Array, "query outputs"] | None, Float[Array, "query outputs"] | None]:
    """Variance and noise of a mixture, None where the clusters do not know theirs.

    The variance is that within the clusters plus their disagreement.
    """
    if predictive.variance is None or predictive.noise is None:
        return None, None
    return spread(weights, predictive.mean, predictive.variance), mix(weights, predictive.noise)


def spread(
    weights: Float[Array, " clusters"],
    predicted: Float[Array, "clusters query outputs"],
    variance: Float[Array, "clusters query outputs"],
) -> Float[Array, "query outputs"]:
    """Variance of the mixture: that within the clusters plus disagreement between them."""
    deviation = jnp.square(predicted - mix(weights, predicted)[None])
    return mix(weights, variance + deviation)
