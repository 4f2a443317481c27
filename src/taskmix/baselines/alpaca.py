"""One task model for every task: ALPaCA with a Bayesian head, experience replay with gradients.

J. Harrison, A. Sharma, M. Pavone: Meta-learning priors for efficient online Bayesian regression.
WAFR 2018.
A. Chaudhry et al.: On tiny episodic memories in continual learning. 2019.
M. Riemer et al.: Learning to learn without forgetting by maximizing transfer and minimizing
interference. ICLR 2019 (the reservoir).
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import optax
from jaxtyping import Array, Bool, Float, Key, PyTree

from taskmix.adaptation import (
    BayesianHead,
    MetaOptimiser,
    TaskModel,
    TaskResult,
    annealed_optimiser,
)
from taskmix.adaptation.means import task_weights
from taskmix.baselines.single import check_positive, query_info, single_prediction, size
from taskmix.learner import Info, Prediction, Told, protected
from taskmix.likelihood import Likelihood
from taskmix.mixture.rehearsal import Rehearsal
from taskmix.mixture.reservoir import Reservoir
from taskmix.tasks import Examples, Hints, TaskBatch


class SingleModelState(eqx.Module):
    params: PyTree
    optimiser: PyTree
    reservoir: Reservoir | None
    """Tasks that were kept."""


@dataclasses.dataclass(frozen=True)
class SingleModel:
    """Minimise the task model's loss, averaged over the tasks of a batch and some that were kept.

    The tasks kept are a uniform sample of all tasks seen.

    Examples
    --------
    >>> import taskmix as tm
    >>> tm.SingleModel(tm.BayesianHead(), reservoir=40).told.value
    'nothing'
    """

    task_model: TaskModel = BayesianHead()
    """What a cluster is made of."""
    meta_rate: float = 2e-3
    """Rate of the optimiser that learns across tasks."""
    meta_clip: float = 1.0
    """Largest norm of a gradient; longer ones are scaled down."""
    anneal_over: int = 0
    """Updates over which the meta rate falls to zero; 0 keeps it."""
    reservoir: int = 0
    """Tasks that are kept, to be learned from again; 0 keeps none."""
    rehearsed: int = 8
    """Tasks among them that stand beside the new ones in each update."""
    updates: int = 1
    """Updates per batch."""
    meta_optimiser: MetaOptimiser = dataclasses.field(default=optax.adam, kw_only=True)
    """From a rate, or a schedule of rates, to what makes updates of gradients: one of optax's."""

    told = Told.NOTHING

    def __post_init__(self) -> None:
        check_positive(meta_rate=self.meta_rate)
        if self.reservoir < 0:
            raise ValueError(f"reservoir is {self.reservoir}; it must be 0 (none) or more.")
        # Made once here, so that what is wrong with them is said before any work.
        _ = self._rehearsal, self._optimiser()

    @property
    def likelihood(self) -> Likelihood:
        return self.task_model.likelihood

    @property
    def one_at_a_time(self) -> bool:
        return self.task_model.one_at_a_time

    def init(self, key: Key[Array, ""], example: TaskBatch) -> SingleModelState:
        params = self.task_model.init(key)
        kept = Reservoir.empty(example, self.reservoir) if self.reservoir else None
        return SingleModelState(params, self._optimiser().init(params), kept)

    @protected
    def step(
        self, state: SingleModelState, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[SingleModelState, Info]:
        batch = batch.without_padding_values()
        state, result = self._learned(state, batch, task_weights(batch), key)
        return state, query_info(self.likelihood, result, batch)

    def predict(
        self,
        state: SingleModelState,
        support: Examples,
        query_x: Array,
        hints: Hints | None = None,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Prediction:
        posterior = self.task_model.adapt(state.params, support.without_padding_values())
        predictive = self.task_model.predict(posterior, query_x, query_mask)
        return single_prediction(predictive.mean, predictive.variance, predictive.noise)

    def parameters(self, state: SingleModelState) -> int:
        return size(state.params)

    def _learned(
        self,
        state: SingleModelState,
        batch: TaskBatch,
        weights: Float[Array, " tasks"],
        key: Key[Array, ""],
    ) -> tuple[SingleModelState, TaskResult]:
        """The state after the tasks that have a weight, and what these came to before."""
        learn_key, keep_key = jax.random.split(key)
        params, optimiser, result = self._rehearsal(
            self.task_model,
            self._optimiser(),
            state.params,
            state.optimiser,
            batch,
            weights,
            state.reservoir,
            learn_key,
        )
        kept = state.reservoir
        if kept is not None:
            kept, _ = kept.offer(batch, weights > 0, keep_key)
        return SingleModelState(params, optimiser, kept), result

    @property
    def _rehearsal(self) -> Rehearsal:
        return Rehearsal(self.updates, self.rehearsed)

    def _optimiser(self) -> optax.GradientTransformation:
        return annealed_optimiser(
            self.meta_rate, self.anneal_over, self.meta_clip, self.meta_optimiser
        )
