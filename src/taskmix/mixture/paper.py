"""The nonparametric learner to the letter: Algorithm 1 with Subroutine 4 of the paper.

Kept as a labelled reference. On the paper's own regression stream this rule neither
notices shifts reliably nor protects old clusters; docs/model.md has the measurements.
"""

from __future__ import annotations

import dataclasses
from typing import get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Int, Key, PyTree

from taskmix.adaptation import Adaptation, meta_optimiser
from taskmix.learner import Info, Prediction, Told
from taskmix.likelihood import Gaussian, Likelihood, masked_mean
from taskmix.mixture.clusters import Clusters, grown
from taskmix.mixture.finite import predict_from_support
from taskmix.mixture.global_prior import Refresh, candidate, summary
from taskmix.mixture.prior import WindowedCounts, log_places
from taskmix.mixture.responsibilities import judge, mix, responsibilities
from taskmix.mixture.spawning import cooled, passes_threshold
from taskmix.mixture.update import query_losses, update_each, weighted
from taskmix.models import MLP, Model, parameter_count
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
    """Responsibilities with a windowed Chinese restaurant prior and a candidate cluster."""

    model: Model = MLP()
    likelihood: Likelihood = Gaussian()
    adaptation: Adaptation = Adaptation()
    meta_rate: float = 1e-3
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
    def told(self) -> Told:
        return Told.BOUNDARIES if self.boundaries else Told.NOTHING

    def init(self, key: Key[Array, ""], example: TaskBatch) -> PaperState:
        params = self.model.init(key)
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
        judged = judge(self.model, self.likelihood, self.adaptation, params, batch, open_places)
        places = log_places(state.counts.counts(), self.concentration, self.coefficient)
        log_joint = judged.support_log_likelihood + places

        shares = responsibilities(log_joint, open_places, self.temperature)
        cooling = self._cooling(state, batch)
        opened = (
            (state.iteration >= self.warm_up)
            & (cooling == 0)
            & (clusters.count() < clusters.capacity)
            & passes_threshold(shares[:, -1], clusters.count(), self.threshold)
        )
        newborn = clusters.count()
        without = responsibilities(log_joint[:, :-1], clusters.alive, self.temperature)
        taken = shares[:, :-1].at[:, newborn].set(shares[:, -1])
        shares = jnp.where(opened, taken, without)
        clusters = clusters.put(newborn, fresh, self._optimiser().init(fresh), opened)

        frozen = (cooling > 0) & (clusters.count() > 1)
        newest = jnp.where(opened, newborn, state.newest)
        may_learn = (jnp.arange(clusters.capacity) == newest) | ~frozen
        losses = query_losses(self.model, self.likelihood, self.adaptation, batch)
        clusters = update_each(self.model, clusters, losses, shares, self._optimiser(), may_learn)

        query_loss = judged.query_loss[:, :-1]
        expected = self.likelihood.error(mix(without, judged.predicted[:, :-1]), batch.query.y)
        new_state = PaperState(
            clusters=clusters,
            counts=state.counts.push(shares),
            global_prior=global_prior,
            iteration=state.iteration + 1,
            newest=newest,
            cooling=self._cooled(cooling, opened),
        )
        info = Info(
            loss=jnp.mean(jnp.sum(weighted(without, query_loss), axis=1)),
            error=masked_mean(expected, batch.query.mask),
            responsibilities=shares,
            clusters=clusters.count(),
            spawned=opened,
            suspicion=jnp.mean(responsibilities(log_joint, open_places, self.temperature)[:, -1]),
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
            self.model,
            self.likelihood,
            self.adaptation,
            state.clusters,
            support,
            query_x,
            query_mask,
            self.temperature,
        )

    def has_room(self, state: PaperState, iterations: int) -> Bool[Array, ""]:
        births = 1 if self.boundaries else -(-iterations // self.cool_down)
        return state.clusters.count() + births <= state.clusters.capacity

    def parameters(self, state: PaperState) -> int:
        return int(state.clusters.count()) * parameter_count(self.model)

    def grow(self, state: PaperState) -> PaperState:
        window = state.counts.window
        counts = WindowedCounts(jnp.concatenate([window, jnp.zeros_like(window)], axis=1))
        return dataclasses.replace(state, clusters=grown(state.clusters), counts=counts)

    def _optimiser(self) -> optax.GradientTransformation:
        return meta_optimiser(self.meta_rate, self.anneal_over)

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
        if batch.hints is None or not self.boundaries:
            return state.cooling
        return jnp.where(batch.hints.boundary, 0, state.cooling)

    def _cooled(self, cooling: Int[Array, ""], opened: Bool[Array, ""]) -> Int[Array, ""]:
        if self.boundaries:
            return jnp.where(opened, 1, cooling)
        return cooled(cooling, opened, self.cool_down)
