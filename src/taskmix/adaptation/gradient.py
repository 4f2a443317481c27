"""From a cluster to the parameters of one task: a few gradient steps on its support set."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from taskmix.adaptation.task_model import TaskResult
from taskmix.likelihood import Likelihood, masked_mean
from taskmix.machine import threads
from taskmix.models import Model
from taskmix.tasks import Examples, TaskBatch

MOST_STEPS = 500
"""Every step is compiled on its own: more would take an hour before the first batch."""


@dataclasses.dataclass(frozen=True)
class Adaptation:
    """K gradient steps, phi_k = phi_{k-1} - rate * clip(grad L_support(phi_{k-1})).

    A cluster adapted to tasks that are foreign to it can diverge after several steps;
    clipping the global norm keeps the step finite and, being a rescaling, keeps its
    direction. An infinite norm does not clip.
    """

    steps: int = 5
    rate: float = 0.01
    clip: float = 10.0
    first_order: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.steps <= MOST_STEPS:
            raise ValueError(f"steps is {self.steps}; it must be 0 to {MOST_STEPS}.")
        for name in ("rate", "clip"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be positive.")

    def __call__(
        self,
        model: Model,
        likelihood: Likelihood,
        params: PyTree,
        support: Examples,
        transform: Callable[[PyTree], PyTree] | None = None,
    ) -> PyTree:
        """Parameters of one task, differentiable in ``params``.

        With ``transform`` each gradient, which has None for what is not adapted, is
        transformed before it is clipped.
        """
        fast, slow = eqx.partition(params, model.adaptable(params))
        gradient = jax.grad(
            lambda fast: task_loss(model, likelihood, eqx.combine(fast, slow), support)
        )
        for _ in range(self.steps):
            step = gradient(fast)
            if self.first_order:
                step = jax.lax.stop_gradient(step)
            if transform is not None:
                step = transform(step)
            scale = self.rate * clip_scale(step, self.clip)
            fast = jax.tree.map(lambda p, g, s=scale: p - s * g, fast, step)
        return eqx.combine(fast, slow)


def meta_optimiser(rate: float, anneal_over: int = 0) -> optax.GradientTransformation:
    """Adam for initialisations; its rate falls to zero along a cosine if there is an end.

    A stream that may go on for ever has none: 0 keeps the rate.
    """
    if anneal_over < 0:
        raise ValueError(f"anneal_over is {anneal_over}; it must be 0 (never) or more.")
    return optax.adam(optax.cosine_decay_schedule(rate, anneal_over) if anneal_over else rate)


def meta_gradient(
    model: Model,
    likelihood: Likelihood,
    adaptation: Adaptation,
    params: PyTree,
    batch: TaskBatch,
) -> tuple[PyTree, TaskResult]:
    """Gradient of the mean query loss after adaptation, and what each task came to."""
    judge = partial(adapted_loss, model, likelihood, adaptation)
    return mean_gradient(model, judge, params, batch.support, batch.query)


def meta_gradient_moments(
    model: Model,
    likelihood: Likelihood,
    adaptation: Adaptation,
    params: PyTree,
    batch: TaskBatch,
) -> tuple[PyTree, PyTree, TaskResult]:
    """Means over the tasks of their own meta-gradients and of the squares of these."""
    task_gradient = jax.grad(partial(adapted_loss, model, likelihood, adaptation), has_aux=True)

    def moments(
        params: PyTree, support: Examples, query: Examples
    ) -> tuple[tuple[PyTree, PyTree], TaskResult]:
        gradient, result = task_gradient(params, support, query)
        return (gradient, jax.tree.map(jnp.square, gradient)), result

    (mean, squares), results = mean_of_gradients(
        model, moments, params, (batch.support, batch.query)
    )
    return mean, squares, results


def adapted_loss(
    model: Model,
    likelihood: Likelihood,
    adaptation: Adaptation,
    params: PyTree,
    support: Examples,
    query: Examples,
) -> tuple[Float[Array, ""], TaskResult]:
    """Query loss of one task after adaptation to its support set, and all it came to."""
    adapted = adaptation(model, likelihood, params, support)
    result = query_result(likelihood, model.apply(adapted, query.x, query.mask), query)
    return result.loss, result


def query_result(likelihood: Likelihood, outputs: Array, query: Examples) -> TaskResult:
    """How good a network's outputs for the query of one task are."""
    loss = masked_mean(likelihood.loss(outputs, query.y), query.mask)
    return TaskResult(loss, likelihood.predictive(outputs))


def mean_gradient(
    model: Model,
    judge: Callable[..., tuple[Float[Array, ""], Any]],
    params: PyTree,
    *tasks: PyTree,
) -> tuple[PyTree, Any]:
    """Gradient of the tasks' mean loss, and what else each task came to.

    ``judge`` takes the parameters and one row of each of ``tasks``, and gives the loss that
    is differentiated and the rest.
    """
    if model.one_at_a_time:
        return one_after_the_other(jax.grad(judge, has_aux=True), params, tasks)

    def objective(params: PyTree) -> tuple[Float[Array, ""], Any]:
        losses, results = jax.vmap(partial(judge, params))(*tasks)
        return jnp.mean(losses), results

    return jax.grad(objective, has_aux=True)(params)


def mean_of_gradients(
    model: Model,
    task_gradient: Callable[..., tuple[PyTree, Any]],
    params: PyTree,
    tasks: tuple[PyTree, ...],
) -> tuple[PyTree, Any]:
    """The mean of gradients that are taken task by task, and what else each task came to.

    For what is done with a task's own gradient before it goes into the mean; where nothing
    is, ``mean_gradient`` differentiates all tasks at once.
    """
    if model.one_at_a_time:
        return one_after_the_other(task_gradient, params, tasks)
    each, results = jax.vmap(partial(task_gradient, params))(*tasks)
    return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), each), results


def one_after_the_other(
    task_gradient: Callable[..., tuple[PyTree, Any]], params: PyTree, tasks: tuple[PyTree, ...]
) -> tuple[PyTree, Any]:
    """The mean of the tasks' gradients, each differentiated before the next but one is begun.

    ``task_gradient`` takes the parameters and one row of each of ``tasks``. What else it
    gives gets an axis of tasks. Where there are two threads, two turns of the loop are compiled
    as one: what they do does not depend on each other, so that threads can share it. For a
    single one that costs up to a fifth of the time.
    """
    first = jax.tree.map(lambda leaf: leaf[0], tasks)
    shapes, _ = jax.eval_shape(task_gradient, params, *first)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def add(total: PyTree, task: tuple[PyTree, ...]) -> tuple[PyTree, Any]:
        gradient, result = task_gradient(params, *task)
        return jax.tree.map(jnp.add, total, gradient), result

    total, results = jax.lax.scan(add, nothing, tasks, unroll=min(2, threads()))
    count = jax.tree.leaves(tasks)[0].shape[0]
    return jax.tree.map(lambda leaf: leaf / count, total), results


def task_loss(
    model: Model, likelihood: Likelihood, params: PyTree, examples: Examples
) -> Float[Array, ""]:
    """Mean loss of one task's real examples."""
    outputs = model.apply(params, examples.x, examples.mask)
    return masked_mean(likelihood.loss(outputs, examples.y), examples.mask)


def clip_scale(gradient: PyTree, norm: float) -> Float[Array, ""]:
    """What to multiply a gradient by so that its global norm is at most ``norm``."""
    if math.isinf(norm):
        return jnp.ones(())
    squared = optax.tree_utils.tree_norm(gradient, squared=True)
    # The derivative of sqrt at 0 is infinite, and a task may be fitted exactly.
    size = jnp.sqrt(jnp.maximum(squared, norm**2))
    return norm / size
