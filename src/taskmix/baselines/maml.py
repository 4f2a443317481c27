"""Model-agnostic meta-learning: one initialisation for every task.

C. Finn, P. Abbeel, S. Levine: Model-agnostic meta-learning for fast adaptation of deep
networks. ICML 2017.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import optax
from jaxtyping import Array, Bool, Float, Key, PyTree

from taskmix.adapt import Adaptation, TaskResult, meta_gradient
from taskmix.baselines.single import Single, check_positive, single_info, single_prediction
from taskmix.learner import Info, Prediction, Told
from taskmix.likelihood import Gaussian, Likelihood, masked_mean
from taskmix.models import MLP, Model
from taskmix.tasks import Examples, Hints, TaskBatch


class MAMLState(eqx.Module):
    params: PyTree
    optimiser: PyTree


@dataclasses.dataclass(frozen=True)
class Initialisation(Single):
    """What learners of one initialisation have in common, however they learn it."""

    model: Model = MLP()
    likelihood: Likelihood = Gaussian()
    adaptation: Adaptation = Adaptation()
    meta_rate: float = 1e-3

    def __post_init__(self) -> None:
        check_positive(meta_rate=self.meta_rate)

    def predict(
        self,
        state: MAMLState,
        support: Examples,
        query_x: Array,
        hints: Hints | None = None,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Prediction:
        return single_prediction(self._predicted(state.params, support, query_x, query_mask))

    def _begin(self, params: PyTree) -> PyTree:
        return optax.adam(self.meta_rate).init(params)

    def _gradient(self, params: PyTree, batch: TaskBatch) -> tuple[PyTree, TaskResult]:
        return meta_gradient(self.model, self.likelihood, self.adaptation, params, batch)

    def _moved(self, params: PyTree, optimiser: PyTree, gradient: PyTree) -> MAMLState:
        updates, optimiser = optax.adam(self.meta_rate).update(gradient, optimiser)
        return MAMLState(optax.apply_updates(params, updates), optimiser)

    def _info(self, result: TaskResult, batch: TaskBatch) -> Info:
        errors = self.likelihood.error(result.predicted, batch.query.y)
        return single_info(result.loss, masked_mean(errors, batch.query.mask))

    def _predicted(
        self,
        params: PyTree,
        support: Examples,
        query_x: Array,
        query_mask: Bool[Array, " query"] | None,
    ) -> Float[Array, "query outputs"]:
        adapted = self._adapt(params, support.without_padding_values())
        return self.likelihood.predictive(self.model.apply(adapted, query_x, query_mask))

    def _adapt(self, params: PyTree, support: Examples) -> PyTree:
        return self.adaptation(self.model, self.likelihood, params, support)

    def _judge(self, params: PyTree, support: Examples, query: Examples) -> tuple[Array, Array]:
        adapted = self._adapt(params, support)
        outputs = self.model.apply(adapted, query.x, query.mask)
        loss = masked_mean(self.likelihood.loss(outputs, query.y), query.mask)
        predicted = self.likelihood.predictive(outputs)
        return loss, masked_mean(self.likelihood.error(predicted, query.y), query.mask)


@dataclasses.dataclass(frozen=True)
class MAML(Initialisation):
    """Minimise the query loss after adaptation, averaged over the tasks of a batch."""

    told = Told.NOTHING

    def init(self, key: Key[Array, ""], example: TaskBatch) -> MAMLState:
        params = self.model.init(key)
        return MAMLState(params, self._begin(params))

    def step(
        self, state: MAMLState, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[MAMLState, Info]:
        batch = batch.without_padding_values()
        gradient, result = self._gradient(state.params, batch)
        return self._moved(state.params, state.optimiser, gradient), self._info(result, batch)
