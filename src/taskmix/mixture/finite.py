"""Mixtures with a fixed number of components: Algorithm 1 with Subroutine 2 of the paper.

G. Jerfel, E. Grant, T. Griffiths, K. Heller: Reconciling meta-learning and continual
learning with online mixtures of tasks. NeurIPS 2019.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from taskmix.adaptation import (
    MetaOptimiser,
    TaskModel,
    annealed_optimiser,
    mean_gradient,
    mean_of_gradients,
    one_after_the_other,
)
from taskmix.adaptation.gradient import Gradient
from taskmix.adaptation.means import query_errors, task_weights, weighted_mean
from taskmix.adaptation.task_model import Predictive, over_rows
from taskmix.learner import Info, Prediction, Told, protected
from taskmix.likelihood import Likelihood
from taskmix.mixture.clusters import Clusters, as_rows
from taskmix.mixture.responsibilities import (
    assessments,
    for_each_cluster,
    foreseen,
    mix,
    mixed,
    responsibilities,
)
from taskmix.mixture.update import gradient_of_drawn, gradient_of_each, update_one, weighted
from taskmix.tasks import Examples, Hints, TaskBatch


@dataclasses.dataclass(frozen=True)
class FiniteMixture:
    """Minimise (1/J) sum_j sum_l gamma_jl * loss_jl for all components together.

    The gradient flows through the responsibilities, which come from the support set.
    An infinite temperature makes them uniform: the components are then independent
    learners whose predictions are averaged.

    ``detached`` holds the responsibilities fixed in the M-step, as EM does. Each component is
    then differentiated before the next is begun, which is faster for networks whose tasks
    are learned from one at a time.

    ``sampled`` holds them fixed, too, and estimates the gradient from one component per task,
    without bias. It costs as much as one component however many there are, which matters
    where a meta-gradient is expensive.

    With ``together`` the components are one initialisation, learned as MAML's, for that many
    iterations, and part by a little noise: what they have in common is learned once.

    Examples
    --------
    >>> import taskmix as tm
    >>> tm.FiniteMixture(tm.BayesianHead(), components=2).told.value
    'nothing'
    """

    task_model: TaskModel = Gradient()
    """What a cluster is made of."""
    meta_rate: float = 1e-3
    """Rate of the optimiser that learns across tasks."""
    meta_clip: float = math.inf
    """Largest norm of a component's gradient; longer ones are scaled down."""
    anneal_over: int = 0
    """Iterations over which the meta rate falls to zero; 0 keeps it."""
    components: int = 3
    """Clusters, from the first batch to the last."""
    temperature: float = 1.0
    """What log-likelihoods are divided by before they become responsibilities."""
    detached: bool = False
    """Hold the responsibilities fixed while the components learn."""
    sampled: bool = False
    """The same, and differentiate one component per task, drawn by its responsibility."""
    together: int = 0
    """Iterations after which the components part; 0 begins with as many random ones."""
    parting_noise: float = 0.2
    """Standard deviation of the noise by which they part, for entries of root mean square 1."""
    meta_optimiser: MetaOptimiser = dataclasses.field(default=optax.adam, kw_only=True)
    """From a rate, or a schedule of rates, to what makes updates of gradients: one of optax's."""

    told = Told.NOTHING

    def __post_init__(self) -> None:
        if not self.meta_rate > 0:
            raise ValueError(f"meta_rate is {self.meta_rate}; it must be positive.")
        _ = self._optimiser()
        if self.components < 1:
            raise ValueError(f"components is {self.components}; a mixture needs at least 1.")
        if not self.temperature > 0 or math.isnan(self.temperature):
            raise ValueError(
                f"temperature is {self.temperature}; it must be positive ('inf' is uniform)."
            )
        if self.together < 0:
            raise ValueError(f"together is {self.together}; it must not be negative.")
        if not 0 < self.parting_noise < math.inf:
            raise ValueError(
                f"parting_noise is {self.parting_noise}; it must be positive and finite."
            )

    @property
    def likelihood(self) -> Likelihood:
        return self.task_model.likelihood

    @property
    def one_at_a_time(self) -> bool:
        return self.task_model.one_at_a_time

    def init(self, key: Key[Array, ""], example: TaskBatch) -> Clusters:
        # A component that is alone is drawn as MAML draws its own.
        alone = self.components == 1 or self.together > 0
        keys = (jnp.broadcast_to if alone else jax.random.split)(key, (self.components,))
        alive = (jnp.arange(self.components) == 0) | (self.together == 0)
        return Clusters.stack(jax.vmap(self.task_model.init)(keys), self._optimiser(), alive)

    @protected
    def step(self, state: Clusters, batch: TaskBatch, key: Key[Array, ""]) -> tuple[Clusters, Info]:
        batch = batch.without_padding_values()
        if self.components == 1:
            return self._step_alone(state, batch)
        step = self._step_sampled if self.sampled else self._step_dense
        if self.together == 0:
            return step(state, batch, key)
        noise_key, key = jax.random.split(key)
        parts_now = (state.count() == 1) & (steps_taken(state) == self.together)
        state = jax.lax.cond(parts_now, self._parted, lambda state, _: state, state, noise_key)
        return jax.lax.cond(
            state.count() == 1,
            lambda state, batch, _: self._step_alone(state, batch),
            step,
            *(state, batch, key),
        )

    def _parted(self, state: Clusters, key: Key[Array, ""]) -> Clusters:
        """All components as noisy copies of the first, which stays as it is."""
        others = jnp.arange(self.components) > 0

        def noisy(rows: Array, noise: Array) -> Array:
            scale = self.parting_noise * jnp.sqrt(jnp.mean(jnp.square(rows[0])))
            return rows[:1] + as_rows(others, rows) * scale * noise

        noise = optax.tree_utils.tree_random_like(key, state.params)
        params = jax.tree.map(noisy, state.params, noise)
        optimiser = jax.tree.map(
            lambda rows: jnp.broadcast_to(rows[:1], rows.shape), state.optimiser
        )
        return Clusters(params, optimiser, jnp.ones_like(state.alive))

    def _step_dense(
        self, state: Clusters, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[Clusters, Info]:
        tasks, weights = (batch.support, batch.query), task_weights(batch)
        joint = jax.grad(partial(self._surrogate, state.alive), has_aux=True)
        if self.detached:
            apart = partial(self._detached_gradient, state.alive)
            gradient, parts = mean_of_gradients(
                self.task_model, apart, state.params, tasks, weights
            )
        elif self.one_at_a_time:
            gradient, parts = one_after_the_other(_of_one(joint), state.params, tasks, weights)
        else:
            gradient, parts = joint(state.params, batch)
        loss, predicted, shares = parts
        info = self._info(state, batch, predicted, shares, weighted_mean(loss, weights))
        return self._updated(state, gradient), info

    def _surrogate(
        self, alive: Bool[Array, " clusters"], params: PyTree, batch: TaskBatch
    ) -> tuple[Array, tuple[Array, Array, Array]]:
        """The objective, and each task's loss, prediction and responsibilities."""
        found = assessments(self.task_model, params, batch)
        shares = responsibilities(found.evidence, alive, self.temperature)
        loss = jnp.sum(weighted(shares, found.loss), axis=1)
        objective = weighted_mean(loss, task_weights(batch))
        return objective, (loss, mix(shares, found.predicted), shares)

    def _detached_gradient(
        self, alive: Bool[Array, " clusters"], params: PyTree, support: Examples, query: Examples
    ) -> tuple[PyTree, tuple[Array, Array, Array]]:
        """Gradient of one task's objective, its responsibilities held fixed, and its parts."""
        gradients, results = gradient_of_each(self.task_model, params, support, query)
        shares = responsibilities(results.evidence, alive, self.temperature)
        gradient = jax.tree.map(
            lambda rows: weighted(jnp.broadcast_to(as_rows(shares, rows), rows.shape), rows),
            gradients,
        )
        loss = jnp.sum(weighted(shares, results.loss))
        return gradient, (loss, mix(shares, results.predicted), shares)

    def _step_sampled(
        self, state: Clusters, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[Clusters, Info]:
        shares, predicted = self._foreseen(state, batch)
        drawn = jax.random.categorical(key, jnp.log(shares))
        gradient, result = gradient_of_drawn(self.task_model, state.params, batch, drawn)
        loss = weighted_mean(result.loss, task_weights(batch))
        return self._updated(state, gradient), self._info(state, batch, predicted, shares, loss)

    def _foreseen(
        self, state: Clusters, batch: TaskBatch
    ) -> tuple[Float[Array, "tasks clusters"], Float[Array, "tasks query outputs"]]:
        """Responsibilities and the mixture's prediction of every task."""

        def all_tasks(params: PyTree) -> tuple[Float[Array, " tasks"], Predictive]:
            one = partial(foreseen, self.task_model, params)
            return over_rows(self.task_model, one)(batch.support, batch.query.x, batch.query.mask)

        every = for_each_cluster(self.task_model, all_tasks, state.params, state.alive)
        evidence, predictive = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), every)
        shares = responsibilities(evidence, state.alive, self.temperature)
        return shares, mix(shares, predictive.mean)

    def _updated(self, state: Clusters, gradient: PyTree) -> Clusters:
        updates, optimiser = jax.vmap(self._optimiser().update)(gradient, state.optimiser)
        return Clusters(optax.apply_updates(state.params, updates), optimiser, state.alive)

    def _step_alone(self, state: Clusters, batch: TaskBatch) -> tuple[Clusters, Info]:
        """One component takes every task whole: this is MAML, and gives the same bits."""
        first, weights = jnp.asarray(0), task_weights(batch)
        tasks = (batch.support, batch.query)
        gradient, result = mean_gradient(
            self.task_model, self.task_model.loss, state.take(first)[0], *tasks, weights=weights
        )
        clusters = update_one(
            state, first, gradient, self._optimiser(), jnp.asarray(1.0), jnp.asarray(True)
        )
        shares = jnp.broadcast_to(
            state.alive.astype(result.loss.dtype), (*result.loss.shape, self.components)
        )
        loss = weighted_mean(result.loss, weights)
        return clusters, self._info(state, batch, result.predicted, shares, loss)

    def _info(
        self, state: Clusters, batch: TaskBatch, predicted: Array, shares: Array, loss: Array
    ) -> Info:
        return Info(
            loss=loss,
            error=query_errors(self.likelihood, predicted, batch),
            responsibilities=jnp.where(batch.real[:, None], shares, 0),
            alive=state.alive,
            spawned=jnp.asarray(False),
            alarm=jnp.asarray(False),
            suspicion=jnp.asarray(0.0),
        )

    def predict(
        self,
        state: Clusters,
        support: Examples,
        query_x: Array,
        hints: Hints | None = None,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Prediction:
        return predict_from_support(
            self.task_model, state, support, query_x, query_mask, self.temperature
        )

    def parameters(self, state: Clusters) -> int:
        return self.components * cluster_size(self.task_model)

    def _optimiser(self) -> optax.GradientTransformation:
        return annealed_optimiser(
            self.meta_rate, self.anneal_over, self.meta_clip, self.meta_optimiser
        )


def cluster_size(task_model: TaskModel) -> int:
    """How many numbers one cluster learns."""
    shapes = jax.eval_shape(task_model.init, jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


def steps_taken(state: Clusters) -> Int[Array, ""]:
    """Updates of the first component, as its optimiser counts them."""
    found = optax.tree_utils.tree_get_all_with_path(state.optimiser, "count")
    if not found:
        raise ValueError(
            "meta_optimiser does not count its updates, which `together` needs; use one that does, "
            "such as optax.adam."
        )
    (_, counts), *_ = found
    return counts[0]


def _of_one(surrogate: Callable[[PyTree, TaskBatch], Any]) -> Callable[..., Any]:
    """A function of a batch as one of a single task's support and query."""

    def alone(params: PyTree, support: Examples, query: Examples) -> Any:
        batch = jax.tree.map(lambda leaf: leaf[None], TaskBatch(support, query))
        gradient, parts = surrogate(params, batch)
        return gradient, jax.tree.map(lambda leaf: leaf[0], parts)

    return alone


def predict_from_support(
    task_model: TaskModel,
    clusters: Clusters,
    support: Examples,
    query_x: Array,
    query_mask: Bool[Array, " query"] | None,
    temperature: float,
) -> Prediction:
    """The paper's prediction: responsibilities from the support's evidence, no count term."""
    support = support.without_padding_values()

    def one(params: PyTree) -> tuple[Float[Array, ""], Predictive]:
        return foreseen(task_model, params, support, query_x, query_mask)

    evidence, predictive = for_each_cluster(task_model, one, clusters.params, clusters.alive)
    weights = responsibilities(evidence, clusters.alive, temperature)
    variance, noise = mixed(weights, predictive)
    return Prediction(
        mean=mix(weights, predictive.mean),
        components=predictive.mean,
        responsibilities=weights,
        variance=variance,
        noise=noise,
    )
