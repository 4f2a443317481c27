"""The M-step: move clusters along the meta-gradient of the tasks they answer for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from taskmix.adaptation import Adaptation, TaskResult, adapted_loss, query_result, task_loss
from taskmix.likelihood import Likelihood
from taskmix.mixture.clusters import Clusters
from taskmix.mixture.responsibilities import fit
from taskmix.models import Model, for_each
from taskmix.tasks import Examples, TaskBatch

TaskLosses = Callable[[PyTree], Float[Array, " tasks"]]


def query_losses(
    model: Model, likelihood: Likelihood, adaptation: Adaptation, batch: TaskBatch
) -> TaskLosses:
    """The query loss of every task as a function of one cluster's parameters."""

    def losses(params: PyTree) -> Float[Array, " tasks"]:
        def one(support: Examples, query: Examples) -> Float[Array, ""]:
            adapted = adaptation(model, likelihood, params, support)
            return task_loss(model, likelihood, adapted, query)

        return for_each(model, one)(batch.support, batch.query)

    return losses


def update_each(
    model: Model,
    clusters: Clusters,
    losses: TaskLosses,
    weights: Float[Array, "tasks clusters"],
    optimiser: optax.GradientTransformation,
    chosen: Bool[Array, " clusters"],
) -> Clusters:
    """One optimiser per cluster, responsibilities held fixed.

    Cluster l minimises (1/J) sum_j gamma_jl * loss_j(theta_l). A cluster that is not
    chosen keeps its parameters and its optimiser state, bit for bit.
    """
    weights = jax.lax.stop_gradient(weights)

    def one(params: PyTree, state: PyTree, weight: Float[Array, " tasks"]) -> tuple:
        gradient = jax.grad(lambda p: jnp.mean(weighted(weight, losses(p))))(params)
        updates, state = optimiser.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    params, states = for_each(model, one)(clusters.params, clusters.optimiser, weights.T)
    return clusters.replaced(Clusters(params, states, clusters.alive), chosen & clusters.alive)


def gradient_of_each(
    model: Model,
    likelihood: Likelihood,
    adaptation: Adaptation,
    params: PyTree,
    support: Examples,
    query: Examples,
) -> tuple[PyTree, TaskResult, Float[Array, " clusters"]]:
    """Gradient of one task's query loss in each cluster, its result, and its support's fit."""

    def one(cluster: PyTree) -> tuple[PyTree, TaskResult, Float[Array, ""]]:
        def loss(cluster: PyTree) -> tuple[Float[Array, ""], tuple[TaskResult, PyTree]]:
            adapted = adaptation(model, likelihood, cluster, support)
            outputs = model.apply(adapted, query.x, query.mask)
            result = query_result(likelihood, outputs, query)
            return result.loss, (result, adapted)

        gradient, (result, adapted) = jax.grad(loss, has_aux=True)(cluster)
        return gradient, result, fit(model, likelihood, adapted, support)

    return for_each(model, one, unroll=True)(params)


def gradient_of_drawn(
    model: Model,
    likelihood: Likelihood,
    adaptation: Adaptation,
    params: PyTree,
    batch: TaskBatch,
    drawn: Int[Array, " tasks"],
) -> tuple[PyTree, TaskResult]:
    """Gradient of (1/J) sum_j loss_j(theta_{drawn_j}), stacked like ``params``, and the tasks."""
    loss = partial(adapted_loss, model, likelihood, adaptation)

    def add(
        total: PyTree, task: tuple[Int[Array, ""], Examples, Examples]
    ) -> tuple[PyTree, TaskResult]:
        cluster, support, query = task
        own = jax.tree.map(lambda leaf: leaf[cluster], params)
        gradient, result = jax.grad(loss, has_aux=True)(own, support, query)
        return jax.tree.map(lambda rows, one: rows.at[cluster].add(one), total, gradient), result

    nothing = jax.tree.map(jnp.zeros_like, params)
    total, results = jax.lax.scan(add, nothing, (drawn, batch.support, batch.query))
    return jax.tree.map(lambda leaf: leaf / drawn.shape[0], total), results


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
