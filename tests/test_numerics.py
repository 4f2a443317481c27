"""Canaries: what a compiled program computes on this machine is what was asked for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest


@pytest.mark.parametrize("rows", [32_768, 32_769, 40_001])
def test_compiled_reduction_after_a_product_has_no_wrong_row(rows):
    """jaxlib 0.10.2 and 0.11.0 read past the edge of their tiles here (jax issue 39103)."""

    @jax.jit
    def squares(x):
        return jax.vmap(lambda row: jnp.sum(jnp.square(jnp.eye(3) @ row)))(x)

    # Whole numbers below 2^24, so that float32 is exact and any difference is a fault.
    first = np.arange(rows, dtype=np.float32) % 4096
    x = np.stack([first, np.zeros_like(first), np.zeros_like(first)], axis=1)
    np.testing.assert_array_equal(squares(x), np.square(first))
