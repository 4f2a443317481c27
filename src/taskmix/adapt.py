"""From a cluster to the parameters of one task: a few gradient steps on its support set."""

from __future__ import annotations

import dataclasses
import math

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
        gradient = jax.grad(lambda p: task_loss(model, likelihood, p, support))
        for _ in range(self.steps):
            step = gradient(params)
            if self.first_order:
                step = jax.lax.stop_gradient(step)
            scale = self.rate * _clip_scale(step, self.clip)
            params = jax.tree.map(lambda p, g, s=scale: p - s * g, params, step)
        return params


def meta_gradient(
    model: Model,
    likelihood: Likelihood,
    adaptation: Adaptation,
    params: PyTree,
    batch: TaskBatch,
) -> tuple[PyTree, Float[Array, " tasks"], Float[Array, "tasks query outputs"]]:
    """Gradient of the mean query loss after adaptation; the losses; and the predictions."""

    def judge(
        params: PyTree, support: Examples, query: Examples
    ) -> tuple[Float[Array, ""], Float[Array, "query outputs"]]:
        outputs = model.apply(adaptation(model, likelihood, params, support), query.x)
        loss = masked_mean(likelihood.loss(outputs, query.y), query.mask)
        return loss, likelihood.predictive(outputs)

    def objective(params: PyTree) -> tuple[Float[Array, ""], tuple[Array, Array]]:
        judged = jax.vmap(judge, (None, 0, 0))(params, batch.support, batch.query)
        return jnp.mean(judged[0]), judged

    gradient, (losses, predicted) = jax.grad(objective, has_aux=True)(params)
    return gradient, losses, predicted


def task_loss(
    model: Model, likelihood: Likelihood, params: PyTree, examples: Examples
) -> Float[Array, ""]:
    """Mean loss of one task's real examples."""
    outputs = model.apply(params, examples.x)
    return masked_mean(likelihood.loss(outputs, examples.y), examples.mask)


def _clip_scale(gradient: PyTree, norm: float) -> Float[Array, ""]:
    if math.isinf(norm):
        return jnp.ones(())
    squared = optax.tree_utils.tree_norm(gradient, squared=True)
    # The derivative of sqrt at 0 is infinite, and a task may be fitted exactly.
    size = jnp.sqrt(jnp.maximum(squared, norm**2))
    return norm / size
