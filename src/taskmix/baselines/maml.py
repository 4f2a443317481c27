"""Model-agnostic meta-learning: one initialisation for every task.

C. Finn, P. Abbeel, S. Levine: Model-agnostic meta-learning for fast adaptation of deep
networks. ICML 2017.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import optax
from jaxtyping import Array, Bool, Float, Key, PyTree

from taskmix.adaptation import (
    Adaptation,
    MetaOptimiser,
    TaskResult,
    annealed_optimiser,
    mean_gradient,
    over_rows,
    query_result,
)
from taskmix.adaptation.means import task_weights
from taskmix.baselines.single import Single, check_positive, query_info, single_prediction
from taskmix.learner import Info, Prediction, Told, protected
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
    """Network whose initialisation is learned."""
    likelihood: Likelihood = Gaussian()
    """What targets are: numbers, classes or counts."""
    adaptation: Adaptation = Adaptation()
    """Inner loop: how the network adapts to a support set."""
    meta_rate: float = 1e-3
    """Rate of the optimiser that learns across tasks."""
    anneal_over: int = 0
    """Iterations over which the meta rate falls to zero; 0 keeps it."""
    meta_optimiser: MetaOptimiser = dataclasses.field(default=optax.adam, kw_only=True)
    """From a rate, or a schedule of rates, to what makes updates of gradients: one of optax's."""

    def __post_init__(self) -> None:
        check_positive(meta_rate=self.meta_rate)
        # Made once here, so that what is wrong with it is said before any work.
        _ = self._optimiser()

    def predict(
        self,
        state: MAMLState,
        support: Examples,
        query_x: Array,
        hints: Hints | None = None,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Prediction:
        return single_prediction(self._predicted(state.params, support, query_x, query_mask))

    def _optimiser(self) -> optax.GradientTransformation:
        return annealed_optimiser(self.meta_rate, self.anneal_over, optimiser=self.meta_optimiser)

    def _begin(self, params: PyTree) -> PyTree:
        return self._optimiser().init(params)

    def _gradient(
        self, params: PyTree, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[PyTree, TaskResult]:
        tasks, weights = (batch.support, batch.query), task_weights(batch)
        return mean_gradient(self.model, self._loss, params, *tasks, weights=weights)

    def _loss(
        self, params: PyTree, support: Examples, query: Examples
    ) -> tuple[Float[Array, ""], TaskResult]:
        """Query loss of one task after adaptation, and all it came to."""
        outputs = self.model.apply(self._adapt(params, support), query.x, query.mask)
        result = query_result(self.likelihood, outputs, query)
        return result.loss, result

    def _moved(self, params: PyTree, optimiser: PyTree, gradient: PyTree) -> MAMLState:
        updates, optimiser = self._optimiser().update(gradient, optimiser)
        return MAMLState(optax.apply_updates(params, updates), optimiser)

    def _info(self, result: TaskResult, batch: TaskBatch) -> Info:
        return query_info(self.likelihood, result, batch)

    def _errors_of_prediction(self, state: MAMLState, batch: TaskBatch) -> Float[Array, " tasks"]:
        """Error of each task as ``predict`` has it, where a step does something else."""

        def error(support: Examples, query: Examples) -> Float[Array, ""]:
            predicted = self.predict(state, support, query.x, query_mask=query.mask).mean
            return masked_mean(self.likelihood.error(predicted, query.y), query.mask)

        return over_rows(self.model, error)(batch.support, batch.query)

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


@dataclasses.dataclass(frozen=True)
class MAML(Initialisation):
    """Minimise the query loss after adaptation, averaged over the tasks of a batch.

    Examples
    --------
    >>> MAML(MLP(hidden=(8,)), meta_rate=0.01).told.value
    'nothing'
    """

    told = Told.NOTHING

    def init(self, key: Key[Array, ""], example: TaskBatch) -> MAMLState:
        params = self.model.init(key)
        return MAMLState(params, self._begin(params))

    @protected
    def step(
        self, state: MAMLState, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[MAMLState, Info]:
        batch = batch.without_padding_values()
        gradient, result = self._gradient(state.params, batch, key)
        return self._moved(state.params, state.optimiser, gradient), self._info(result, batch)


@dataclasses.dataclass(frozen=True)
class FirstOrderMAML(MAML):
    """The same with inner gradients that count as constants, which saves second derivatives.

    Examples
    --------
    >>> FirstOrderMAML(meta_rate=0.01).told.value
    'nothing'
    """

    def _adapt(self, params: PyTree, support: Examples) -> PyTree:
        adaptation = dataclasses.replace(self.adaptation, first_order=True)
        return adaptation(self.model, self.likelihood, params, support)
