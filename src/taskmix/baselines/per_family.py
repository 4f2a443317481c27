"""One task model per family, told which family each task is of: the floor of a comparison.

No learner that has to find the families out by itself can be expected to do better, so
the distance to this one is what recognising them costs.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from taskmix.adaptation import Gradient, TaskModel, TaskResult, over_rows
from taskmix.adaptation.means import task_weights
from taskmix.baselines.alpaca import SingleModel, SingleModelState
from taskmix.baselines.single import query_info
from taskmix.learner import Info, Prediction, Told, protected
from taskmix.tasks import Examples, Hints, TaskBatch


@dataclasses.dataclass(frozen=True)
class PerFamily(SingleModel):
    """Independent copies of a learner with a single task model, each with its own reservoir.

    Each learns from its own tasks of a batch; a family that has none there is left alone.

    Examples
    --------
    >>> PerFamily(families=2).told.value
    'family'
    """

    task_model: TaskModel = Gradient()
    """What a cluster is made of."""
    meta_rate: float = 1e-3
    """Rate of the optimiser that learns across tasks."""
    meta_clip: float = math.inf
    """Largest norm of a family's gradient; longer ones are scaled down."""
    families: int = 3
    """How many there are: one cluster each."""

    told = Told.FAMILY

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.families < 1:
            raise ValueError(f"families is {self.families}; it must be at least 1.")

    def init(self, key: Key[Array, ""], example: TaskBatch) -> SingleModelState:
        keys = jax.random.split(key, self.families)
        return jax.vmap(lambda k: SingleModel.init(self, k, example))(keys)

    @protected
    def step(
        self, state: SingleModelState, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[SingleModelState, Info]:
        family = _family(batch.hints)
        batch = batch.without_padding_values()
        members = jax.nn.one_hot(family, self.families) * task_weights(batch)[:, None]

        def one(
            state: SingleModelState, weights: Float[Array, " tasks"], key: Key[Array, ""]
        ) -> tuple[SingleModelState, TaskResult]:
            def learn(state: SingleModelState) -> tuple[SingleModelState, TaskResult]:
                return self._learned(state, batch, weights, key)

            def rest(state: SingleModelState) -> tuple[SingleModelState, TaskResult]:
                _, shapes = jax.eval_shape(learn, state)
                return state, jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), shapes)

            return jax.lax.cond(jnp.any(weights > 0), learn, rest, state)

        keys = jax.random.split(key, self.families)
        state, every = over_rows(self, one)(state, members.T, keys)
        result = jax.tree.map(lambda leaf: leaf[family, jnp.arange(family.shape[0])], every)
        return state, dataclasses.replace(
            query_info(self.likelihood, result, batch),
            responsibilities=members,
            alive=jnp.ones(self.families, dtype=bool),
        )

    def predict(
        self,
        state: SingleModelState,
        support: Examples,
        query_x: Array,
        hints: Hints | None = None,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Prediction:
        family = _family(hints)

        def alone(one: SingleModelState) -> Prediction:
            return SingleModel.predict(self, one, support, query_x, query_mask=query_mask)

        every = over_rows(self, alone)(state)
        own = jax.tree.map(lambda leaf: leaf[family], every)
        return dataclasses.replace(
            own,
            components=every.mean,
            responsibilities=jax.nn.one_hot(family, self.families),
        )


def _family(hints: Hints | None) -> Int[Array, "*tasks"]:
    if hints is None or hints.family is None:
        raise ValueError(
            "This learner has to be told the family of each task; pass hints with the batch."
        )
    return hints.family
