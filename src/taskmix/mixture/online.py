"""The online mixture: recognises regimes, opens clusters for new ones, protects the rest.

It keeps the paper's idea, a Dirichlet process over initialisations, and replaces what
did not work in it: the likelihood is calibrated per cluster, evidence is pooled over a
batch and the batches before it, and only the cluster that a batch belongs to is updated.
docs/model.md states the model and compares it with the paper's rule.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from taskmix.adaptation import Adaptation, meta_gradient, meta_optimiser
from taskmix.learner import Info, Prediction, Told
from taskmix.likelihood import Gaussian, Likelihood, masked_mean
from taskmix.mixture.calibration import Typical, log_loss, signature, support_log_loss
from taskmix.mixture.clusters import Clusters, as_rows, grown, with_rows
from taskmix.mixture.regimes import RegimeFilter, Regimes, grown_regimes, summarise
from taskmix.mixture.responsibilities import (
    Judgement,
    for_each_cluster,
    judge,
    mix,
    responsibilities,
    spread,
)
from taskmix.mixture.spawning import cooled
from taskmix.mixture.update import query_losses, update_one
from taskmix.models import MLP, Model, for_each, parameter_count
from taskmix.tasks import Examples, Hints, TaskBatch


class OnlineState(eqx.Module):
    clusters: Clusters
    averaged: PyTree
    """Parameters of the clusters, averaged over their recent updates: what judges tasks."""
    regimes: Regimes
    query: Typical
    """Signatures of the query sets of each cluster's own tasks."""
    support: Typical
    """The same of their support sets."""
    tasks: Float[Array, " clusters"]
    """How many tasks each cluster has learned from."""
    global_prior: PyTree
    """Where a cluster starts that has nothing to inherit."""
    newest: Int[Array, ""]
    """The cluster that was opened last."""
    cooling: Int[Array, ""]
    """Batches until the next spawn is allowed."""
    boundary_open: Bool[Array, ""]
    """Whether a boundary was announced since the last spawn (only if told)."""


@dataclasses.dataclass(frozen=True)
class OnlineMixture:
    """A mixture of initialisations that grows with the kinds of tasks it meets."""

    model: Model = MLP()
    likelihood: Likelihood = Gaussian()
    adaptation: Adaptation = Adaptation()
    meta_rate: float = 1e-3
    anneal_over: int = 0
    """Iterations over which the meta rate falls to zero; 0 keeps it."""
    hazard: float = 1e-4
    """Probability, per batch, that the regime changes."""
    concentration: float = 1.0
    """Weight of a new regime beside the number of times that old ones were entered."""
    breadth: float = 1.0
    """How far a new regime's mean log loss may lie from a known one's, in task spreads."""
    memory: int = 20
    """Batches over which evidence for a new regime is pooled."""
    wander: float = 0.05
    """How far a cluster's own mean log loss may stray as it learns, in task spreads."""
    certainty: float = 0.999
    """Probability of a new regime that opens a cluster."""
    cool_down: int = 1000
    """Batches after a birth before the next: a young cluster's losses still fall."""
    calibration_rate: float = 0.02
    """Floor of the rate at which a cluster's calibration follows its losses."""
    averaging_rate: float = 0.02
    """Floor of the rate at which the averaged parameters follow the trained ones."""
    independence: float = 0.7
    """Fraction of a task's residuals that count as independent of each other."""
    parts: int = 5
    """Parts a support set is cut into, every two of which are held out once; 0: none is."""
    capacity: int = 4
    """Clusters to make room for at the start; doubles when needed."""
    boundaries: bool = False
    """Be told when a phase begins, and open clusters only then."""

    def __post_init__(self) -> None:
        self._filter()
        for name in ("calibration_rate", "averaging_rate"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must lie between 0 and 1.")
        for name in ("meta_rate", "independence"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be positive.")
        for name, least in (("cool_down", 1), ("capacity", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least {least}.")
        if self.parts < 3 and self.parts != 0:
            raise ValueError(f"parts is {self.parts}; it must be 0, or at least 3.")
        if not 0.5 < self.certainty < 1:
            raise ValueError(f"certainty is {self.certainty}; it must lie between 0.5 and 1.")

    @property
    def told(self) -> Told:
        return Told.BOUNDARIES if self.boundaries else Told.NOTHING

    def init(self, key: Key[Array, ""], example: TaskBatch) -> OnlineState:
        params = self.model.init(key)
        rows = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (self.capacity, *leaf.shape)), params
        )
        first = jnp.arange(self.capacity) == 0
        described = jax.eval_shape(self.likelihood.describe, example.query.x, example.query.mask)
        statistics = 1 + described.shape[-1]
        return OnlineState(
            clusters=Clusters.stack(rows, self._optimiser(), first),
            averaged=rows,
            regimes=self._filter().init(self.capacity, statistics),
            query=Typical.unknown(self.capacity, statistics),
            support=Typical.unknown(self.capacity, statistics),
            tasks=jnp.zeros(self.capacity),
            global_prior=params,
            newest=jnp.zeros((), dtype=int),
            cooling=jnp.asarray(self.cool_down, dtype=int),
            boundary_open=jnp.asarray(False),
        )

    def step(
        self, state: OnlineState, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[OnlineState, Info]:
        batch = batch.without_padding_values()
        clusters = state.clusters
        judged = judge(
            self.model, self.likelihood, self.adaptation, state.averaged, batch, clusters.alive
        )
        log_losses = log_loss(judged.query_loss)
        scale = self._scale(log_losses, batch.query.count()[:, None])
        inputs = self.likelihood.describe(batch.query.x, batch.query.mask)
        signatures = signature(log_losses, inputs[:, None])
        regimes, verdict = self._filter().judge(
            state.regimes, summarise(signatures, scale), state.query, clusters.alive
        )

        # While no cluster may be opened, novelty has no consequences: a young cluster's
        # losses fall fast, and that alone looks new.
        suspicion = jnp.where(self._may_spawn(state, batch), verdict.new, 0.0)
        opened = suspicion > self.certainty
        newborn = clusters.count()
        index = jnp.where(opened, newborn, jnp.argmax(verdict.belief))
        clusters, parent = self._born(state, judged, batch, newborn, opened)
        regimes = self._filter().born(regimes, newborn, opened)
        query = state.query.put(newborn, state.query.heir(parent), opened)
        support = state.support.put(newborn, state.support.heir(parent), opened)

        # What the batch may teach its cluster: nothing while it is likely of a new kind,
        # and nothing to older clusters while a newborn finds its level.
        share = jnp.where(opened, 1.0, verdict.belief[index] * (1 - suspicion))
        newest = jnp.where(opened, newborn, state.newest)
        own_params, _ = clusters.take(index)
        gradient, result = meta_gradient(
            self.model, self.likelihood, self.adaptation, own_params, batch
        )
        own = jnp.where(opened, result.loss, judged.query_loss[:, index])
        learns = (share > 0.5) & ((index == newest) | (state.cooling == 0))
        learns &= jnp.all(jnp.isfinite(result.loss)) & jnp.all(jnp.isfinite(own))
        clusters = update_one(clusters, index, gradient, self._optimiser(), share, learns)
        averaged = self._averaged(state, clusters, index, query.batches[index], learns | opened)
        own_average = jax.tree.map(lambda leaf: leaf[index], averaged)
        supports = self._some_support_signatures(own_average, batch.support)
        own_signatures = signature(log_loss(own), inputs)
        query = query.observe(index, own_signatures, self.calibration_rate, learns)
        support = support.observe(index, supports, self.calibration_rate / 4, learns)

        predicted = mix(jnp.broadcast_to(verdict.expected, log_losses.shape), judged.predicted)
        errors = self.likelihood.error(predicted, batch.query.y)
        shares = jnp.where(opened, regimes.belief, verdict.belief)
        new_state = OnlineState(
            clusters=clusters,
            averaged=averaged,
            regimes=regimes,
            query=query,
            support=support,
            tasks=state.tasks.at[index].add(jnp.where(learns, log_losses.shape[0], 0.0)),
            global_prior=state.global_prior,
            newest=newest,
            cooling=cooled(state.cooling, opened, self.cool_down),
            boundary_open=self._boundary_open(state, batch) & ~opened,
        )
        info = Info(
            loss=jnp.mean(result.loss),
            error=masked_mean(errors, batch.query.mask),
            responsibilities=jnp.broadcast_to(shares, log_losses.shape),
            clusters=clusters.count(),
            spawned=opened,
            suspicion=suspicion,
        )
        return new_state, info

    def predict(
        self,
        state: OnlineState,
        support: Examples,
        query_x: Array,
        hints: Hints | None = None,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Prediction:
        support = support.without_padding_values()
        clusters = state.clusters

        def one(params: PyTree) -> tuple[Array, Array]:
            adapted = self.adaptation(self.model, self.likelihood, params, support)
            outputs = self.model.apply(adapted, query_x, query_mask)
            return self.likelihood.predictive(outputs), self._support_loss(params, support)

        predicted, losses = for_each_cluster(self.model, one, state.averaged, clusters.alive)
        signatures = signature(losses, self.likelihood.describe(support.x, support.mask))
        evidence = state.support.log_density(signatures) + self._scale(losses, support.count())
        weights = responsibilities(evidence + jnp.log(state.tasks + 1), clusters.alive)
        novelty = jnp.where(clusters.alive, state.support.novelty(signatures), 1.0)
        noise = self.likelihood.noise(state.query.expected_loss())
        return Prediction(
            mean=mix(weights, predicted),
            variance=spread(weights, predicted, noise),
            components=predicted,
            responsibilities=weights,
            novelty=jnp.min(novelty),
        )

    def has_room(self, state: OnlineState, iterations: int) -> Bool[Array, ""]:
        births = 1 if self.boundaries else -(-iterations // self.cool_down)
        return state.clusters.count() + births <= state.clusters.capacity

    def parameters(self, state: OnlineState) -> int:
        return int(state.clusters.count()) * parameter_count(self.model)

    def grow(self, state: OnlineState) -> OnlineState:
        capacity = state.clusters.capacity
        query, support = with_rows((state.query, state.support), capacity)
        return dataclasses.replace(
            state,
            clusters=grown(state.clusters),
            averaged=with_rows(state.averaged, capacity),
            regimes=grown_regimes(state.regimes),
            query=query,
            support=support,
            tasks=jnp.concatenate([state.tasks, jnp.zeros(capacity)]),
        )

    def _filter(self) -> RegimeFilter:
        return RegimeFilter(self.hazard, self.concentration, self.breadth, self.memory, self.wander)

    def _optimiser(self) -> optax.GradientTransformation:
        return meta_optimiser(self.meta_rate, self.anneal_over)

    def _averaged(
        self,
        state: OnlineState,
        clusters: Clusters,
        index: Int[Array, ""],
        updates: Float[Array, ""],
        where: Bool[Array, ""],
    ) -> PyTree:
        """The averages after cluster ``index`` was updated once more, if ``where``.

        The last update alone is noisy: a single step can spoil a cluster for some batches,
        which then look new. A young cluster improves quickly and would lag behind itself,
        so its average goes back over a tenth of its updates only.
        """
        rate = jnp.maximum(self.averaging_rate, 10 / (updates + 10))
        chosen = (jnp.arange(clusters.capacity) == index) & where
        return jax.tree.map(
            lambda old, new: jnp.where(as_rows(chosen, old), old + rate * (new - old), old),
            state.averaged,
            clusters.params,
        )

    def _scale(
        self, log_losses: Float[Array, "*tasks clusters"], count: Int[Array, "*count"]
    ) -> Float[Array, "*tasks clusters"]:
        return self.likelihood.own_scale(jnp.exp(log_losses), self.independence * count)

    def _support_loss(self, params: PyTree, support: Examples) -> Float[Array, ""]:
        return support_log_loss(
            self.model, self.likelihood, self.adaptation, params, support, self.parts
        )

    def _some_support_signatures(
        self, params: PyTree, support: Examples
    ) -> Float[Array, "some statistics"]:
        """Of every fifth task only: each costs an adaptation per pair of parts."""
        some = jax.tree.map(lambda leaf: leaf[::5], support)
        losses = for_each(self.model, partial(self._support_loss, params))(some)
        return signature(losses, self.likelihood.describe(some.x, some.mask))

    def _may_spawn(self, state: OnlineState, batch: TaskBatch) -> Bool[Array, ""]:
        room = state.clusters.count() < state.clusters.capacity
        if self.boundaries:
            return room & self._boundary_open(state, batch)
        return room & (state.cooling == 0)

    def _boundary_open(self, state: OnlineState, batch: TaskBatch) -> Bool[Array, ""]:
        if batch.hints is None or not self.boundaries:
            return state.boundary_open
        return state.boundary_open | batch.hints.boundary

    def _born(
        self,
        state: OnlineState,
        judged: Judgement,
        batch: TaskBatch,
        newborn: Int[Array, ""],
        where: Bool[Array, ""],
    ) -> tuple[Clusters, Int[Array, ""]]:
        """Open a cluster where asked, and say which one it is most like.

        The base measure has an atom at every cluster and one at the global prior; the
        newborn starts from the one that does best on its first batch.
        """
        clusters = state.clusters
        mean_losses = jnp.mean(log_loss(judged.query_loss), axis=0)
        parent = jnp.argmin(jnp.where(clusters.alive, mean_losses, jnp.inf))
        losses = query_losses(self.model, self.likelihood, self.adaptation, batch)
        blank = jax.lax.cond(
            where, lambda: jnp.mean(log_loss(losses(state.global_prior))), lambda: jnp.inf
        )
        inherit = mean_losses[parent] < blank
        params = jax.tree.map(
            lambda mine, fresh: jnp.where(inherit, mine[parent], fresh),
            state.averaged,
            state.global_prior,
        )
        return clusters.put(newborn, params, self._optimiser().init(params), where), parent
