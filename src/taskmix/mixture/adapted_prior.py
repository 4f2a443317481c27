"""The term log p(adapted | cluster) of the paper's appendix, where it is not left implicit."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from taskmix.adaptation import TaskModel
from taskmix.adaptation.task_model import over_rows
from taskmix.mixture.responsibilities import for_each_cluster
from taskmix.tasks import Examples, TaskBatch


def log_adapted_prior(
    task_model: TaskModel, precision: float, params: PyTree, support: Examples
) -> Float[Array, ""]:
    """log N(adapted; cluster, 1 / precision) of one task, without its constant.

    -(precision / 2) * |adapted - cluster|^2. All clusters have as many parameters, so that the
    constant cancels. Gradient descent that is stopped early has such a prior without a word of it
    (Grant et al. 2018), which is why the paper leaves the term out.
    """
    adapted = task_model.adapt(params, support)
    squares = jax.tree.map(lambda new, old: jnp.sum(jnp.square(new - old)), adapted, params)
    total: Array = sum(jax.tree.leaves(squares), start=jnp.zeros(()))
    return -precision / 2 * total


def log_adapted_priors(
    task_model: TaskModel,
    precision: float,
    params: PyTree,
    batch: TaskBatch,
    alive: Bool[Array, " clusters"],
) -> Float[Array, "tasks clusters"]:
    """The term of every task in every cluster; what a dead one gives means nothing."""

    def all_tasks(cluster: PyTree) -> Float[Array, " tasks"]:
        one = partial(log_adapted_prior, task_model, precision, cluster)
        return over_rows(task_model, one)(batch.support)

    found = for_each_cluster(task_model, all_tasks, params, alive)
    return jnp.moveaxis(found, 0, 1)
