"""MAML on a stream with online Laplace: told of a new phase, it stays near what it learned.

H. Ritter, A. Botev, D. Barber: Online structured Laplace approximations for overcoming
catastrophic forgetting. NeurIPS 2018.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from taskmix.adaptation.means import task_weights, weighted_mean
from taskmix.baselines.consolidation import begins_phase
from taskmix.baselines.curvature import CurvatureMAML
from taskmix.baselines.maml import MAMLState
from taskmix.baselines.single import check_not_negative
from taskmix.learner import Info, State, Told, protected
from taskmix.models.kronecker import Factors, nearest_sum, no_curvature, quadratic
from taskmix.tasks import TaskBatch


class LaplaceState(MAMLState):
    mode: PyTree
    """Parameters when the last phase ended."""
    precision: tuple[Factors, ...]
    """Sum of the curvatures of all phases that ended."""
    curvature: tuple[Factors, ...]
    """Running average of the factors in the present phase, not yet divided by ``weight``."""
    weight: Float[Array, ""]
    """Sum of the weights in that average; 0 if the phase has had no batch."""


@dataclasses.dataclass(frozen=True)
class OnlineLaplace(CurvatureMAML):
    """Minimise the meta-loss plus (strength/2) (theta - mu)' Lambda (theta - mu).

    When a phase ends, mu becomes theta and the curvature H of the phase's meta-loss is added
    to Lambda. What is learned is an initialisation, so H should be that of theta -> L_query(
    phi(theta)), J'FJ with F the Fisher information at the adapted phi and J = d phi / d theta.
    Here J is taken to be the identity, as in first-order MAML: it is one but for the inner
    rate times a Hessian, and then H has a Kronecker product for each layer.

    H is that of one query example, averaged over tasks: at strength 1 a phase weighs about
    as much as the present one if both are equally long. The sum of two products is replaced
    by the nearest product. Parameters without curvature, the biases and shifts of ``Conv4``, are
    not held back.

    Examples
    --------
    >>> OnlineLaplace(strength=1.0).told.value
    'boundaries'
    """

    strength: float = 100.0
    """Weight of the penalty."""
    memory: int = 100
    """Batches at the end of a phase, roughly, from which its curvature is averaged."""

    told = Told.BOUNDARIES

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative(strength=self.strength)
        if self.memory < 1:
            raise ValueError(f"memory is {self.memory}; it must be at least 1.")

    def init(self, key: Key[Array, ""], example: TaskBatch) -> LaplaceState:
        first = super().init(key, example)
        nothing = no_curvature(first.params)
        return LaplaceState(
            first.params, first.optimiser, first.params, nothing, nothing, jnp.zeros(())
        )

    @protected
    def step(
        self, state: State, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[LaplaceState, Info]:
        state = jax.lax.cond(begins_phase(batch), consolidated, lambda same: same, state)
        batch = batch.without_padding_values()
        gradient, (result, factors) = self._gradient_and_curvature(
            lambda result, _: result.loss, state.params, batch, key
        )
        pull = jax.grad(self._penalty)(state.params, state)
        moved = self._moved(state.params, state.optimiser, jax.tree.map(jnp.add, gradient, pull))
        fresh = 1 / self.memory
        state = LaplaceState(
            moved.params,
            moved.optimiser,
            state.mode,
            state.precision,
            jax.tree.map(
                lambda old, new: (
                    (1 - fresh) * old + fresh * weighted_mean(new, task_weights(batch))
                ),
                state.curvature,
                factors,
            ),
            (1 - fresh) * state.weight + fresh,
        )
        return state, self._info(result, batch)

    def _penalty(self, params: PyTree, state: LaplaceState) -> Float[Array, ""]:
        moved = jax.tree.map(jnp.subtract, params, state.mode)
        return 0.5 * self.strength * quadratic(state.precision, moved)


def consolidated(state: LaplaceState) -> LaplaceState:
    """The state after the present phase has ended: it is centred here, and more precise."""
    # A phase without a batch has curvature and weight zero, and adds nothing.
    divisor = jnp.where(state.weight > 0, state.weight, 1)
    ended = jax.tree.map(lambda leaf: leaf / divisor, state.curvature)
    return LaplaceState(
        state.params,
        state.optimiser,
        mode=state.params,
        precision=tuple(map(nearest_sum, state.precision, ended)),
        curvature=no_curvature(state.params),
        weight=jnp.zeros(()),
    )
