"""The nonparametric learner to the letter: Algorithm 1 with Subroutine 4 of the paper.

Kept as a labelled reference. On the paper's own regression stream this rule neither
notices shifts reliably nor protects old clusters; docs/model.md has the measurements.
"""

from __future__ import annotations

import dataclasses
import math
from typing import get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Int, Key, PyTree

from taskmix.adaptation import MetaOptimiser, TaskModel, annealed_optimiser
from taskmix.adaptation.gradient import Gradient
from taskmix.adaptation.means import query_errors, task_weights, weighted_mean
from taskmix.learner import Info, Prediction, Told
from taskmix.likelihood import Likelihood
from taskmix.mixture.clusters import Clusters, grown
from taskmix.mixture.finite import cluster_size, predict_from_support
from taskmix.mixture.global_prior import Refresh, candidate, summary
from taskmix.mixture.prior import WindowedCounts, log_places
from taskmix.mixture.responsibilities import judge, mix, responsibilities
from taskmix.mixture.spawning import cooled, passes_threshold
from taskmix.mixture.update import query_losses, update_each, weighted
from taskmix.tasks import Examples, Hints, TaskBatch


class PaperState(eqx.Module):
    clusters: Clusters
    counts: WindowedCounts
    global_prior: PyTree
    iteration: Int[Array, ""]
    newest: Int[Array, ""]
    """The cluster that was opened last."""
    cooling: Int[Array, ""]
    """Iterations left of the cool-down; 0 when the spawning test is open."""


@dataclasses.dataclass(frozen=True)
class PaperMixture:
    """Responsibilities with a windowed Chinese restaurant prior and a candidate cluster.

    Examples
    --------
    >>> PaperMixture(boundaries=True).told.value
    'boundaries'
    """

    task_model: TaskModel = Gradient()
    meta_rate: float = 1e-3
    meta_clip: float = math.inf
    """Largest norm of a cluster's gradient; longer ones are scaled down."""
    anneal_over: int = 0
    """Iterations over which the meta rate falls to zero; 0 keeps it."""
    temperature: float = 1.0
    coefficient: float = 1.0
    """Weight of the log-count term beside the likelihood."""
    concentration: float = 10.0
    """The paper sets it to the number of tasks in a batch."""
    window: int = 5
    """Iterations over which tasks are counted."""
    threshold: float = 0.95
    """Fraction of an equal share that a candidate must reach."""
    warm_up: int = 1000
    """Iterations with a single cluster, after which it becomes the global prior."""
    cool_down: int = 500
    """Iterations after a spawn without another one, with the older clusters frozen."""
    refresh: Refresh = "average"
    """How the global prior follows the clusters."""
    refresh_every: int = 1000
    """Iterations between two refreshments of the global prior."""
    noise: float = 0.0
    """Standard deviation of a candidate around the global prior."""
    capacity: int = 4
    """Clusters to make room for at the start; doubles when needed."""
    boundaries: bool = False
    """Be told when a phase begins: the cool-down then ends there and nowhere else."""
    meta_optimiser: MetaOptimiser = dataclasses.field(default=optax.adam, kw_only=True)
    """From a rate, or a schedule of rates, to what makes updates of gradients: one of optax's."""

    def __post_init__(self) -> None:
        for name in ("meta_rate", "temperature", "concentration", "threshold"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be positive.")
        for name in ("coefficient", "noise", "warm_up"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be 0 or more.")
        if self.refresh not in get_args(Refresh):
            raise ValueError(
                f"refresh is {self.refresh!r}; it must be one of {', '.join(get_args(Refresh))}."
            )
        for name in ("window", "cool_down", "refresh_every", "capacity"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1.")

    @property
    def likelihood(self) -> Likelihood:
        return self.task_model.likelihood

    @property
    def one_at_a_time(self) -> bool:
        return self.task_model.one_at_a_time

    @property
    def told(self) -> Told:
        return Told.BOUNDARIES if self.boundaries else Told.NOTHING

    def init(self, key: Key[Array, ""], example: TaskBatch) -> PaperState:
        params = self.task_model.init(key)
        rows = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (self.capacity, *leaf.shape)), params
        )
        return PaperState(
            clusters=Clusters.stack(rows, self._optimiser(), jnp.arange(self.capacity) == 0),
            counts=WindowedCounts.empty(self.window, self.capacity),
            global_prior=params,
            iteration=jnp.zeros((), dtype=int),
            newest=jnp.zeros((), dtype=int),
            cooling=jnp.asarray(int(self.boundaries), dtype=int),
        )

    def step(
        self, state: PaperState, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[PaperState, Info]:
        batch = batch.without_padding_values()
        clusters = state.clusters
        refresh_key, candidate_key = jax.random.split(key)
        global_prior = self._refreshed(state, refresh_key)
        fresh = candidate(global_prior, self.noise, candidate_key)
        params = jax.tree.map(
            lambda rows, new: jnp.concatenate([rows, new[None]]), clusters.params, fresh
        )
        open_places = jnp.append(clusters.alive, True)
        judged = judge(self.task_model, params, batch, open_places)
        places = log_places(state.counts.counts(), self.concentration, self.coefficient)
        log_joint = judged.evidence + places

        shares = responsibilities(log_joint, open_places, self.temperature)
        suspicion = weighted_mean(shares[:, -1], task_weights(batch))
        cooling = self._cooling(state, batch)
        opened = (
            (state.iteration >= self.warm_up)
            & (cooling == 0)
            & (clusters.count() < clusters.capacity)
            & passes_threshold(shares[:, -1], clusters.count(), self.threshold, batch.real)
        )
        newborn = clusters.count()
        without = responsibilities(log_joint[:, :-1], clusters.alive, self.temperature)
        taken = shares[:, :-1].at[:, newborn].set(shares[:, -1])
        shares = jnp.where(batch.real[:, None], jnp.where(opened, taken, without), 0)
        clusters = clusters.put(newborn, fresh, self._optimiser().init(fresh), opened)

        frozen = (cooling > 0) & (clusters.count() > 1)
        newest = jnp.where(opened, newborn, state.newest)
        may_learn = (jnp.arange(clusters.capacity) == newest) | ~frozen
        losses = query_losses(self.task_model, batch)
        clusters = update_each(
            self.task_model, clusters, losses, shares, batch.real, self._optimiser(), may_learn
        )

        expected = jnp.sum(weighted(without, judged.loss[:, :-1]), axis=1)
        predicted = mix(without, judged.predicted[:, :-1])
        new_state = PaperState(
            clusters=clusters,
            counts=state.counts.push(shares),
            global_prior=global_prior,
            iteration=state.iteration + 1,
            newest=newest,
            cooling=self._cooled(cooling, opened),
        )
        info = Info(
            loss=weighted_mean(expected, task_weights(batch)),
            error=query_errors(self.likelihood, predicted, batch),
            responsibilities=shares,
            alive=clusters.alive,
            spawned=opened,
            alarm=opened,
            suspicion=suspicion,
        )
        return new_state, info

    def predict(
        self,
        state: PaperState,
        support: Examples,
        query_x: Array,
        hints: Hints | None = None,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Prediction:
        return predict_from_support(
            self.task_model, state.clusters, support, query_x, query_mask, self.temperature
        )

    def has_room(self, state: PaperState, iterations: int) -> Bool[Array, ""]:
        births = 1 if self.boundaries else -(-iterations // self.cool_down)
        return state.clusters.count() + births <= state.clusters.capacity

    def parameters(self, state: PaperState) -> int:
        return int(state.clusters.count()) * cluster_size(self.task_model)

    def grow(self, state: PaperState) -> PaperState:
        window = state.counts.window
        counts = WindowedCounts(jnp.concatenate([window, jnp.zeros_like(window)], axis=1))
        return dataclasses.replace(state, clusters=grown(state.clusters), counts=counts)

    def _optimiser(self) -> optax.GradientTransformation:
        return annealed_optimiser(
            self.meta_rate, self.anneal_over, self.meta_clip, self.meta_optimiser
        )

    def _refreshed(self, state: PaperState, key: Key[Array, ""]) -> PyTree:
        """The global prior: the first cluster at the end of the warm-up, then a summary.

        It stays at that snapshot while there is one cluster: a candidate that equals
        the only cluster could never win.
        """
        clusters = state.clusters
        warm = state.iteration == self.warm_up
        due = (clusters.count() > 1) & (state.iteration % self.refresh_every == 0)
        average = summary(clusters.params, clusters.alive, state.counts.counts(), self.refresh, key)
        return jax.tree.map(
            lambda old, first, new: jnp.where(warm, first[0], jnp.where(due, new, old)),
            state.global_prior,
            clusters.params,
            average,
        )

    def _cooling(self, state: PaperState, batch: TaskBatch) -> Int[Array, ""]:
        """Iterations of cool-down left at this batch; a boundary ends it for who is told."""
        if not self.boundaries or batch.hints is None or batch.hints.boundary is None:
            return state.cooling
        return jnp.where(batch.hints.boundary, 0, state.cooling)

    def _cooled(self, cooling: Int[Array, ""], opened: Bool[Array, ""]) -> Int[Array, ""]:
        if self.boundaries:
            return jnp.where(opened, 1, cooling)
        return cooled(cooling, opened, self.cool_down)
