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
from jaxtyping import Array, Bool, Float, Key, PyTree

from taskmix.adaptation.task_model import Judgement, Paced, Predictive, TaskResult, over_rows
from taskmix.likelihood import Categorical, Gaussian, Likelihood, masked_mean
from taskmix.machine import threads
from taskmix.models import MLP, Model
from taskmix.tasks import Examples, TaskBatch

LEAST_FREEDOM = 2.1
"""Degrees of freedom; above 2, so that residuals have a variance."""
FIRST_FREEDOM = 6.0
"""Degrees of freedom above the least before anything was learned."""
MOST_STEPS = 500
"""Every step is compiled on its own: more would take an hour before the first batch."""


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


MetaOptimiser = Callable[..., optax.GradientTransformation]
"""From a rate, or a schedule of rates, to what makes updates of gradients."""


def annealed_optimiser(
    rate: float,
    anneal_over: int = 0,
    clip: float = math.inf,
    optimiser: MetaOptimiser = optax.adam,
) -> optax.GradientTransformation:
    """What updates clusters; its rate falls to zero along a cosine if there is an end.

    A stream that may go on for ever has none: 0 keeps the rate. ``clip`` is the largest norm of
    a gradient; an infinite one does not clip.
    """
    if anneal_over < 0:
        raise ValueError(f"anneal_over is {anneal_over}; it must be 0 (never) or more.")
    if not clip > 0:
        raise ValueError(f"meta_clip is {clip}; it must be positive ('inf' does not clip).")
    made = optimiser(optax.cosine_decay_schedule(rate, anneal_over) if anneal_over else rate)
    return made if math.isinf(clip) else optax.chain(optax.clip_by_global_norm(clip), made)


def meta_gradient(
    model: Model,
    likelihood: Likelihood,
    adaptation: Adaptation,
    params: PyTree,
    batch: TaskBatch,
) -> tuple[PyTree, TaskResult]:
    """Gradient of the mean query loss after adaptation, and what each task came to."""
    judge = partial(adapted_loss, model, likelihood, adaptation)
    tasks = (batch.support, batch.query)
    return mean_gradient(model, judge, params, *tasks, weights=task_weights(batch))


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
    judge: Callable[..., tuple[Float[Array, ""], Any]],
    params: PyTree,
    *tasks: PyTree,
    weights: Float[Array, " tasks"],
) -> tuple[PyTree, Any]:
    """Gradient of sum_j w_j loss_j / sum_j w_j, and what else each task came to.

    ``judge`` takes the parameters and one row of each of ``tasks``, and gives the loss that
    is differentiated and the rest.
    """
    if paced.one_at_a_time:
        return one_after_the_other(jax.grad(judge, has_aux=True), params, tasks, weights)

    def objective(params: PyTree) -> tuple[Float[Array, ""], Any]:
        losses, results = jax.vmap(partial(judge, params))(*tasks)
        return weighted_mean(losses, weights), results

    return jax.grad(objective, has_aux=True)(params)


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
    each, results = jax.vmap(partial(task_gradient, params))(*tasks)
    return jax.tree.map(lambda leaf: weighted_mean(leaf, weights), each), results


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

    total, results = jax.lax.scan(add, nothing, (weights, tasks), unroll=min(2, threads()))
    return jax.tree.map(lambda leaf: leaf / total_weight(weights), total), results


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
    likelihood: Likelihood = Gaussian()
    adaptation: Adaptation = Adaptation()

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


class CalibratedParams(eqx.Module):
    """An initialisation, and how far its predictions are from the truth."""

    network: PyTree
    log_scale: Float[Array, "*clusters"]
    """Logarithm of the residuals' scale."""
    log_freedom: Float[Array, "*clusters"]
    """Logarithm of the degrees of freedom above the least."""


@dataclasses.dataclass(frozen=True)
class CalibratedGradient(Gradient):
    """Gradient steps whose evidence is that of residuals of examples they were not taken on.

    The examples of a set are cut into parts, and each is predicted after adaptation to the
    others. The residuals have a multivariate Student t, independent for each output,

        r ~ t_nu(0, s^2 I),  s = exp(log_scale),  nu = 2.1 + exp(log_freedom),

    whose scale and freedom are learned from the residuals of query sets and move nothing else:
    the network learns as ``Gradient`` does, bit for bit, unless the optimiser clips the norm of
    all gradients together. Labels have the log-likelihood that held-out ones get.

    Examples
    --------
    >>> CalibratedGradient(MLP(hidden=(8,)), parts=3).exact
    False
    """

    parts: int = 5
    """Into how many parts a set of examples is cut."""

    def __post_init__(self) -> None:
        if self.parts < 2:
            raise ValueError(f"parts is {self.parts}; it must be at least 2.")

    @property
    def classes(self) -> bool:
        return isinstance(self.likelihood, Categorical)

    def init(self, key: Key[Array, ""]) -> CalibratedParams:
        return CalibratedParams(
            self.model.init(key), jnp.zeros(()), math.log(FIRST_FREEDOM) * jnp.ones(())
        )

    def loss(
        self, params: CalibratedParams, support: Examples, query: Examples
    ) -> tuple[Float[Array, ""], TaskResult]:
        """The query loss, and minus the log-density of the query's residuals per example."""
        adapted = super().adapt(params.network, support)
        outputs = self.model.apply(adapted, query.x, query.mask)
        result = query_result(self.likelihood, outputs, query)
        loss = result.loss
        if not self.classes:
            residual = jax.lax.stop_gradient(_residual(outputs, query.y, query.mask))
            # What a diverged task says of the scale would be the end of it.
            usable = jnp.isfinite(_density(params, residual, query.mask))
            density = _density(params, jnp.where(usable, residual, 0), query.mask)
            each = density / jnp.maximum(jnp.sum(query.mask), 1)
            loss = loss - jnp.where(usable, each, 0)
        return loss, TaskResult(loss, result.predicted)

    def evidence(self, params: CalibratedParams, examples: Examples) -> Float[Array, ""]:
        count = jnp.cumsum(examples.mask) - examples.mask
        part = jnp.where(examples.mask, count % self.parts, -1)

        def held_out(number: Array) -> Float[Array, "examples outputs"]:
            """Outputs for the examples of one part, zero elsewhere."""
            held = part == number
            others = Examples(examples.x, examples.y, examples.mask & ~held)
            adapted = super(CalibratedGradient, self).adapt(
                params.network, others.without_padding_values()
            )
            outputs = self.model.apply(adapted, examples.x, examples.mask)
            return jnp.where(held[:, None], outputs, 0)

        outputs = jnp.sum(over_rows(self, held_out)(jnp.arange(self.parts)), axis=0)
        return self._judged(params, outputs, examples)

    def adapt(self, params: CalibratedParams, support: Examples) -> CalibratedParams:
        adapted = super().adapt(params.network, support)
        return CalibratedParams(adapted, params.log_scale, params.log_freedom)

    def predict(
        self,
        posterior: CalibratedParams,
        query_x: Array,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Predictive:
        outputs = self.model.apply(posterior.network, query_x, query_mask)
        mean = self.likelihood.predictive(outputs)
        nothing = jnp.zeros_like(mean)
        if self.classes:
            return Predictive(mean, nothing, nothing)
        freedom = _freedom(posterior)
        noise = jnp.exp(2 * posterior.log_scale) * freedom / (freedom - 2)
        return Predictive(mean, nothing, nothing + noise)

    def judge(self, params: CalibratedParams, support: Examples, query: Examples) -> Judgement:
        adapted = self.adapt(params, support)
        outputs = self.model.apply(adapted.network, query.x, query.mask)
        known = self.evidence(params, support)
        return Judgement(
            support=known,
            whole=known + self._judged(params, outputs, query),
            predictive=self.predict(adapted, query.x, query.mask),
        )

    def _judged(
        self, params: CalibratedParams, outputs: Float[Array, "examples outputs"], truth: Examples
    ) -> Float[Array, ""]:
        """What outputs for examples not adapted to say of these; -inf where they diverged."""
        finite = jnp.all(jnp.isfinite(outputs) | ~truth.mask[:, None])
        outputs = jnp.where(finite, outputs, 0)
        if self.classes:
            each = self.likelihood.log_likelihood(outputs, truth.y)
            known = jnp.sum(jnp.where(truth.mask, each, 0))
        else:
            known = _density(params, _residual(outputs, truth.y, truth.mask), truth.mask)
        return jnp.where(finite & jnp.isfinite(known), known, -jnp.inf)


def _residual(
    outputs: Float[Array, "examples outputs"],
    y: Float[Array, "examples outputs"],
    mask: Bool[Array, " examples"],
) -> Float[Array, "examples outputs"]:
    """Target minus prediction, zero for padding."""
    return jnp.where(mask[:, None], y - outputs, 0)


def _freedom(params: CalibratedParams) -> Float[Array, ""]:
    return LEAST_FREEDOM + jnp.exp(params.log_freedom)


def _density(
    params: CalibratedParams,
    residual: Float[Array, "examples outputs"],
    mask: Bool[Array, " examples"],
) -> Float[Array, ""]:
    """Log-density of residuals under the multivariate t, summed over the outputs."""
    freedom, count = _freedom(params), jnp.sum(mask)
    squared = jnp.sum(jnp.square(residual * jnp.exp(-params.log_scale)), axis=0)
    constant = (
        jax.lax.lgamma((freedom + count) / 2)
        - jax.lax.lgamma(freedom / 2)
        - count / 2 * jnp.log(freedom * math.pi)
        - count * params.log_scale
    )
    return jnp.sum(constant - (freedom + count) / 2 * jnp.log1p(squared / freedom))
