"""From a cluster to the parameters of one task: a few gradient steps on its support set."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Key, PyTree

from taskmix.adaptation.means import (
    mean_gradient,
    mean_of_gradients,
    query_result,
    task_weights,
)
from taskmix.adaptation.task_model import Judgement, Predictive, TaskResult
from taskmix.likelihood import Gaussian, Likelihood, masked_mean
from taskmix.models import MLP, Model
from taskmix.models.repeated import MOST
from taskmix.tasks import Examples, TaskBatch


@dataclasses.dataclass(frozen=True)
class Adaptation:
    """K gradient steps, phi_k = phi_{k-1} - rate * clip(grad L_support(phi_{k-1})).

    A cluster adapted to tasks that are foreign to it can diverge after several steps;
    clipping the global norm keeps the step finite and, being a rescaling, keeps its
    direction. An infinite norm does not clip.

    Examples
    --------
    >>> Adaptation(steps=3, rate=0.1).clip
    10.0
    """

    steps: int = 5
    """Gradient steps on the support set."""
    rate: float = 0.01
    """Size of a step."""
    clip: float = 10.0
    """Largest norm of a gradient; infinity for no limit."""
    first_order: bool = False
    """Count inner gradients as constants, which saves second derivatives."""

    def __post_init__(self) -> None:
        if not 0 <= self.steps <= MOST:
            raise ValueError(f"steps is {self.steps}; it must be 0 to {MOST}.")
        for name in ("rate", "clip"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be positive.")
        if math.isinf(self.rate):
            raise ValueError(f"rate is {self.rate}; it must be finite.")

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


def fit(
    model: Model, likelihood: Likelihood, adapted: PyTree, examples: Examples
) -> Float[Array, ""]:
    """Log-likelihood of a set of examples under adapted parameters."""
    outputs = model.apply(adapted, examples.x, examples.mask)
    each = likelihood.log_likelihood(outputs, examples.y)
    return jnp.sum(jnp.where(examples.mask, each, 0))


def meta_gradient(
    model: Model,
    likelihood: Likelihood,
    adaptation: Adaptation,
    params: PyTree,
    batch: TaskBatch,
) -> tuple[PyTree, TaskResult]:
    """Gradient of the mean query loss after adaptation, and what each task came to."""
    task_loss = partial(adapted_loss, model, likelihood, adaptation)
    tasks = (batch.support, batch.query)
    return mean_gradient(model, task_loss, params, *tasks, weights=task_weights(batch))


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
        model, moments, params, (batch.support, batch.query), task_weights(batch)
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


@dataclasses.dataclass(frozen=True)
class Gradient:
    """The paper's task model: an initialisation, adapted by gradient steps.

    Its evidence is the paper's: the log-likelihood of examples after adaptation to these same
    examples. It says how well they can be fitted, not how probable they are.

    Examples
    --------
    >>> from taskmix.models import parameter_count
    >>> parameter_count(Gradient(MLP(hidden=(8,))).model)
    25
    """

    model: Model = MLP()
    """Network whose initialisation is learned."""
    likelihood: Likelihood = Gaussian()
    """What targets are: numbers, classes or counts."""
    adaptation: Adaptation = Adaptation()
    """Inner loop: how the network adapts to a support set."""

    exact = False

    @property
    def one_at_a_time(self) -> bool:
        return self.model.one_at_a_time

    def init(self, key: Key[Array, ""]) -> PyTree:
        return self.model.init(key)

    def loss(
        self, params: PyTree, support: Examples, query: Examples
    ) -> tuple[Float[Array, ""], TaskResult]:
        """The query loss after adaptation to the support set."""
        adapted = self.adapt(params, support)
        outputs = self.model.apply(adapted, query.x, query.mask)
        result = query_result(self.likelihood, outputs, query)
        evidence = fit(self.model, self.likelihood, adapted, support)
        return result.loss, TaskResult(result.loss, result.predicted, evidence)

    def evidence(self, params: PyTree, examples: Examples) -> Float[Array, ""]:
        return fit(self.model, self.likelihood, self.adapt(params, examples), examples)

    def adapt(self, params: PyTree, support: Examples) -> PyTree:
        return self.adaptation(self.model, self.likelihood, params, support)

    def predict(
        self, posterior: PyTree, query_x: Array, query_mask: Bool[Array, " query"] | None = None
    ) -> Predictive:
        outputs = self.model.apply(posterior, query_x, query_mask)
        return Predictive(self.likelihood.predictive(outputs))

    def judge(self, params: PyTree, support: Examples, query: Examples) -> Judgement:
        adapted = self.adapt(params, support)
        fitted = fit(self.model, self.likelihood, adapted, support)
        return Judgement(
            support=fitted,
            whole=fitted + fit(self.model, self.likelihood, adapted, query),
            predictive=self.predict(adapted, query.x, query.mask),
        )
