"""How a cluster of the paper begins when several candidates were drawn for it."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PyTree

from taskmix.adaptation.means import weighted_mean
from taskmix.adaptation.task_model import Paced, over_rows
from taskmix.mixture.update import TaskLosses, weighted

Averaged = Literal["responsibilities", "gradients"]


def with_mean_gradient(
    paced: Paced,
    optimiser: optax.GradientTransformation,
    centre: PyTree,
    draws: PyTree,
    losses: TaskLosses,
    shares: Float[Array, "draws tasks"],
    real: Bool[Array, " tasks"],
) -> tuple[PyTree, PyTree]:
    """The global prior after one update by the mean of the gradients at the draws, and its state.

    The mean over draws s of grad (1/J) sum_j gamma_js loss_j(theta_s) stands for the expected
    gradient under a normal distribution around the global prior.
    """
    each = real.astype(shares.dtype)

    def one(params: PyTree, share: Float[Array, " tasks"]) -> PyTree:
        def objective(params: PyTree) -> Array:
            return weighted_mean(weighted(share, losses(params)), each)

        return jax.grad(objective)(params)

    gradients = over_rows(paced, one)(draws, jax.lax.stop_gradient(shares))
    mean = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), gradients)
    updates, state = optimiser.update(mean, optimiser.init(centre), centre)
    return optax.apply_updates(centre, updates), state
