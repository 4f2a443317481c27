"""Trees of arrays compared."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from taskmix.testing.trial import is_float


def assert_equal(found: Any, expected: Any, what: str) -> None:
    """Two trees hold the same bits."""
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        assert np.array_equal(one, other, equal_nan=is_float(one)), what


def assert_close(found: Any, expected: Any, what: str) -> None:
    """Two trees hold the same numbers, up to rounding."""
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        if not jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6, err_msg=what)


def assert_alike(found: Any, expected: Any) -> None:
    """Two trees have the same structure, shapes and types."""
    structures: list[Any] = [jax.tree.structure(tree) for tree in (found, expected)]
    assert structures[0] == structures[1], "a step keeps the structure of its state"
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        same = (one.shape, one.dtype) == (other.shape, other.dtype)
        assert same, f"a step keeps shapes and types, not {one.shape} for {other.shape}"
