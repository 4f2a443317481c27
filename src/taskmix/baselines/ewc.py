"""Elastic weight consolidation of MAML's initialisation, told where phases begin.

J. Kirkpatrick et al.: Overcoming catastrophic forgetting in neural networks. PNAS 2017.
J. Schwarz et al.: Progress & compress: a scalable framework for continual learning.
ICML 2018 (the online form).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from taskmix.adaptation import meta_gradient_moments
from taskmix.baselines.consolidation import Quadratic, begins_phase, choose, plus_scaled
from taskmix.baselines.maml import Initialisation, MAMLState
from taskmix.baselines.single import check_not_negative
from taskmix.learner import Info, Told, protected
from taskmix.tasks import TaskBatch


class EWCState(MAMLState):
    penalty: Quadratic
    """What earlier phases ask for."""
    fisher: PyTree
    """Diagonal Fisher information of the current phase, so far."""
    batches: Int[Array, ""]
    """Batches of the current phase behind ``fisher``, up to the window."""


@dataclasses.dataclass(frozen=True)
class EWC(Initialisation):
    """MAML's loss plus (strength/2) sum_t sum_i F_ti (theta_i - theta*_ti)^2.

    t are the phases that ended, theta*_t the initialisation at the end of one, and F_t the
    mean squared gradient of a task's query loss after adaptation (the empirical Fisher, up
    to the scale of the loss). A phase is not stored, so F_t is gathered on the way: the
    mean over the last ``window`` batches of a phase, those long past fading out
    exponentially, each at the initialisation of its time.

    Examples
    --------
    >>> EWC(strength=1.0).told.value
    'boundaries'
    """

    strength: float = 10.0
    """Weight of the penalty; 0 is MAML."""
    window: int = 100
    """Batches over which the Fisher information is averaged."""

    told = Told.BOUNDARIES

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative(strength=self.strength)
        if self.window < 1:
            raise ValueError(f"window is {self.window}; it must be at least 1.")

    def init(self, key: Key[Array, ""], example: TaskBatch) -> EWCState:
        params = self.model.init(key)
        nothing = jax.tree.map(jnp.zeros_like, params)
        penalty = Quadratic.nothing(params)
        return EWCState(params, self._begin(params), penalty, nothing, jnp.asarray(0))

    @protected
    def step(self, state: EWCState, batch: TaskBatch, key: Key[Array, ""]) -> tuple[EWCState, Info]:
        batch = batch.without_padding_values()
        state = choose(begins_phase(batch), self._consolidated(state), state)
        gradient, squares, result = meta_gradient_moments(
            self.model, self.likelihood, self.adaptation, state.params, batch
        )
        pull = state.penalty.gradient(state.params)
        moved = self._moved(
            state.params, state.optimiser, plus_scaled(gradient, self.strength, pull)
        )
        batches = jnp.minimum(state.batches + 1, self.window)
        fisher = jax.tree.map(lambda old, new: old + (new - old) / batches, state.fisher, squares)
        after = EWCState(moved.params, moved.optimiser, state.penalty, fisher, batches)
        return after, self._info(result, batch)

    def _consolidated(self, state: EWCState) -> EWCState:
        """The state at the start of a phase; where nothing was learned, F is still 0."""
        return EWCState(
            state.params,
            state.optimiser,
            self._penalty(state.penalty, Quadratic(state.fisher, state.params)),
            jax.tree.map(jnp.zeros_like, state.fisher),
            jnp.zeros_like(state.batches),
        )

    def _penalty(self, earlier: Quadratic, ended: Quadratic) -> Quadratic:
        return earlier.plus(ended)


@dataclasses.dataclass(frozen=True)
class OnlineEWC(EWC):
    """One penalty instead of one per phase: F <- decay * F + F_t, around the latest theta*.

    Examples
    --------
    >>> OnlineEWC(strength=1.0).told.value
    'boundaries'
    """

    decay: float = 1.0
    """What is left of the earlier importance when a phase ends, between 0 and 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.decay <= 1:
            raise ValueError(f"decay is {self.decay}; it must lie between 0 and 1.")

    def _penalty(self, earlier: Quadratic, ended: Quadratic) -> Quadratic:
        importance = plus_scaled(ended.importance, self.decay, earlier.importance)
        return Quadratic(importance, ended.centre)
