"""Synaptic intelligence for MAML's initialisation, told where phases begin.

F. Zenke, B. Poole, S. Ganguli: Continual learning through synaptic intelligence. ICML 2017.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from taskmix.baselines.consolidation import Quadratic, begins_phase, choose, plus_scaled
from taskmix.baselines.maml import Initialisation, MAMLState
from taskmix.baselines.single import check_not_negative, check_positive
from taskmix.learner import Info, Told, protected
from taskmix.tasks import TaskBatch


class SIState(MAMLState):
    penalty: Quadratic
    """What earlier phases ask for."""
    path: PyTree
    """How much each parameter lowered the loss since the phase began."""
    start: PyTree
    """The initialisation when the phase began."""


@dataclasses.dataclass(frozen=True)
class SI(Initialisation):
    """MAML's loss plus strength * sum_i Omega_i (theta_i - theta*_i)^2.

    Every step adds to the path integral w_i -= g_i * (theta_i' - theta_i), where g is the
    meta-gradient without the penalty. When a phase ends at theta*, having begun at theta^0,
    Omega_i += max(0, w_i / ((theta*_i - theta^0_i)^2 + damping)) and w is 0 again.

    Examples
    --------
    >>> SI(strength=1.0).told.value
    'boundaries'
    """

    strength: float = 0.1
    """Weight of the penalty; 0 is MAML."""
    damping: float = 1e-3
    """Keeps the importance of a parameter finite that hardly moved."""

    told = Told.BOUNDARIES

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative(strength=self.strength)
        check_positive(damping=self.damping)

    def init(self, key: Key[Array, ""], example: TaskBatch) -> SIState:
        params = self.model.init(key)
        nothing = jax.tree.map(jnp.zeros_like, params)
        return SIState(params, self._begin(params), Quadratic.nothing(params), nothing, params)

    @protected
    def step(self, state: SIState, batch: TaskBatch, key: Key[Array, ""]) -> tuple[SIState, Info]:
        batch = batch.without_padding_values()
        state = choose(begins_phase(batch), self._consolidated(state), state)
        gradient, result = self._gradient(state.params, batch, key)
        pull = state.penalty.gradient(state.params)
        # A Quadratic has a factor 1/2 that this penalty has not.
        moved = self._moved(
            state.params, state.optimiser, plus_scaled(gradient, 2 * self.strength, pull)
        )
        path = jax.tree.map(
            lambda w, g, before, after: w - g * (after - before),
            state.path,
            gradient,
            state.params,
            moved.params,
        )
        after = SIState(moved.params, moved.optimiser, state.penalty, path, state.start)
        return after, self._info(result, batch)

    def _consolidated(self, state: SIState) -> SIState:
        """The state at the start of a phase; where nothing was learned, the path is still 0."""

        def important(before: Array, path: Array, end: Array, start: Array) -> Array:
            return before + jnp.maximum(0, path / (jnp.square(end - start) + self.damping))

        importance = jax.tree.map(
            important, state.penalty.importance, state.path, state.params, state.start
        )
        penalty = Quadratic(importance, state.params)
        nothing = jax.tree.map(jnp.zeros_like, state.path)
        return SIState(state.params, state.optimiser, penalty, nothing, state.params)
