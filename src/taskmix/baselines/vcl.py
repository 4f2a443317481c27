"""Variational continual learning of MAML's initialisation, told where phases begin.

C. Nguyen, Y. Li, T. Bui, R. Turner: Variational continual learning. ICLR 2018.
"""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Key, PyTree

from taskmix.baselines.consolidation import begins_phase, choose, plus_scaled
from taskmix.baselines.maml import Initialisation, MAMLState
from taskmix.baselines.single import single_info, single_prediction
from taskmix.learner import Info, Prediction, Told
from taskmix.likelihood import masked_mean
from taskmix.models import for_each
from taskmix.tasks import Examples, Hints, TaskBatch


class Posterior(eqx.Module):
    """Independent normal distributions, one a parameter."""

    mean: PyTree
    log_scale: PyTree
    """Logarithm of the standard deviation."""

    def draw(self, noise: PyTree) -> PyTree:
        """mean + scale * noise, for noise from N(0, 1)."""
        return jax.tree.map(
            lambda mean, log_scale, one: mean + jnp.exp(log_scale) * one,
            self.mean,
            self.log_scale,
            noise,
        )


class VCLState(MAMLState):
    """``params`` are the posterior."""

    prior: Posterior
    begun: Bool[Array, ""]
    """Whether anything was learned yet."""


@dataclasses.dataclass(frozen=True)
class VCL(Initialisation):
    """Minimise E_q[query loss after adaptation from theta ~ q] + KL(q || p) / phase_tasks.

    q is a normal distribution with independent parameters. p is the q with which the last
    phase ended, and N(0, 1) in the first one. A prediction is the mean over initialisations
    from q, drawn with a fixed key so that it is a function of the state.
    """

    phase_tasks: int = 200
    """Tasks of a phase: how little each of them says against the prior."""
    first_log_scale: float = -4.0
    """Logarithm of the standard deviation of every parameter at the start."""
    samples: int = 2
    """Initialisations drawn for a step."""
    test_samples: int = 5
    """Initialisations drawn for a prediction."""

    told = Told.BOUNDARIES

    def __post_init__(self) -> None:
        super().__post_init__()
        if not math.isfinite(self.first_log_scale):
            raise ValueError(f"first_log_scale is {self.first_log_scale}; it must be finite.")
        for name in ("phase_tasks", "samples", "test_samples"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1.")

    def init(self, key: Key[Array, ""], example: TaskBatch) -> VCLState:
        mean = self.model.init(key)
        scale = jax.tree.map(lambda leaf: jnp.full_like(leaf, self.first_log_scale), mean)
        posterior = Posterior(mean, scale)
        prior = jax.tree.map(jnp.zeros_like, posterior)
        return VCLState(posterior, self._begin(posterior), prior, jnp.asarray(False))

    def step(self, state: VCLState, batch: TaskBatch, key: Key[Array, ""]) -> tuple[VCLState, Info]:
        batch = batch.without_padding_values()
        ended = begins_phase(batch) & state.begun
        prior = choose(ended, state.params, state.prior)
        gradient, loss = self._expected_gradient(state.params, batch, key)
        divergence_gradient = jax.grad(divergence)(state.params, prior)
        moved = self._moved(
            state.params,
            state.optimiser,
            plus_scaled(gradient, 1 / self.phase_tasks, divergence_gradient),
        )

        def error(support: Examples, query: Examples) -> Float[Array, ""]:
            predicted = self._drawn_predictions(state.params, support, query.x, query.mask)
            mean = jnp.mean(predicted, axis=0)
            return masked_mean(self.likelihood.error(mean, query.y), query.mask)

        errors = for_each(self.model, error)(batch.support, batch.query)
        after = VCLState(moved.params, moved.optimiser, prior, jnp.asarray(True))
        return after, single_info(loss, errors)

    def predict(
        self,
        state: MAMLState,
        support: Examples,
        query_x: Array,
        hints: Hints | None = None,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Prediction:
        predicted = self._drawn_predictions(state.params, support, query_x, query_mask)
        return single_prediction(jnp.mean(predicted, axis=0), jnp.var(predicted, axis=0))

    def _expected_gradient(
        self, posterior: Posterior, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[Posterior, Float[Array, " tasks"]]:
        """Gradient in mean and log scale of the expected loss, and the loss of each task.

        With theta = mean + scale * noise and g the meta-gradient in theta, these are the
        means over the noise of g and of g * scale * noise.
        """

        def one(noise: PyTree) -> tuple[Posterior, Float[Array, " tasks"]]:
            gradient, result = self._gradient(posterior.draw(noise), batch, key)
            in_scale = jax.tree.map(
                lambda g, log_scale, eps: g * jnp.exp(log_scale) * eps,
                gradient,
                posterior.log_scale,
                noise,
            )
            return Posterior(gradient, in_scale), result.loss

        drawn = for_each(self.model, one)(_noise(key, posterior.mean, self.samples))
        return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), drawn)

    def _drawn_predictions(
        self,
        posterior: Posterior,
        support: Examples,
        query_x: Array,
        query_mask: Bool[Array, " query"] | None,
    ) -> Float[Array, "samples query outputs"]:
        noise = _noise(jax.random.key(0), posterior.mean, self.test_samples)
        return for_each(
            self.model,
            lambda one: self._predicted(posterior.draw(one), support, query_x, query_mask),
        )(noise)


def divergence(q: Posterior, p: Posterior) -> Float[Array, ""]:
    """KL(q || p) = sum log(s_p / s_q) + (s_q^2 + (m_q - m_p)^2) / (2 s_p^2) - 1/2."""

    def each(mean_q: Array, log_q: Array, mean_p: Array, log_p: Array) -> Float[Array, ""]:
        apart = jnp.square(mean_q - mean_p) * jnp.exp(-2 * log_p)
        return jnp.sum(log_p - log_q + (jnp.exp(2 * (log_q - log_p)) + apart - 1) / 2)

    terms = jax.tree.map(each, q.mean, q.log_scale, p.mean, p.log_scale)
    return jnp.sum(jnp.stack(jax.tree.leaves(terms)))


def _noise(key: Key[Array, ""], like: PyTree, samples: int) -> PyTree:
    """Draws from N(0, 1) along a first axis."""
    keys = jax.random.split(key, samples)
    return jax.vmap(lambda one: optax.tree_utils.tree_random_like(one, like))(keys)
