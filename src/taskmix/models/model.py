"""The one thing a learner asks of a network."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import jax
from jaxtyping import Array, Key, PyTree


@runtime_checkable
class Model(Protocol):
    """Hyperparameters of a network; the parameters live in a separate pytree."""

    def init(self, key: Key[Array, ""]) -> PyTree:
        """Random parameters."""

    def apply(self, params: PyTree, x: Array) -> Array:
        """Outputs for the examples of one task."""


def parameter_count(model: Model) -> int:
    """How many numbers the network learns.

    >>> from taskmix.models import MLP
    >>> parameter_count(MLP(inputs=1, hidden=(40, 40), outputs=1))
    1761
    """
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))
