import jax
import jax.numpy as jnp
import pytest

from taskmix.learner import Info


@pytest.fixture(scope="session")
def stacked_info():
    """Builds an Info whose leaves have further leading axes, as a loop stacks them."""
    one = Info(
        loss=jnp.asarray(0.0),
        error=jnp.zeros(1),
        responsibilities=jnp.zeros((1, 1)),
        alive=jnp.ones(1, dtype=bool),
        spawned=jnp.asarray(False),
        alarm=jnp.asarray(False),
        suspicion=jnp.asarray(0.0),
    )
    return lambda *leaves: jax.tree.unflatten(jax.tree.structure(one), leaves)
