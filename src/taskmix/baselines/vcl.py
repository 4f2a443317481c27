"""Variational continual learning of MAML's initialisation, told where phases begin.

C. Nguyen, Y. Li, T. Bui, R. Turner: Variational continual learning. ICLR 2018.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from taskmix.adaptation import over_rows
from taskmix.baselines.consolidation import begins_phase, choose, plus_scaled
from taskmix.baselines.maml import Initialisation, MAMLState
from taskmix.baselines.normal import DiagonalNormal
from taskmix.baselines.single import single_info, single_prediction
from taskmix.learner import Info, Prediction, Told, protected
from taskmix.models import check_repeated
from taskmix.tasks import Examples, Hints, TaskBatch


class VCLState(MAMLState):
    """``params`` are the posterior."""

    prior: DiagonalNormal
    begun: Bool[Array, ""]
    """Whether anything was learned yet."""


@dataclasses.dataclass(frozen=True)
class VCL(Initialisation):
    """Minimise E_q[query loss after adaptation from theta ~ q] + KL(q || p) / phase_tasks.

    q is a normal distribution with independent parameters. p is the q with which the last
    phase ended, and N(0, 1) in the first one. A prediction is the mean over initialisations
    from q, drawn with a fixed key so that it is a function of the state.

    Examples
    --------
    >>> VCL(samples=2).told.value
    'boundaries'
    """

    phase_tasks: int = 200
    """Tasks of a phase: how little each of them says against the prior."""
    initial_log_variance: float = -8.0
    """Logarithm of all variances at the beginning."""
    samples: int = 2
    """Initialisations drawn for a step."""
    test_samples: int = 5
    """Initialisations drawn for a prediction."""

    told = Told.BOUNDARIES

    def __post_init__(self) -> None:
        super().__post_init__()
        if not math.isfinite(self.initial_log_variance):
            raise ValueError(
                f"initial_log_variance is {self.initial_log_variance}; it must be finite."
            )
        if self.phase_tasks < 1:
            raise ValueError(f"phase_tasks is {self.phase_tasks}; it must be at least 1.")
        check_repeated(samples=self.samples, test_samples=self.test_samples)

    def init(self, key: Key[Array, ""], example: TaskBatch) -> VCLState:
        posterior = DiagonalNormal.around(self.model.init(key), self.initial_log_variance)
        prior = jax.tree.map(jnp.zeros_like, posterior)
        return VCLState(posterior, self._begin(posterior), prior, jnp.asarray(False))

    @protected
    def step(self, state: VCLState, batch: TaskBatch, key: Key[Array, ""]) -> tuple[VCLState, Info]:
        batch = batch.without_padding_values()
        ended = begins_phase(batch) & state.begun
        prior = choose(ended, state.params, state.prior)
        gradient, loss = self._expected_gradient(state.params, batch, key)
        divergence_gradient = jax.grad(DiagonalNormal.divergence)(state.params, prior)
        moved = self._moved(
            state.params,
            state.optimiser,
            plus_scaled(gradient, 1 / self.phase_tasks, divergence_gradient),
        )
        errors = self._errors_of_prediction(state, batch)
        after = VCLState(moved.params, moved.optimiser, prior, jnp.asarray(True))
        return after, single_info(loss, errors, batch)

    def predict(
        self,
        state: MAMLState,
        support: Examples,
        query_x: Array,
        hints: Hints | None = None,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Prediction:
        """Mean and variance of what the draws predict."""

        def one(key: Key[Array, ""]) -> Float[Array, "query outputs"]:
            return self._predicted(state.params.sample(key), support, query_x, query_mask)

        each = over_rows(self.model, one)(jax.random.split(jax.random.key(0), self.test_samples))
        return single_prediction(jnp.mean(each, axis=0), jnp.var(each, axis=0))

    def _expected_gradient(
        self, posterior: DiagonalNormal, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[DiagonalNormal, Float[Array, " tasks"]]:
        """Gradient in mean and variance of the expected loss, and the loss of each task."""

        def one(key: Key[Array, ""]) -> tuple[DiagonalNormal, Float[Array, " tasks"]]:
            drawn, back = jax.vjp(lambda q: q.sample(key), posterior)
            gradient, result = self._gradient(drawn, batch, key)
            return back(gradient)[0], result.loss

        each = over_rows(self.model, one)(jax.random.split(key, self.samples))
        return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), each)
