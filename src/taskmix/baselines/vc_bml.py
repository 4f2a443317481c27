"""VC-BML: a truncated Dirichlet process of normal initialisations, by variational inference.

Q. Zhang, J. Fang, Z. Meng, S. Liang, E. Yilmaz: Variational continual Bayesian meta-learning.
NeurIPS 2021.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import optax
from jax.scipy.special import digamma
from jaxtyping import Array, Bool, Float, Key, PyTree

from taskmix.adaptation import over_rows, query_result
from taskmix.adaptation.gradient import fit
from taskmix.adaptation.means import query_errors, task_weights, weighted_mean
from taskmix.baselines.consolidation import begins_phase, choose
from taskmix.baselines.maml import Initialisation, MAMLState
from taskmix.baselines.normal import DiagonalNormal
from taskmix.baselines.single import size
from taskmix.learner import Info, Prediction, Told, protected
from taskmix.mixture.responsibilities import mix, responsibilities
from taskmix.mixture.update import weighted
from taskmix.models import check_repeated
from taskmix.tasks import Examples, Hints, TaskBatch


class VCBMLState(MAMLState):
    """``params`` are the posteriors of the components, along a leading axis."""

    prior: DiagonalNormal
    """Of the components: their posteriors when the last phase ended."""
    prior_sticks: Float[Array, "2 sticks"]
    """Parameters of the beta distributions of the stick-breaking weights, likewise."""
    sticks: Float[Array, "2 sticks"]
    begun: Bool[Array, ""]
    """Whether anything was learned yet."""


@dataclasses.dataclass(frozen=True)
class VCBML(Initialisation):
    """Components q_k over initialisations, with stick-breaking weights, told where phases begin.

    A task's responsibilities are proportional to exp(E[log weight_k] + E_{q_k}[log p(support |
    adapted)]). Component k minimises the mean over tasks of responsibility times expected query
    loss, plus KL(q_k || q_k when the last phase ended) / ``phase_tasks``.

    Examples
    --------
    >>> VCBML(components=2).told.value
    'boundaries'
    """

    components: int = 4
    """Truncation of the Dirichlet process; the paper has 6."""
    concentration: float = 1.0
    """Of the Dirichlet process."""
    phase_tasks: int = 200
    """Tasks of a phase: how little each of them says against the prior."""
    initial_log_variance: float = -10.0
    """Logarithm of all variances at the beginning."""
    samples: int = 2
    """Initialisations drawn of each component for a step; the paper has 5."""
    test_samples: int = 3
    """Initialisations drawn of each component for a prediction, from a fixed key."""

    told = Told.BOUNDARIES

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.concentration > 0:
            raise ValueError(f"concentration is {self.concentration}; it must be positive.")
        if not math.isfinite(self.initial_log_variance):
            raise ValueError(
                f"initial_log_variance is {self.initial_log_variance}; it must be finite."
            )
        if self.components < 2:
            raise ValueError(f"components is {self.components}; it must be at least 2.")
        if self.phase_tasks < 1:
            raise ValueError(f"phase_tasks is {self.phase_tasks}; it must be at least 1.")
        check_repeated(samples=self.samples, test_samples=self.test_samples)

    def init(self, key: Key[Array, ""], example: TaskBatch) -> VCBMLState:
        means = jax.vmap(self.model.init)(jax.random.split(key, self.components))
        posterior = DiagonalNormal.around(means, self.initial_log_variance)
        standard = jax.tree.map(jnp.zeros_like, posterior)
        sticks = jnp.stack(
            [jnp.ones(self.components - 1), jnp.full(self.components - 1, self.concentration)]
        )
        return VCBMLState(
            posterior,
            jax.vmap(self._begin)(posterior),
            standard,
            sticks,
            sticks,
            jnp.asarray(False),
        )

    @protected
    def step(
        self, state: VCBMLState, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[VCBMLState, Info]:
        batch = batch.without_padding_values()
        ended = begins_phase(batch) & state.begun
        prior, prior_sticks = choose(
            ended, (state.params, state.sticks), (state.prior, state.prior_sticks)
        )
        weights = task_weights(batch)
        before = dataclasses.replace(state, prior=prior, prior_sticks=prior_sticks)
        told = over_rows(
            self.model, lambda support, x, mask: self._predicted_parts(before, support, x, mask)
        )(batch.support, batch.query.x, batch.query.mask)
        shares, means = told
        gradient, losses = self._gradients(state.params, prior, batch, shares, weights, key)
        updates, optimiser = jax.vmap(self._optimiser().update)(gradient, state.optimiser)
        after = VCBMLState(
            optax.apply_updates(state.params, updates),
            optimiser,
            prior,
            prior_sticks,
            broken_sticks(prior_sticks, weights @ shares),
            jnp.asarray(True),
        )
        loss = jnp.sum(weighted(shares, losses), axis=1)
        info = Info(
            loss=weighted_mean(loss, weights),
            error=query_errors(self.likelihood, mix(shares, means), batch),
            responsibilities=jnp.where(batch.real[:, None], shares, 0),
            alive=jnp.ones(self.components, dtype=bool),
            spawned=jnp.asarray(False),
            alarm=jnp.asarray(False),
            suspicion=jnp.asarray(0.0),
        )
        return after, info

    def predict(
        self,
        state: MAMLState,
        support: Examples,
        query_x: Array,
        hints: Hints | None = None,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Prediction:
        support = support.without_padding_values()
        shares, means = self._predicted_parts(state, support, query_x, query_mask)
        return Prediction(mean=mix(shares, means), components=means, responsibilities=shares)

    def parameters(self, state: MAMLState) -> int:
        return size(state.params)

    def _predicted_parts(
        self,
        state: MAMLState,
        support: Examples,
        query_x: Array,
        query_mask: Bool[Array, " query"] | None,
    ) -> tuple[Float[Array, " components"], Float[Array, "components query outputs"]]:
        """Responsibilities of one task, and what each component predicts on average."""
        assert isinstance(state, VCBMLState), "the state that this learner made"

        def one(component: DiagonalNormal) -> tuple[Array, Array]:
            def drawn(key: Key[Array, ""]) -> tuple[Array, Array]:
                adapted = self._adapt(component.sample(key), support)
                outputs = self.model.apply(adapted, query_x, query_mask)
                evidence = fit(self.model, self.likelihood, adapted, support)
                return evidence, self.likelihood.predictive(outputs)

            keys = jax.random.split(jax.random.key(0), self.test_samples)
            return jax.tree.map(
                lambda leaf: jnp.mean(leaf, axis=0), over_rows(self.model, drawn)(keys)
            )

        evidence, means = over_rows(self.model, one)(state.params)
        joint = evidence + log_weights(state.sticks)
        return responsibilities(joint, jnp.ones(self.components, dtype=bool)), means

    def _gradients(
        self,
        posterior: DiagonalNormal,
        prior: DiagonalNormal,
        batch: TaskBatch,
        shares: Float[Array, "tasks components"],
        weights: Float[Array, " tasks"],
        key: Key[Array, ""],
    ) -> tuple[DiagonalNormal, Float[Array, "tasks components"]]:
        """Gradient of every component's objective, and the loss of each task in it."""

        def one(
            component: DiagonalNormal, before: DiagonalNormal, share: Array, key: Key[Array, ""]
        ) -> tuple[DiagonalNormal, Float[Array, " tasks"]]:
            def objective(q: DiagonalNormal) -> tuple[Array, Float[Array, " tasks"]]:
                losses = self._expected_losses(q, batch, key)
                cost = weighted_mean(weighted(share, losses), weights)
                return cost + q.divergence(before) / self.phase_tasks, losses

            return jax.grad(objective, has_aux=True)(component)

        keys = jax.random.split(key, self.components)
        fixed = jax.lax.stop_gradient(shares).T
        gradient, losses = over_rows(self.model, one)(posterior, prior, fixed, keys)
        return gradient, losses.T

    def _expected_losses(
        self, component: DiagonalNormal, batch: TaskBatch, key: Key[Array, ""]
    ) -> Float[Array, " tasks"]:
        """The query loss of each task, averaged over draws of the component."""

        def drawn(key: Key[Array, ""]) -> Float[Array, " tasks"]:
            params: PyTree = component.sample(key)

            def task(support: Examples, query: Examples) -> Float[Array, ""]:
                outputs = self.model.apply(self._adapt(params, support), query.x, query.mask)
                return query_result(self.likelihood, outputs, query).loss

            return over_rows(self.model, task)(batch.support, batch.query)

        each = over_rows(self.model, drawn)(jax.random.split(key, self.samples))
        return jnp.mean(each, axis=0)


def log_weights(sticks: Float[Array, "2 sticks"]) -> Float[Array, " components"]:
    """E[log weight_k] of sticks that are broken with beta-distributed shares.

    E[log v_k] + sum_{l<k} E[log(1 - v_l)], where v of the last component is 1.
    """
    total = digamma(jnp.sum(sticks, axis=0))
    taken, left = digamma(sticks[0]) - total, digamma(sticks[1]) - total
    before = jnp.concatenate([jnp.zeros(1), jnp.cumsum(left)])
    return before + jnp.append(taken, 0.0)


def broken_sticks(
    prior: Float[Array, "2 sticks"], tasks: Float[Array, " components"]
) -> Float[Array, "2 sticks"]:
    """Posterior of the sticks, given how many tasks went to each component.

    The first parameter counts tasks of a component, the second those of all later ones.
    """
    later = jnp.cumsum(tasks[::-1])[::-1][1:]
    return prior + jnp.stack([tasks[:-1], later])
