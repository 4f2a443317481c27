"""MAML with a Laplace approximation, which prefers adapted parameters with much room around them.

E. Grant, C. Finn, S. Levine, T. Darrell, T. Griffiths: Recasting gradient-based meta-learning
as hierarchical Bayes. ICLR 2018.
"""

from __future__ import annotations

import dataclasses

from jaxtyping import Array, Float, Key, PyTree

from taskmix.adaptation import TaskResult
from taskmix.baselines.curvature import CurvatureMAML
from taskmix.baselines.single import check_not_negative, check_positive
from taskmix.models.kronecker import Factors, log_determinant
from taskmix.tasks import TaskBatch


@dataclasses.dataclass(frozen=True)
class LLAMA(CurvatureMAML):
    """Minimise, averaged over tasks, L_query(phi) + eta log det H(phi), phi being adapted.

    H is the damped Fisher information of a query example at phi; the gradient flows through
    both terms. A loss is the mean over a query set, as everywhere here, so eta weighs
    log det H against the mean and not the sum.

    Examples
    --------
    >>> LLAMA(eta=0.1).told.value
    'nothing'
    """

    eta: float = 1e-6
    """Weight of log det H."""
    damping: float = 1e-3
    """Its root is added to the diagonal of both factors of every layer's information."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative(eta=self.eta)
        check_positive(damping=self.damping)

    def _gradient(
        self, params: PyTree, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[PyTree, TaskResult]:
        gradient, (result, _) = self._gradient_and_curvature(self._objective, params, batch, key)
        return gradient, result

    def _objective(self, result: TaskResult, factors: tuple[Factors, ...]) -> Float[Array, ""]:
        return result.loss + self.eta * log_determinant(factors, self.damping)
