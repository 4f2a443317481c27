"""Small networks that gradient steps adapt."""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from taskmix.likelihood import Gaussian
from taskmix.models import MLP
from taskmix.models.mlp import Linear
from taskmix.tasks import Examples

LINE, LIKELIHOOD = MLP(hidden=()), Gaussian()
SLOPE_2 = (Linear(jnp.array([[2.0]]), jnp.zeros(1)),)


MODEL = MLP(hidden=(6,), init_scale=0.7)


def task():
    """Parameters and one task, in the precision that is in force."""
    x = jnp.linspace(-2.1, 2.3, 9)[:, None]
    y = 3 * jnp.sin(x)
    flat, unravel = ravel_pytree(MODEL.init(jax.random.key(1)))
    return flat, unravel, Examples.full(x[::2], y[::2]), Examples.full(x[1::2], y[1::2])
