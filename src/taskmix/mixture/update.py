"""The M-step: move clusters along the meta-gradient of the tasks they answer for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from taskmix.adaptation import TaskModel, TaskResult
from taskmix.adaptation.means import task_weights, total_weight, weighted_mean
from taskmix.adaptation.task_model import Paced, over_rows
from taskmix.mixture.clusters import Clusters
from taskmix.mixture.responsibilities import Assessment, assessed
from taskmix.tasks import Examples, TaskBatch

TaskLosses = Callable[[PyTree], Float[Array, " tasks"]]


def query_losses(task_model: TaskModel, batch: TaskBatch) -> TaskLosses:
    """The loss of every task as a function of one cluster's parameters."""

    def losses(params: PyTree) -> Float[Array, " tasks"]:
        def one(support: Examples, query: Examples) -> Float[Array, ""]:
            return task_model.loss(params, support, query)[0]

        return over_rows(task_model, one)(batch.support, batch.query)

    return losses


def update_each(
    paced: Paced,
    clusters: Clusters,
    losses: TaskLosses,
    weights: Float[Array, "tasks clusters"],
    real: Bool[Array, " tasks"],
    optimiser: optax.GradientTransformation,
    chosen: Bool[Array, " clusters"],
) -> Clusters:
    """One optimiser per cluster, responsibilities held fixed.

    Cluster l minimises (1/J) sum_j gamma_jl * loss_j(theta_l) over the J ``real`` tasks. A
    cluster that is not chosen keeps its parameters and its optimiser state, bit for bit.
    """
    weights = jax.lax.stop_gradient(weights)
    each = real.astype(weights.dtype)

    def one(params: PyTree, state: PyTree, weight: Float[Array, " tasks"]) -> tuple[PyTree, PyTree]:
        gradient = jax.grad(lambda p: weighted_mean(weighted(weight, losses(p)), each))(params)
        updates, state = optimiser.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    params, states = over_rows(paced, one)(clusters.params, clusters.optimiser, weights.T)
    return clusters.replaced(Clusters(params, states, clusters.alive), chosen & clusters.alive)


def gradient_of_each(
    task_model: TaskModel, params: PyTree, support: Examples, query: Examples
) -> tuple[PyTree, Assessment]:
    """Gradient of one task's loss in each cluster, and all it comes to there."""

    def one(cluster: PyTree) -> tuple[PyTree, Assessment]:
        loss = partial(assessed, task_model)
        return jax.grad(loss, has_aux=True)(cluster, support, query)

    return over_rows(task_model, one, unroll=True)(params)


def gradient_of_drawn(
    task_model: TaskModel, params: PyTree, batch: TaskBatch, drawn: Int[Array, " tasks"]
) -> tuple[PyTree, TaskResult]:
    """Gradient of (1/J) sum_j loss_j(theta_{drawn_j}), stacked like ``params``, and the tasks.

    J counts the tasks that are not padding.
    """
    weights = task_weights(batch)

    def add(
        total: PyTree, task: tuple[Int[Array, ""], Float[Array, ""], Examples, Examples]
    ) -> tuple[PyTree, TaskResult]:
        cluster, weight, support, query = task
        own = jax.tree.map(lambda leaf: leaf[cluster], params)
        gradient, result = jax.grad(task_model.loss, has_aux=True)(own, support, query)
        total = jax.tree.map(
            lambda rows, one: rows.at[cluster].add(jnp.where(weight > 0, one, 0)), total, gradient
        )
        return total, result

    nothing = jax.tree.map(jnp.zeros_like, params)
    total, results = jax.lax.scan(add, nothing, (drawn, weights, batch.support, batch.query))
    return jax.tree.map(lambda leaf: leaf / total_weight(weights), total), results


def update_one(
    clusters: Clusters,
    index: Int[Array, ""],
    gradient: PyTree,
    optimiser: optax.GradientTransformation,
    size: Float[Array, ""],
    where: Bool[Array, ""],
) -> Clusters:
    """Move one cluster by ``size`` times its optimiser's step, if ``where``."""
    params, state = clusters.take(index)
    updates, state = optimiser.update(gradient, state, params)
    params = jax.tree.map(lambda p, u: p + size * u, params, updates)
    return clusters.put(index, params, state, where)


def weighted(
    weights: Float[Array, "*shape"], losses: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """weights * losses, where a weight of 0 silences even a loss that is not finite."""
    return jnp.where(weights > 0, weights * jnp.where(weights > 0, losses, 0), 0)
