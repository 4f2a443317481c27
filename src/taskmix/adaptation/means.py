"""Gradients and numbers of many tasks, made one: means over those that are not padding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from taskmix.adaptation.task_model import Paced, TaskResult
from taskmix.likelihood import Likelihood, masked_mean
from taskmix.machine import threads
from taskmix.spread import mean_over_tasks
from taskmix.tasks import Examples, TaskBatch


def query_result(likelihood: Likelihood, outputs: Array, query: Examples) -> TaskResult:
    """How good a network's outputs for the query of one task are."""
    loss = masked_mean(likelihood.loss(outputs, query.y), query.mask)
    return TaskResult(loss, likelihood.predictive(outputs))


def query_errors(
    likelihood: Likelihood, predicted: Float[Array, "tasks query outputs"], batch: TaskBatch
) -> Float[Array, " tasks"]:
    """Error of each task's prediction; NaN for padding."""
    errors = masked_mean(likelihood.error(predicted, batch.query.y), batch.query.mask)
    return jnp.where(batch.real, errors, jnp.nan)


def task_weights(batch: TaskBatch) -> Float[Array, " tasks"]:
    """1 for every task, 0 for padding."""
    return batch.real.astype(float)


def mean_gradient(
    paced: Paced,
    task_loss: Callable[..., tuple[Float[Array, ""], Any]],
    params: PyTree,
    *tasks: PyTree,
    weights: Float[Array, " tasks"],
    task_losses: Callable[..., tuple[Float[Array, " tasks"], Any]] | None = None,
) -> tuple[PyTree, Any]:
    """Gradient of sum_j w_j loss_j / sum_j w_j, and what else each task came to.

    ``task_loss`` takes the parameters and one row of each of ``tasks``, and gives the loss that
    is differentiated and the rest; ``task_losses`` does the same for all rows at once, where
    there is a cheaper way. Devices that share a run share the tasks.
    """
    if paced.one_at_a_time:
        return one_after_the_other(jax.grad(task_loss, has_aux=True), params, tasks, weights)

    def mean(tasks: tuple[PyTree, ...], weights: Float[Array, " some"]) -> tuple[PyTree, Any]:
        def objective(params: PyTree) -> tuple[Float[Array, ""], Any]:
            every = task_losses or jax.vmap(task_loss, (None, *(0 for _ in tasks)))
            losses, results = every(params, *tasks)
            return weighted_mean(losses, weights), results

        found: tuple[PyTree, Any] = jax.grad(objective, has_aux=True)(params)
        return found

    return mean_over_tasks(mean, tasks, weights)


def weighted_mean(
    values: Float[Array, "tasks ..."], weights: Float[Array, " tasks"]
) -> Float[Array, ...]:
    """sum_j w_j v_j / sum_j w_j; what has the weight 0 may be anything. 0 if all have."""
    each = weights.reshape(weights.shape + (1,) * (values.ndim - 1))
    total = jnp.sum(jnp.where(each > 0, each * jnp.where(each > 0, values, 0), 0), axis=0)
    return total / total_weight(weights)


def total_weight(weights: Float[Array, " tasks"]) -> Float[Array, ""]:
    """What a weighted sum has to be divided by to be a mean: 1 if there is no weight at all."""
    total = jnp.sum(weights)
    return jnp.where(total > 0, total, 1)


def mean_of_gradients(
    paced: Paced,
    task_gradient: Callable[..., tuple[PyTree, Any]],
    params: PyTree,
    tasks: tuple[PyTree, ...],
    weights: Float[Array, " tasks"],
) -> tuple[PyTree, Any]:
    """The mean of gradients that are taken task by task, and what else each task came to.

    For what is done with a task's own gradient before it goes into the mean; where nothing
    is, ``mean_gradient`` differentiates all tasks at once.
    """
    if paced.one_at_a_time:
        return one_after_the_other(task_gradient, params, tasks, weights)

    def mean(tasks: tuple[PyTree, ...], weights: Float[Array, " some"]) -> tuple[PyTree, Any]:
        each, results = jax.vmap(partial(task_gradient, params))(*tasks)
        return jax.tree.map(lambda leaf: weighted_mean(leaf, weights), each), results

    return mean_over_tasks(mean, tasks, weights)


def one_after_the_other(
    task_gradient: Callable[..., tuple[PyTree, Any]],
    params: PyTree,
    tasks: tuple[PyTree, ...],
    weights: Float[Array, " tasks"],
) -> tuple[PyTree, Any]:
    """The weighted mean of the tasks' gradients, of which few are in memory at a time.

    ``task_gradient`` takes the parameters and one row of each of ``tasks``. What else it
    gives gets an axis of tasks. Where there are two threads, two turns of the loop are compiled
    as one: what they do does not depend on each other, so that threads can share it. For a
    single one that costs up to a fifth of the time.
    """
    first = jax.tree.map(lambda leaf: leaf[0], tasks)
    shapes, _ = jax.eval_shape(task_gradient, params, *first)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def add(total: PyTree, row: tuple[Float[Array, ""], tuple[PyTree, ...]]) -> tuple[PyTree, Any]:
        weight, task = row
        gradient, result = task_gradient(params, *task)
        total = jax.tree.map(
            lambda sum_, leaf: sum_ + jnp.where(weight > 0, weight * leaf, 0), total, gradient
        )
        return total, result

    def mean(tasks: tuple[PyTree, ...], weights: Float[Array, " some"]) -> tuple[PyTree, Any]:
        total, results = jax.lax.scan(add, nothing, (weights, tasks), unroll=min(2, threads()))
        return jax.tree.map(lambda leaf: leaf / total_weight(weights), total), results

    return mean_over_tasks(mean, tasks, weights)
