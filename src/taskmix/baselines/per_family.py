"""One MAML per family, told which family each task is of: the floor of a comparison.

No learner that has to find the families out by itself can be expected to do better, so
the distance to this one is what recognising them costs.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Int, Key, PyTree

from taskmix.adaptation import TaskResult
from taskmix.baselines.maml import MAML, MAMLState
from taskmix.learner import Info, Prediction, Told
from taskmix.models import for_each
from taskmix.tasks import Examples, Hints, TaskBatch


@dataclasses.dataclass(frozen=True)
class MAMLPerFamily(MAML):
    """Independent copies of MAML; a family that has no task in a batch is left alone.

    Each copy minimises the mean query loss over its own tasks of the batch. With s_j the
    family of task j and n_f the number of tasks of family f, the gradient of
    sum_j loss_j(theta_{s_j}) / n_{s_j} holds all the separate gradients at once, for the
    price of a single MAML step.
    """

    families: int = 3

    told = Told.FAMILY

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.families < 1:
            raise ValueError(f"families is {self.families}; it must be at least 1.")

    def init(self, key: Key[Array, ""], example: TaskBatch) -> MAMLState:
        keys = jax.random.split(key, self.families)
        return jax.vmap(lambda k: MAML.init(self, k, example))(keys)

    def step(
        self, state: MAMLState, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[MAMLState, Info]:
        family = _family(batch.hints)
        batch = batch.without_padding_values()
        members = jax.nn.one_hot(family, self.families)
        count = jnp.sum(members, axis=0)

        def objective(params: PyTree) -> tuple[Array, TaskResult]:
            # A product rather than indexing, whose gradient is a scatter; exact all the same.
            own = jax.tree.map(lambda leaf: jnp.tensordot(members, leaf, axes=1), params)
            losses, results = for_each(self.model, self._loss)(own, batch.support, batch.query)
            return jnp.sum(losses / count[family]), results

        gradient, result = jax.grad(objective, has_aux=True)(state.params)
        updates, optimiser = jax.vmap(self._optimiser().update)(gradient, state.optimiser)
        updated = MAMLState(optax.apply_updates(state.params, updates), optimiser)
        info = dataclasses.replace(
            self._info(result, batch),
            responsibilities=members,
            clusters=jnp.asarray(self.families),
        )
        return _where(count > 0, updated, state), info

    def predict(
        self,
        state: MAMLState,
        support: Examples,
        query_x: Array,
        hints: Hints | None = None,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Prediction:
        family = _family(hints)

        def alone(one: MAMLState) -> Array:
            return MAML.predict(self, one, support, query_x, query_mask=query_mask).mean

        components = for_each(self.model, alone)(state)
        mean = components[family]
        return Prediction(
            mean=mean,
            variance=jnp.zeros_like(mean),
            components=components,
            responsibilities=jax.nn.one_hot(family, self.families),
            novelty=jnp.asarray(0.0),
        )


def _family(hints: Hints | None) -> Int[Array, "*tasks"]:
    if hints is None:
        raise ValueError(
            "maml-per-family has to be told the family of each task; pass hints with the batch."
        )
    return hints.family


def _where(chosen: Bool[Array, " families"], new: PyTree, old: PyTree) -> PyTree:
    """Leaf by leaf along the first axis: ``new`` where ``chosen``, else ``old`` bit for bit."""

    def select(a: Array, b: Array) -> Array:
        return jnp.where(chosen.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(select, new, old)
