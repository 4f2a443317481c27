"""PLATIPUS: MAML with a distribution over initialisations, inferred for each task.

C. Finn, K. Xu, S. Levine: Probabilistic model-agnostic meta-learning. NeurIPS 2018.
"""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from taskmix.adaptation import clip_scale, mean_gradient, over_rows, query_result, task_loss
from taskmix.adaptation.means import task_weights
from taskmix.baselines.maml import MAML, MAMLState
from taskmix.baselines.normal import DiagonalNormal
from taskmix.baselines.single import single_info, single_prediction, size
from taskmix.learner import Info, Prediction, protected
from taskmix.likelihood import Gaussian, Likelihood
from taskmix.models import check_repeated
from taskmix.tasks import Examples, Hints, TaskBatch


class PlatipusParams(eqx.Module):
    prior: DiagonalNormal
    """Initialisations before a task is seen: mu and sigma^2."""
    posterior_log_variance: PyTree
    """Logarithm of v_q."""
    prior_rate: Float[Array, ""]
    """gamma_p: how far the support set moves the mean."""
    posterior_rate: Float[Array, ""]
    """gamma_q: how far the query set moves the mean, in training."""


@dataclasses.dataclass(frozen=True)
class PLATIPUS(MAML):
    """Infer a distribution over initialisations, adapt a sample of it, and average.

    With the support set S and the query set Q of a task and L their mean losses,

        p = N(mu - gamma_p grad L_S(mu), sigma^2),  q = N(mu - gamma_q grad L_Q(mu), v_q),
        theta ~ q,  phi = theta adapted to S,  minimise L_Q(phi) + kl_weight c KL(q || p) / |Q|,

    where c is what a nat comes to in the loss: 2 for squared errors, else 1.

    At prediction theta is drawn from p. Gradients of mu are clipped like those of the
    adaptation.

    Examples
    --------
    >>> PLATIPUS(samples=2).told.value
    'nothing'
    """

    kl_weight: float = 0.025
    """Weight of the divergence beside the summed query loss; 1 is the evidence lower bound. With
    less the prior learns sooner, but where tasks are hard the posterior may come to copy the query
    set, and then 1 is better (docs/baselines.md)."""
    initial_log_variance: float = -8.0
    """Logarithm of all variances at the beginning."""
    initial_rate: float = 0.01
    """Both learned rates at the beginning."""
    samples: int = 5
    """Initialisations that a prediction averages over, drawn from a fixed key."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_repeated(samples=self.samples)
        if not math.isfinite(self.initial_log_variance):
            raise ValueError(
                f"initial_log_variance is {self.initial_log_variance}; it must be finite."
            )
        for name in ("kl_weight", "initial_rate"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be 0 or more.")

    def init(self, key: Key[Array, ""], example: TaskBatch) -> MAMLState:
        prior = DiagonalNormal.around(self.model.init(key), self.initial_log_variance)
        # The product has the type of an array, which a later state has as well.
        rate = self.initial_rate * jnp.ones(())
        params = PlatipusParams(prior, prior.log_variance, rate, rate)
        return MAMLState(params, self._begin(params))

    @protected
    def step(
        self, state: MAMLState, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[MAMLState, Info]:
        """The error is that of ``predict``: what is differentiated has seen the query set."""
        batch = batch.without_padding_values()
        keys = jax.random.split(key, batch.query.mask.shape[0])
        tasks, weights = (batch.support, batch.query, keys), task_weights(batch)
        gradient, loss = mean_gradient(
            self.model, self._objective, state.params, *tasks, weights=weights
        )
        errors = self._errors_of_prediction(state, batch)
        moved = self._moved(state.params, state.optimiser, gradient)
        return moved, single_info(loss, errors, batch)

    def predict(
        self,
        state: MAMLState,
        support: Examples,
        query_x: Array,
        hints: Hints | None = None,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Prediction:
        """Mean and variance of what the samples predict."""
        support = support.without_padding_values()
        prior = self._prior(state.params, support)

        def one(key: Key[Array, ""]) -> Float[Array, "query outputs"]:
            adapted = self._adapt(prior.sample(key), support)
            return self.likelihood.predictive(self.model.apply(adapted, query_x, query_mask))

        each = over_rows(self.model, one)(jax.random.split(jax.random.key(0), self.samples))
        return single_prediction(jnp.mean(each, axis=0), jnp.var(each, axis=0))

    def published_parameters(self, state: MAMLState) -> int:
        """Means and variances of the network alone, which is what comparisons print.

        ``parameters`` counts everything that is learned: v_q and the two rates as well.
        """
        return size(state.params.prior)

    def _objective(
        self, params: PlatipusParams, support: Examples, query: Examples, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """L_Q(phi) + kl_weight c KL(q || p) / |Q| of one task, to differentiate and to report."""
        posterior = DiagonalNormal(
            self._moved_mean(params.prior.mean, params.posterior_rate, query),
            params.posterior_log_variance,
        )
        adapted = self._adapt(posterior.sample(key), support)
        outputs = self.model.apply(adapted, query.x, query.mask)
        result = query_result(self.likelihood, outputs, query)
        divergence = posterior.divergence(self._prior(params, support))
        weight = self.kl_weight * loss_per_nat(self.likelihood)
        loss = result.loss + weight * divergence / jnp.maximum(1, jnp.sum(query.mask))
        return loss, loss

    def _prior(self, params: PlatipusParams, support: Examples) -> DiagonalNormal:
        """p, the distribution of initialisations given the support set."""
        mean = self._moved_mean(params.prior.mean, params.prior_rate, support)
        return DiagonalNormal(mean, params.prior.log_variance)

    def _moved_mean(self, mean: PyTree, rate: Float[Array, ""], examples: Examples) -> PyTree:
        """mu - rate * clip(grad L(mu)), over everything the network has."""
        step = jax.grad(lambda p: task_loss(self.model, self.likelihood, p, examples))(mean)
        if self.adaptation.first_order:
            step = jax.lax.stop_gradient(step)
        scale = rate * clip_scale(step, self.adaptation.clip)
        return jax.tree.map(lambda m, g: m - scale * g, mean, step)


def loss_per_nat(likelihood: Likelihood) -> float:
    """What a nat of log-likelihood comes to in the loss.

    A squared error is minus the log-density of a normal distribution times twice its variance, but
    for a constant; other losses are minus the log-probability.
    """
    return 2.0 * likelihood.variance if isinstance(likelihood, Gaussian) else 1.0
