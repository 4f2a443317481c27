"""Max-pooling whose second derivative can be trusted.

The obvious pool, a reshape and a maximum, has a wrong second-order gradient under ``jit`` on
CPU (3 to 5 per cent off): its derivative asks which input *equals* the maximum, and a fused
recomputation of the input may equal it nowhere. Here the winner of each window is remembered
by its position. Given the winners, pooling is linear: selecting and placing are each other's
transpose, so derivatives of every order are one of the two.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Maps = Float[Array, "images height width channels"]
Pooled = Float[Array, "images rows columns channels"]
Winners = Int[Array, "images rows columns channels"]
Size = tuple[int, int]


def max_pool(x: Maps) -> Pooled:
    """The largest value of every 2x2 window; an odd last row or column is left out.

    Of equal values the first wins, in reading order, and takes the whole gradient.
    """
    return _select(x, _winners(jax.lax.stop_gradient(x)), x.shape[1:3])


def _winners(x: Maps) -> Winners:
    """The position of the largest value in its window: 0, 1, 2 or 3."""
    largest, *others = _corners(x)
    winners = jnp.zeros(largest.shape, jnp.int8)
    for position, corner in enumerate(others, start=1):
        winners = jnp.where(corner > largest, jnp.int8(position), winners)
        largest = jnp.maximum(corner, largest)
    return winners


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _select(x: Maps, winners: Winners, size: Size) -> Pooled:
    """The winner of each window; ``size`` is that of ``x``."""
    selected, *others = _corners(x)
    for position, corner in enumerate(others, start=1):
        selected = jnp.where(winners == position, corner, selected)
    return selected


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _place(pooled: Pooled, winners: Winners, size: Size) -> Maps:
    """Transpose of ``_select``: each value where its window's winner is, zero elsewhere."""
    images, rows, columns, channels = pooled.shape
    positions = jnp.arange(4, dtype=winners.dtype).reshape(1, 1, 2, 1, 2, 1)
    won = winners[:, :, None, :, None] == positions
    maps = jnp.where(won, pooled[:, :, None, :, None], jnp.zeros((), pooled.dtype))
    maps = maps.reshape(images, 2 * rows, 2 * columns, channels)
    height, width = size
    return jnp.pad(maps, ((0, 0), (0, height - 2 * rows), (0, width - 2 * columns), (0, 0)))


def _corners(x: Maps) -> list[Pooled]:
    """The four values of each window, in reading order."""
    images, height, width, channels = x.shape
    rows, columns = height // 2, width // 2
    windows = x[:, : 2 * rows, : 2 * columns].reshape(images, rows, 2, columns, 2, channels)
    return [windows[:, :, row, :, column] for row in range(2) for column in range(2)]


_select.defvjp(
    lambda x, winners, size: (_select(x, winners, size), winners),
    lambda size, winners, upstream: (_place(upstream, winners, size), None),
)
_place.defvjp(
    lambda pooled, winners, size: (_place(pooled, winners, size), winners),
    lambda size, winners, upstream: (_select(upstream, winners, size), None),
)
