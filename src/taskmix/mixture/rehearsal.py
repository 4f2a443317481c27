"""Several updates of one cluster per batch, on its new tasks and on some that it has kept.

A. Chaudhry et al.: On tiny episodic memories in continual learning. 2019.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Key, PyTree

from taskmix.adaptation import TaskModel, TaskResult, mean_gradient
from taskmix.mixture.clusters import as_rows
from taskmix.mixture.reservoir import Reservoir
from taskmix.tasks import Examples, TaskBatch


@dataclasses.dataclass(frozen=True)
class Rehearsal:
    """How much a cluster learns from one batch."""

    updates: int = 1
    """Steps of the optimiser per batch."""
    rehearsed: int = 8
    """Tasks of the reservoir beside the new ones in each of them, if as many are kept."""

    def __post_init__(self) -> None:
        if self.updates < 1:
            raise ValueError(f"updates is {self.updates}; it must be at least 1.")
        if self.rehearsed < 0:
            raise ValueError(f"rehearsed is {self.rehearsed}; it must be 0 or more.")

    def __call__(
        self,
        task_model: TaskModel,
        optimiser: optax.GradientTransformation,
        params: PyTree,
        state: PyTree,
        batch: TaskBatch,
        weights: Float[Array, " tasks"],
        reservoir: Reservoir | None,
        key: Key[Array, ""],
        size: Float[Array, ""] | float = 1.0,
        again: Float[Array, ""] | float = 1.0,
    ) -> tuple[PyTree, PyTree, TaskResult]:
        """New parameters and optimiser state, and what each new task came to before all updates.

        Each update minimises sum_j w_j loss_j / sum_j w_j over the new tasks with their
        ``weights`` and other tasks of the ``reservoir`` in each update, which weigh ``again``;
        ``size`` multiplies the optimiser's step. Nothing in ``batch`` that is padding, or has the
        weight 0, changes a bit, and what such a task came to means nothing. Where all of it is,
        parameters and optimiser state stay as they are.
        """
        weights = jnp.where(batch.real, weights, 0)
        new = silenced(batch.without_hints(), weights > 0)

        def update(
            carry: tuple[PyTree, PyTree], key: Key[Array, ""]
        ) -> tuple[tuple[PyTree, PyTree], TaskResult]:
            params, state = carry
            tasks, each = self._with_kept(new, weights, reservoir, again, key)
            gradient, results = mean_gradient(
                task_model,
                task_model.loss,
                params,
                tasks.support,
                tasks.query,
                weights=each,
                task_losses=getattr(task_model, "losses", None),
            )
            steps, state = optimiser.update(gradient, state, params)
            params = jax.tree.map(lambda p, step: p + size * step, params, steps)
            return (params, state), jax.tree.map(lambda leaf: leaf[: weights.shape[0]], results)

        if self.updates == 1:
            moved, results = update((params, state), key)
        else:
            keys = jax.random.split(key, self.updates)
            moved, every = jax.lax.scan(update, (params, state), keys)
            results = jax.tree.map(lambda leaf: leaf[0], every)
        learns = jnp.any(weights > 0)
        keep = partial(jax.tree.map, lambda after, before: jnp.where(learns, after, before))
        params, state = keep(moved, (params, state))
        return params, state, results

    def _with_kept(
        self,
        new: TaskBatch,
        weights: Float[Array, " tasks"],
        reservoir: Reservoir | None,
        again: Float[Array, ""] | float,
        key: Key[Array, ""],
    ) -> tuple[TaskBatch, Float[Array, " all"]]:
        """The new tasks and, after them, some that were kept, with the weights of all."""
        if reservoir is None or not self.rehearsed:
            return new, weights
        kept, real = reservoir.draw(key, min(self.rehearsed, reservoir.places))
        tasks = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), new, kept)
        return tasks, jnp.concatenate([weights, jnp.where(real, again, 0.0)])


def silenced(batch: TaskBatch, where: Bool[Array, " tasks"]) -> TaskBatch:
    """Only the tasks ``where`` asked; the others become padding, whatever they held."""

    def masked(examples: Examples) -> Examples:
        mask = examples.mask & as_rows(where, examples.mask)
        return Examples(examples.x, examples.y, mask).without_padding_values()

    return TaskBatch(masked(batch.support), masked(batch.query), batch.hints)
