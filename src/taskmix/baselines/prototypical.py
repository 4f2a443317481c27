"""Prototypical networks: the class whose mean embedding is nearest.

J. Snell, K. Swersky, R. Zemel: Prototypical networks for few-shot learning. NeurIPS 2017.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from taskmix.baselines.metric import MetricLearner, among_present, class_means, memberships
from taskmix.baselines.single import check_positive
from taskmix.tasks import Examples


@dataclasses.dataclass(frozen=True)
class Prototypical(MetricLearner):
    """p(y = k | x) = softmax_k(-||f(x) - c_k||^2 / tau), c_k the mean embedding of class k.

    The paper updates after every task and this after every batch, so that its 2000 tasks
    between two halvings of the rate are 2000 batches here.

    Examples
    --------
    >>> import taskmix as tm
    >>> Prototypical(tm.Conv4(size=16)).told.value
    'nothing'
    """

    halve_every: int = 2000
    """Batches after which the rate is halved, again and again."""

    temperature: float = 1.0
    """tau, what squared distances are divided by; 1 is the paper's. In 800 dimensions they are
    large at first, and the softmax is then next to certain of a random class."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(halve_every=self.halve_every, temperature=self.temperature)

    def optimiser(self) -> optax.GradientTransformation:
        return self.meta_optimiser(
            optax.exponential_decay(self.meta_rate, self.halve_every, 0.5, staircase=True)
        )

    def compare(
        self, params: PyTree, support: Examples, query: Float[Array, "query features"]
    ) -> Float[Array, "query classes"]:
        members = memberships(support.y, support.mask, self.way)
        prototypes = class_means(support.x, members)
        distances = jnp.sum(jnp.square(query[:, None] - prototypes), axis=-1)
        return among_present(-distances / self.temperature, jnp.any(members, axis=0))
