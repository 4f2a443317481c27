"""MOCA: a filter over how long ago the kind of tasks changed, above an ALPaCA learner.

J. Harrison, A. Sharma, C. Finn, M. Pavone: Continuous meta-learning without tasks. NeurIPS 2020.
R. Adams, D. MacKay: Bayesian online changepoint detection. 2007 (the filter).
"""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Bool, Float, Key, PyTree

from taskmix.adaptation import BayesianHead, MetaOptimiser, annealed_optimiser
from taskmix.adaptation.means import query_errors, task_weights
from taskmix.adaptation.task_model import together
from taskmix.baselines.linear_gaussian import Seen, conditioned, log_normal, statistics
from taskmix.baselines.single import check_positive, single_info, size
from taskmix.learner import Info, Prediction, Told, protected
from taskmix.likelihood import Gaussian, Likelihood
from taskmix.tasks import Examples, Hints, TaskBatch

LEAST_NOISE = 1e-3
"""Added to the noise variance, so that float32 can factor what it has to."""


class MOCAParams(eqx.Module):
    """What is learned: features, and two levels of a normal prior of the last layer."""

    features: PyTree
    location: Float[Array, " width"]
    """Mean of a kind's own mean."""
    kind_factor: Float[Array, "width width"]
    """Factor of the covariance of a kind's mean."""
    task_factor: Float[Array, "width width"]
    """Factor of the covariance of a task's last layer around the mean of its kind."""
    log_noise: Float[Array, ""]


class Runs(eqx.Module):
    """Beliefs about when the present run began, and what each of them knows of its kind.

    The first is that it begins with the next batch, so that nothing is known; the last that it is
    at least so many batches old.
    """

    log_belief: Float[Array, " runs"]
    precision: Float[Array, "runs width width"]
    """Of the kind's mean, beyond its prior."""
    information: Float[Array, "runs width"]
    """Precision times mean, beyond the prior."""


class MOCAState(eqx.Module):
    params: MOCAParams
    optimiser: PyTree
    runs: Runs


@dataclasses.dataclass(frozen=True)
class MOCA:
    """A Bayesian last layer whose prior mean follows the tasks of the present run.

    y_j = phi(x)' w_j + noise with w_j ~ N(m, S) in a run, and m ~ N(m_0, S_0) when one begins,
    which it does with probability ``hazard`` per batch. Every belief about when it began has the
    exact posterior of m; a batch weighs them by its likelihood. Features and priors are learned by
    the gradient of the likelihood of the batch, what is known of the past being constant.

    Examples
    --------
    >>> MOCA(longest=4).told.value
    'nothing'
    """

    task_model: BayesianHead = BayesianHead()
    """Whose features, and inputs beside them, the last layer stands on."""
    meta_rate: float = 2e-3
    """Rate of the optimiser that learns across tasks."""
    meta_clip: float = 1.0
    """Largest norm of a gradient; longer ones are scaled down."""
    anneal_over: int = 0
    """Updates over which the meta rate falls to zero; 0 keeps it."""
    hazard: float = 0.01
    """Probability that a run ends with a batch."""
    longest: int = 20
    """Batches of a run that are told apart; an older one forgets what came before them."""
    meta_optimiser: MetaOptimiser = dataclasses.field(default=optax.adam, kw_only=True)
    """From a rate, or a schedule of rates, to what makes updates of gradients: one of optax's."""

    told = Told.NOTHING

    def __post_init__(self) -> None:
        check_positive(meta_rate=self.meta_rate)
        if not 0 < self.hazard < 1:
            raise ValueError(f"hazard is {self.hazard}; it must lie between 0 and 1.")
        if self.longest < 1:
            raise ValueError(f"longest is {self.longest}; it must be at least 1.")
        if not isinstance(self.task_model, BayesianHead):
            raise ValueError(
                f"task_model is {type(self.task_model).__name__}; MOCA needs a BayesianHead."
            )
        if not isinstance(self.likelihood, Gaussian) or self.task_model.outputs != 1:
            raise ValueError(
                f"The task model has {self.task_model.outputs} outputs and a "
                f"{type(self.likelihood).__name__} likelihood; MOCA here predicts one number, as "
                f"class numbers of one task mean nothing in the next."
            )
        _ = self._optimiser()

    @property
    def likelihood(self) -> Likelihood:
        return self.task_model.likelihood

    @property
    def one_at_a_time(self) -> bool:
        return self.task_model.one_at_a_time

    def init(self, key: Key[Array, ""], example: TaskBatch) -> MOCAState:
        head, runs = self.task_model, self.longest + 1
        width = head.width + head.inputs + 1
        params = MOCAParams(
            features=head.features.init(key),
            location=jnp.zeros(width),
            kind_factor=0.5 * jnp.eye(width),
            task_factor=0.5 * jnp.eye(width),
            log_noise=math.log(0.5) * jnp.ones(()),
        )
        beliefs = Runs(
            log_belief=jnp.zeros(runs).at[1:].set(-1e9),
            precision=jnp.zeros((runs, width, width)),
            information=jnp.zeros((runs, width)),
        )
        return MOCAState(params, self._optimiser().init(params), beliefs)

    @protected
    def step(
        self, state: MOCAState, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[MOCAState, Info]:
        batch = batch.without_padding_values()
        predicted = jax.vmap(
            lambda support, query: self._predicted(state, support, query.x, query.mask)[0]
        )(batch.support, batch.query)
        gradient, (evidence, seen) = jax.grad(self._objective, has_aux=True)(
            state.params, state.runs, batch
        )
        updates, optimiser = self._optimiser().update(gradient, state.optimiser, state.params)
        params = optax.apply_updates(state.params, updates)
        weights = task_weights(batch)
        runs = followed(state.runs, weights @ evidence, seen.total(weights), self.hazard)
        anything = jnp.any(batch.real)
        after = MOCAState(params, optimiser, runs)
        after = jax.tree.map(lambda new, old: jnp.where(anything, new, old), after, state)
        count = jnp.sum(batch.support.mask, -1) + jnp.sum(batch.query.mask, -1)
        loss = -jax.nn.logsumexp(state.runs.log_belief + evidence, axis=-1)
        errors = query_errors(self.likelihood, predicted, batch)
        return after, single_info(loss / jnp.maximum(count, 1), errors, batch)

    def predict(
        self,
        state: MOCAState,
        support: Examples,
        query_x: Array,
        hints: Hints | None = None,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Prediction:
        mean, variance, noise = self._predicted(
            state, support.without_padding_values(), query_x, query_mask
        )
        return Prediction(
            mean=mean,
            components=mean[None],
            responsibilities=jnp.ones(1),
            variance=variance,
            noise=noise,
        )

    def parameters(self, state: MOCAState) -> int:
        return size(state.params)

    def _predicted(
        self,
        state: MOCAState,
        support: Examples,
        query_x: Array,
        query_mask: Bool[Array, " query"] | None,
    ) -> tuple[Float[Array, "query 1"], Float[Array, "query 1"], Float[Array, "query 1"]]:
        """The mixture over beliefs, weighed by the likelihood of the support set as well."""
        params = state.params
        phi = self._phi(params, support.x, support.mask)
        aside = self._phi(params, query_x, query_mask)
        noise = _noise(params)
        location, covariance = kinds(params, state.runs)

        def one(
            mean: Float[Array, " width"], spread: Float[Array, "width width"]
        ) -> tuple[Array, Array, Array]:
            whole = spread + params.task_factor @ params.task_factor.T
            return conditioned(mean, whole, phi, support.y[:, 0], support.mask, aside, noise)

        evidence, means, variances = jax.vmap(one)(location, covariance)
        belief = jax.nn.softmax(state.runs.log_belief + evidence)
        mean = belief @ means
        variance = belief @ (variances + jnp.square(means - mean)) + noise
        return mean[:, None], variance[:, None], jnp.full((*mean.shape, 1), noise)

    def _objective(
        self, params: MOCAParams, runs: Runs, batch: TaskBatch
    ) -> tuple[Float[Array, ""], tuple[Float[Array, "tasks runs"], Seen]]:
        """Minus the log-likelihood of the batch per example under the filter, and its parts."""
        location, covariance = kinds(params, runs)
        noise, own = _noise(params), params.task_factor @ params.task_factor.T

        def one(support: Examples, query: Examples) -> tuple[Float[Array, " runs"], Seen]:
            task = together(support, query)
            phi = self._phi(params, task.x, task.mask)
            evidence = jax.vmap(
                lambda mean, spread: log_normal(
                    mean, spread + own, phi, task.y[:, 0], task.mask, noise
                )
            )(location, covariance)
            return evidence, statistics(own, phi, task.y[:, 0], task.mask, noise)

        evidence, seen = jax.vmap(one)(batch.support, batch.query)
        weights = task_weights(batch)
        # All tasks of a batch belong to one run: their likelihoods multiply within a belief.
        total = jax.nn.logsumexp(runs.log_belief + weights @ evidence)
        examples = jnp.sum(batch.support.mask) + jnp.sum(batch.query.mask)
        return -total / jnp.maximum(examples, 1), (evidence, seen)

    def _phi(
        self, params: MOCAParams, x: Array, mask: Bool[Array, " examples"] | None
    ) -> Float[Array, "examples width"]:
        head = self.task_model
        parts = [head.features.apply(params.features, x, mask)]
        if head.inputs:
            parts.append(x.reshape(x.shape[0], -1) / head.input_scale)
        return jnp.concatenate([*parts, jnp.ones((x.shape[0], 1))], axis=1)

    def _optimiser(self) -> optax.GradientTransformation:
        return annealed_optimiser(
            self.meta_rate, self.anneal_over, self.meta_clip, self.meta_optimiser
        )


def kinds(
    params: MOCAParams, runs: Runs
) -> tuple[Float[Array, "runs width"], Float[Array, "runs width width"]]:
    """Mean and covariance of a kind's mean under each belief.

    With S_0 = F F' and what is known A, b the covariance is F (I + F' A F)^-1 F', which needs no
    inverse of S_0.
    """
    factor = params.kind_factor

    def one(
        precision: Float[Array, "width width"], information: Float[Array, " width"]
    ) -> tuple[Float[Array, " width"], Float[Array, "width width"]]:
        inner = jnp.eye(factor.shape[0]) + factor.T @ precision @ factor
        lower = jnp.linalg.cholesky(inner)
        covariance = factor @ cho_solve((lower, True), factor.T)
        mean = params.location + covariance @ (information - precision @ params.location)
        return mean, covariance

    return jax.vmap(one)(runs.precision, runs.information)


def followed(runs: Runs, evidence: Float[Array, " runs"], seen: Seen, hazard: float) -> Runs:
    """The beliefs after a batch: weighed by its likelihood, a batch older, or begun anew."""
    log_belief = jax.nn.log_softmax(runs.log_belief + evidence)
    precision, information = runs.precision + seen.precision, runs.information + seen.information
    older = log_belief + jnp.log1p(-hazard)
    # The two oldest become one, which knows what the likelier of them knows.
    last = jnp.where(log_belief[-1] > log_belief[-2], -1, -2)
    moved = jnp.concatenate([jnp.full(1, jnp.log(hazard)), older[:-1]])
    moved = moved.at[-1].set(jnp.logaddexp(older[-1], older[-2]))

    def shifted(leaf: Array) -> Array:
        return jnp.concatenate([jnp.zeros_like(leaf[:1]), leaf[:-1]]).at[-1].set(leaf[last])

    return Runs(moved, shifted(precision), shifted(information))


def _noise(params: MOCAParams) -> Float[Array, ""]:
    return LEAST_NOISE + jnp.exp(2 * params.log_noise)
