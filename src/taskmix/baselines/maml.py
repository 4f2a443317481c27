"""Model-agnostic meta-learning: one initialisation for every task.

C. Finn, P. Abbeel, S. Levine: Model-agnostic meta-learning for fast adaptation of deep
networks. ICML 2017.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import optax
from jaxtyping import Array, Bool, Key, PyTree

from taskmix.adapt import Adaptation, TaskResult, meta_gradient
from taskmix.baselines.single import Single, check_positive, query_info, single_prediction
from taskmix.learner import Info, Prediction, Told
from taskmix.likelihood import Gaussian, Likelihood, masked_mean
from taskmix.models import MLP, Model
from taskmix.tasks import Examples, Hints, TaskBatch


class MAMLState(eqx.Module):
    params: PyTree
    optimiser: PyTree


@dataclasses.dataclass(frozen=True)
class MAML(Single):
    """Minimise the query loss after adaptation, averaged over the tasks of a batch."""

    model: Model = MLP()
    likelihood: Likelihood = Gaussian()
    adaptation: Adaptation = Adaptation()
    meta_rate: float = 1e-3

    told = Told.NOTHING

    def __post_init__(self) -> None:
        check_positive(meta_rate=self.meta_rate)

    def init(self, key: Key[Array, ""], example: TaskBatch) -> MAMLState:
        params = self.model.init(key)
        return MAMLState(params, optax.adam(self.meta_rate).init(params))

    def step(
        self, state: MAMLState, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[MAMLState, Info]:
        batch = batch.without_padding_values()
        gradient, result = self._meta_gradient(state.params, batch, key)
        updates, optimiser = optax.adam(self.meta_rate).update(gradient, state.optimiser)
        state = MAMLState(optax.apply_updates(state.params, updates), optimiser)
        return state, query_info(self.likelihood, result, batch.query)

    def predict(
        self,
        state: MAMLState,
        support: Examples,
        query_x: Array,
        hints: Hints | None = None,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Prediction:
        params = self._adapt(state.params, support.without_padding_values())
        mean = self.likelihood.predictive(self.model.apply(params, query_x, query_mask))
        return single_prediction(mean)

    def _meta_gradient(
        self, params: PyTree, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[PyTree, TaskResult]:
        return meta_gradient(self.model, self.likelihood, self.adaptation, params, batch)

    def _adapt(self, params: PyTree, support: Examples) -> PyTree:
        return self.adaptation(self.model, self.likelihood, params, support)

    def _judge(self, params: PyTree, support: Examples, query: Examples) -> tuple[Array, Array]:
        adapted = self._adapt(params, support)
        outputs = self.model.apply(adapted, query.x, query.mask)
        loss = masked_mean(self.likelihood.loss(outputs, query.y), query.mask)
        predicted = self.likelihood.predictive(outputs)
        return loss, masked_mean(self.likelihood.error(predicted, query.y), query.mask)
