"""From a cluster to the parameters of one task: a few gradient steps on its support set."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from taskmix.likelihood import Likelihood, masked_mean
from taskmix.models import Model
from taskmix.tasks import Examples, TaskBatch


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
        if self.steps < 0:
            raise ValueError(f"steps is {self.steps}; it must be 0 or more.")
        for name in ("rate", "clip"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be positive.")

    def __call__(
        self, model: Model, likelihood: Likelihood, params: PyTree, support: Examples
    ) -> PyTree:
        """Parameters of one task, differentiable in ``params``."""
        fast, slow = eqx.partition(params, model.adaptable(params))
        gradient = jax.grad(
            lambda fast: task_loss(model, likelihood, eqx.combine(fast, slow), support)
        )
        for _ in range(self.steps):
            step = gradient(fast)
            if self.first_order:
                step = jax.lax.stop_gradient(step)
            scale = self.rate * _clip_scale(step, self.clip)
            fast = jax.tree.map(lambda p, g, s=scale: p - s * g, fast, step)
        return eqx.combine(fast, slow)


class TaskResult(eqx.Module):
    """How a cluster did on the query set of a task, after adaptation to its support set."""

    loss: Float[Array, "*tasks"]
    predicted: Float[Array, "*tasks query outputs"]


def meta_gradient(
    model: Model,
    likelihood: Likelihood,
    adaptation: Adaptation,
    params: PyTree,
    batch: TaskBatch,
) -> tuple[PyTree, TaskResult]:
    """Gradient of the mean query loss after adaptation, and what each task came to."""
    judge = _judge(model, likelihood, adaptation)
    if model.one_at_a_time:
        nothing = jax.tree.map(jnp.zeros_like, params)
        return _one_after_the_other(jax.grad(judge, has_aux=True), params, batch, nothing)

    def objective(params: PyTree) -> tuple[Float[Array, ""], TaskResult]:
        losses, results = jax.vmap(judge, (None, 0, 0))(params, batch.support, batch.query)
        return jnp.mean(losses), results

    return jax.grad(objective, has_aux=True)(params)


def meta_gradient_moments(
    model: Model,
    likelihood: Likelihood,
    adaptation: Adaptation,
    params: PyTree,
    batch: TaskBatch,
) -> tuple[PyTree, PyTree, TaskResult]:
    """Means over the tasks of their own meta-gradients and of the squares of these."""
    task_gradient = jax.grad(_judge(model, likelihood, adaptation), has_aux=True)

    def moments(
        params: PyTree, support: Examples, query: Examples
    ) -> tuple[tuple[PyTree, PyTree], TaskResult]:
        gradient, result = task_gradient(params, support, query)
        return (gradient, jax.tree.map(jnp.square, gradient)), result

    if model.one_at_a_time:
        nothing = jax.tree.map(jnp.zeros_like, (params, params))
        (mean, squares), results = _one_after_the_other(moments, params, batch, nothing)
    else:
        each, results = jax.vmap(moments, (None, 0, 0))(params, batch.support, batch.query)
        mean, squares = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), each)
    return mean, squares, results


def _judge(
    model: Model, likelihood: Likelihood, adaptation: Adaptation
) -> Callable[[PyTree, Examples, Examples], tuple[Float[Array, ""], TaskResult]]:
    """From an initialisation and a task to its query loss after adaptation."""

    def judge(
        params: PyTree, support: Examples, query: Examples
    ) -> tuple[Float[Array, ""], TaskResult]:
        adapted = adaptation(model, likelihood, params, support)
        outputs = model.apply(adapted, query.x, query.mask)
        loss = masked_mean(likelihood.loss(outputs, query.y), query.mask)
        return loss, TaskResult(loss, likelihood.predictive(outputs))

    return judge


def _one_after_the_other(
    task_gradient: Callable[[PyTree, Examples, Examples], tuple[PyTree, TaskResult]],
    params: PyTree,
    batch: TaskBatch,
    nothing: PyTree,
) -> tuple[PyTree, TaskResult]:
    """The mean of the tasks' gradients, each differentiated before the next is begun.

    ``nothing`` is the zero of what ``task_gradient`` gives.
    """

    def add(total: PyTree, task: tuple[Examples, Examples]) -> tuple[PyTree, TaskResult]:
        gradient, result = task_gradient(params, *task)
        return jax.tree.map(jnp.add, total, gradient), result

    total, results = jax.lax.scan(add, nothing, (batch.support, batch.query))
    tasks = batch.query.mask.shape[0]
    return jax.tree.map(lambda leaf: leaf / tasks, total), results


def task_loss(
    model: Model, likelihood: Likelihood, params: PyTree, examples: Examples
) -> Float[Array, ""]:
    """Mean loss of one task's real examples."""
    outputs = model.apply(params, examples.x, examples.mask)
    return masked_mean(likelihood.loss(outputs, examples.y), examples.mask)


def _clip_scale(gradient: PyTree, norm: float) -> Float[Array, ""]:
    if math.isinf(norm):
        return jnp.ones(())
    squared = optax.tree_utils.tree_norm(gradient, squared=True)
    # The derivative of sqrt at 0 is infinite, and a task may be fitted exactly.
    size = jnp.sqrt(jnp.maximum(squared, norm**2))
    return norm / size
