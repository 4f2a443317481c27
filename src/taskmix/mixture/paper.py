"""The nonparametric learner of the paper: Algorithm 1 with Subroutine 3, and its appendix.

G. Jerfel, E. Grant, T. Griffiths, K. Heller: Reconciling meta-learning and continual learning with
online mixtures of tasks. NeurIPS 2019. docs/paper.md says which setting is which sentence, and what
was measured.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from taskmix.adaptation.means import query_errors, task_weights, weighted_mean
from taskmix.adaptation.task_model import over_rows
from taskmix.learner import Info, Prediction, protected
from taskmix.mixture.adapted_prior import log_adapted_priors
from taskmix.mixture.clusters import Clusters, grown, with_rows
from taskmix.mixture.finite import cluster_size, predict_from_support
from taskmix.mixture.global_prior import (
    GlobalPrior,
    candidates,
    deviation_at,
    summary_weights,
)
from taskmix.mixture.newborn import with_mean_gradient
from taskmix.mixture.paper_settings import PaperSettings
from taskmix.mixture.paper_state import EStep, PaperState
from taskmix.mixture.prior import WindowedCounts, log_places
from taskmix.mixture.pruning import due, like_a_larger_one, odds_ratios, with_few_tasks
from taskmix.mixture.reservoir import Reservoir
from taskmix.mixture.responsibilities import (
    assessments,
    for_each_cluster,
    mix,
    responsibilities,
)
from taskmix.mixture.spawning import cooled, passes_threshold
from taskmix.mixture.update import query_losses, update_each, weighted
from taskmix.tasks import Examples, Hints, TaskBatch


@dataclasses.dataclass(frozen=True)
class PaperMixture(PaperSettings):
    """Responsibilities with a windowed Chinese restaurant prior and a candidate cluster.

    Examples
    --------
    >>> PaperMixture(boundaries=True).told.value
    'boundaries'
    """

    def init(self, key: Key[Array, ""], example: TaskBatch) -> PaperState:
        params = self.task_model.init(key)
        rows = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (self.capacity, *leaf.shape)), params
        )
        nothing = jnp.zeros(self.capacity)
        return PaperState(
            clusters=Clusters.stack(rows, self.optimiser(), jnp.arange(self.capacity) == 0),
            counts=WindowedCounts.empty(self.longest_window(self.capacity), self.capacity),
            sizes=nothing,
            born=nothing.astype(int),
            recent=nothing,
            validation=(
                Reservoir.empty(example, self.validation) if self.prune == "alike" else None
            ),
            global_prior=GlobalPrior.at(rows, self.warm_up, self.refresh_every),
            iteration=jnp.zeros((), dtype=int),
            newest=jnp.zeros((), dtype=int),
            cooling=jnp.asarray(int(self.boundaries), dtype=int),
        )

    @protected(alive=lambda state: state.clusters.alive)
    def step(
        self, state: PaperState, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[PaperState, Info]:
        batch = batch.without_padding_values()
        candidate_key, keep_key = jax.random.split(key)
        state = self._refreshed(state)
        draws = self._candidates(state, candidate_key)
        seen = self._explained(state, draws, batch)
        cooling = self._cooling(state, batch)
        opened = (
            (state.iteration >= self.warm_up)
            & (cooling == 0)
            & ~jnp.all(state.clusters.alive)
            & passes_threshold(
                jnp.mean(seen.shares[..., -1], axis=0),
                state.clusters.count(),
                self.threshold,
                batch.real,
            )
        )
        state, shares = self._learned(state, batch, draws, seen, opened, cooling)
        state = self._pruned(self._counted(state, batch, shares, keep_key))
        expected = jnp.sum(weighted(seen.without, seen.found.loss), axis=1)
        predicted = mix(seen.without, seen.found.predicted)
        info = Info(
            loss=weighted_mean(expected, task_weights(batch)),
            error=query_errors(self.likelihood, predicted, batch),
            responsibilities=shares,
            alive=state.clusters.alive,
            spawned=opened,
            alarm=opened,
            suspicion=seen.suspicion(batch),
        )
        return state, info

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
        more = state.clusters.capacity
        capacity = 2 * more
        sizes, born, recent, weights = jax.tree.map(
            lambda leaf: jnp.pad(leaf, (0, more)),
            (state.sizes, state.born, state.recent, state.global_prior.weights),
        )
        prior = dataclasses.replace(
            state.global_prior,
            centres=with_rows(state.global_prior.centres, more),
            weights=weights,
        )
        return dataclasses.replace(
            state,
            clusters=grown(state.clusters),
            counts=state.counts.resized(self.longest_window(capacity), capacity),
            sizes=sizes,
            born=born,
            recent=recent,
            global_prior=prior,
        )

    def _refreshed(self, state: PaperState) -> PaperState:
        """The global prior: the first cluster at the end of the warm-up, then a summary.

        Unless ``refresh_alone`` it stays at that snapshot while there is one cluster: a candidate
        that equals the only cluster could never win.
        """
        clusters = state.clusters
        warm = state.iteration == self.warm_up
        prior = state.global_prior.refreshed(
            clusters.params,
            summary_weights(clusters.alive, state.sizes, self.refresh),
            state.iteration,
            self.refresh_growth,
            warm | (clusters.count() > 1) | self.refresh_alone,
        )
        return dataclasses.replace(state, global_prior=prior)

    def _candidates(self, state: PaperState, key: Key[Array, ""]) -> PyTree:
        """Draws from the global prior, along a leading axis."""
        deviation = None
        if self.noise:
            since = jnp.maximum(state.iteration - self.warm_up, 0)
            deviation = deviation_at(self.noise, self.noise_halved_after, since)
        if self.refresh == "density":
            around = 0.0 if deviation is None else deviation
            deviation = jnp.sqrt(self.bandwidth**2 + jnp.square(around))
        return candidates(state.global_prior, self.refresh, deviation, self.draws, key)

    def _explained(self, state: PaperState, draws: PyTree, batch: TaskBatch) -> EStep:
        """The E-step: every cluster and every candidate adapted to every task."""
        clusters, rows = state.clusters, state.clusters.capacity
        params = jax.tree.map(lambda *both: jnp.concatenate(both), clusters.params, draws)
        there = jnp.append(clusters.alive, jnp.ones(self.draws, dtype=bool))
        found = assessments(self.task_model, params, batch, there)
        evidence = found.evidence
        if self.adapted_precision:
            evidence = evidence + log_adapted_priors(
                self.task_model, self.adapted_precision, params, batch, there
            )
        length = self.window + self.window_growth * (clusters.count() - 1)
        zeta = self.zeta(clusters.count(), jnp.sum(state.sizes), jnp.sum(batch.real))
        places = log_places(state.counts.counts(length), zeta, self.coefficient)
        known = evidence[:, :rows] + places[:-1]

        def with_draw(fresh: Float[Array, " tasks"]) -> Float[Array, "tasks places"]:
            joint = jnp.concatenate([known, (fresh + places[-1])[:, None]], axis=1)
            return responsibilities(joint, jnp.append(clusters.alive, True), self.temperature)

        return EStep(
            found=jax.tree.map(lambda leaf: leaf[:, :rows], found),
            without=responsibilities(known, clusters.alive, self.temperature),
            shares=jax.vmap(with_draw, in_axes=1)(evidence[:, rows:]),
        )

    def _learned(
        self,
        state: PaperState,
        batch: TaskBatch,
        draws: PyTree,
        seen: EStep,
        opened: Bool[Array, ""],
        cooling: Int[Array, ""],
    ) -> tuple[PaperState, Float[Array, "tasks clusters"]]:
        """The M-step, after a cluster was perhaps opened, and each cluster's share of each task."""
        clusters, optimiser = state.clusters, self.optimiser()
        newborn = jnp.argmin(clusters.alive)
        losses = query_losses(self.task_model, batch)
        if self.averaged == "gradients":
            taken, fresh = jnp.mean(seen.shares, axis=0), state.global_prior.mean()
        else:
            best = jnp.argmax(jnp.sum(jnp.where(batch.real, seen.shares[..., -1], 0), axis=-1))
            taken, fresh = seen.shares[best], jax.tree.map(lambda leaf: leaf[best], draws)
        taken = taken[:, :-1].at[:, newborn].set(taken[:, -1])
        shares = jnp.where(batch.real[:, None], jnp.where(opened, taken, seen.without), 0)
        clusters = clusters.put(newborn, fresh, optimiser.init(fresh), opened)

        order = jnp.arange(clusters.capacity)
        newest = jnp.where(opened, newborn, state.newest)
        frozen = (cooling > 0) & (clusters.count() > 1)
        may_learn = (order == newest) | ~frozen
        if self.averaged == "gradients":
            may_learn &= ~(opened & (order == newborn))
        clusters = update_each(
            self.task_model, clusters, losses, shares, batch.real, optimiser, may_learn
        )
        if self.averaged == "gradients":
            begin = partial(with_mean_gradient, self.task_model, optimiser, fresh, draws, losses)
            params, begun = jax.lax.cond(
                opened,
                lambda: begin(seen.shares[..., -1], batch.real),
                lambda: (fresh, optimiser.init(fresh)),
            )
            clusters = clusters.put(newborn, params, begun, opened)
        state = dataclasses.replace(
            state,
            clusters=clusters,
            newest=newest,
            cooling=self._cooled(cooling, opened),
            born=jnp.where(opened & (order == newborn), state.iteration, state.born),
        )
        return state, shares

    def _counted(
        self,
        state: PaperState,
        batch: TaskBatch,
        shares: Float[Array, "tasks clusters"],
        key: Key[Array, ""],
    ) -> PaperState:
        """What is remembered of the batch."""
        total = jnp.sum(shares, axis=0)
        kept = state.validation
        if kept is not None:
            kept, _ = kept.offer(batch, batch.real, key)
        return dataclasses.replace(
            state,
            counts=state.counts.push(shares),
            sizes=state.sizes + total,
            recent=state.recent + total,
            validation=kept,
            iteration=state.iteration + 1,
        )

    def _pruned(self, state: PaperState) -> PaperState:
        """Without the clusters that a heuristic finds, when it is time for a look."""
        if self.prune == "never":
            return state
        look = due(state.iteration, self.prune_every, self.warm_up) & (state.cooling == 0)
        alive = state.clusters.alive
        if self.prune == "few":
            there = state.iteration - state.born >= self.prune_every
            gone = with_few_tasks(state.recent, alive, there, self.prune_share)
        else:
            gone = jax.lax.cond(look, self._alike, lambda _: jnp.zeros_like(alive), state)
        gone = gone & look
        clusters = Clusters(state.clusters.params, state.clusters.optimiser, alive & ~gone)
        return dataclasses.replace(
            state,
            clusters=clusters,
            counts=state.counts.without(gone),
            sizes=jnp.where(gone, 0, state.sizes),
            recent=jnp.where(look, 0, state.recent),
            newest=jnp.where(gone[state.newest], jnp.argmax(clusters.alive), state.newest),
        )

    def _alike(self, state: PaperState) -> Bool[Array, " clusters"]:
        """The smaller of two clusters that take the validation tasks with the same odds."""
        assert state.validation is not None, "kept where clusters are compared"
        tasks, clusters = state.validation.tasks, state.clusters

        def all_tasks(params: PyTree) -> Float[Array, " tasks"]:
            one = partial(self.task_model.evidence, params)
            return over_rows(self.task_model, one)(tasks.support)

        found = for_each_cluster(self.task_model, all_tasks, clusters.params, clusters.alive)
        evidence = found.T / self.temperature
        shares = responsibilities(evidence, clusters.alive)
        ratios = odds_ratios(evidence, shares, state.validation.filled)
        return like_a_larger_one(ratios, clusters.alive, state.sizes, self.prune_odds)

    def _cooling(self, state: PaperState, batch: TaskBatch) -> Int[Array, ""]:
        """Iterations of cool-down left at this batch; a boundary ends it for who is told."""
        if not self.boundaries or batch.hints is None or batch.hints.boundary is None:
            return state.cooling
        return jnp.where(batch.hints.boundary, 0, state.cooling)

    def _cooled(self, cooling: Int[Array, ""], opened: Bool[Array, ""]) -> Int[Array, ""]:
        if self.boundaries:
            return jnp.where(opened, 1, cooling)
        return cooled(cooling, opened, self.cool_down)
