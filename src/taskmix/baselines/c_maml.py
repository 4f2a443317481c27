"""Continual MAML: fast weights that follow the current phase, and slow ones to return to.

M. Caccia et al.: Online fast adaptation and knowledge accumulation: a new approach to
continual learning. NeurIPS 2020.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key, PyTree

from taskmix.adaptation.means import task_weights, weighted_mean
from taskmix.baselines.consolidation import choose
from taskmix.baselines.maml import Initialisation, MAMLState
from taskmix.baselines.single import check_not_negative, check_positive
from taskmix.learner import Info, Told, protected
from taskmix.tasks import TaskBatch


class CMAMLState(MAMLState):
    """``params`` are the fast weights; the optimiser is that of the slow ones."""

    slow: PyTree


@dataclasses.dataclass(frozen=True)
class CMAML(Initialisation):
    """Continual MAML whose examples are whole tasks.

    The paper's stream gives examples of one task after the other. Here it gives tasks of
    one family after the other, so a family takes the place of a task, a task with its
    support set that of an example, and the network after adaptation to the support set
    that of the network. L(theta) is the mean query loss of a batch after adaptation.

    - Prolonged adaptation: predictions are made from fast weights phi, which take a gradient
      step per batch, phi <- phi - fast_rate * grad L(phi).
    - Detection of a change: as soon as the slow weights do better on a batch than the fast
      ones, L(phi) > (1 + threshold) * L(theta), the fast ones start from them again.
    - Modulated updates: theta moves as in MAML, its rate times 1 - exp(-modulation * L(theta)),
      so that what is known already is not learned over and over.

    Examples
    --------
    >>> CMAML().told.value
    'nothing'
    """

    fast_rate: float = 0.05
    """Rate at which the fast weights follow the current family."""
    threshold: float = 0.1
    """How much worse, as a fraction, fast weights may be; -1 gives them up at every batch."""
    modulation: float = 1.0
    """How soon a loss counts in full; 'inf' does not modulate."""

    told = Told.NOTHING

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative(fast_rate=self.fast_rate)
        check_positive(modulation=self.modulation)
        if not self.threshold >= -1:
            raise ValueError(f"threshold is {self.threshold}; it must be -1 or more.")

    def init(self, key: Key[Array, ""], example: TaskBatch) -> CMAMLState:
        params = self.model.init(key)
        return CMAMLState(params, self._begin(params), params)

    @protected
    def step(
        self, state: CMAMLState, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[CMAMLState, Info]:
        batch = batch.without_padding_values()
        slow_gradient, slow_result = self._gradient(state.slow, batch, key)
        fast_gradient, fast_result = self._gradient(state.params, batch, key)
        slow_loss, fast_loss = (
            weighted_mean(result.loss, task_weights(batch)) for result in (slow_result, fast_result)
        )
        # A loss that is not a number is a change as well.
        changed = ~(fast_loss <= (1 + self.threshold) * slow_loss)
        moved = self._moved(state.slow, state.optimiser, slow_gradient)
        size = self._size(slow_loss)
        slow = jax.tree.map(lambda old, new: old + size * (new - old), state.slow, moved.params)
        fast = choose(changed, slow, self._followed(state.params, fast_gradient))
        return CMAMLState(fast, moved.optimiser, slow), self._info(fast_result, batch)

    def _size(self, loss: Float[Array, ""]) -> Float[Array, ""] | float:
        return 1.0 if math.isinf(self.modulation) else -jnp.expm1(-self.modulation * loss)

    def _followed(self, fast: PyTree, gradient: PyTree) -> PyTree:
        """A plain gradient step, clipped as those of adaptation are."""
        clip = optax.clip_by_global_norm(self.adaptation.clip)
        clipped, _ = clip.update(gradient, clip.init(fast))
        return jax.tree.map(lambda p, g: p - self.fast_rate * g, fast, clipped)
