"""What an image looks like to convolutions that nobody trained: a description for any filter.

Random convolutions respond to brightness, colour, edges and texture of every kind. The level and
the spread of their responses over an image change with the way it was taken, drawn or filtered,
and say little about what it shows. Nothing in them was chosen for a filter.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

FILTERS = 32
"""Of each of the two layers."""
FLOOR = 1e-2
"""Added to spreads before their logarithm: a constant image has a response without any."""


def image_features(
    images: Float[Array, "*tasks images height width channels"],
) -> Float[Array, "*tasks images features"]:
    """128 numbers of each image: mean and log-spread over pixels of two layers of 32 responses.

    A layer is a 3x3 convolution with fixed random weights and a rectifier; between the two, means
    of 2x2 pixels are taken. Images with one channel are seen as grey ones with three.

    Examples
    --------
    >>> image_features(jnp.zeros((2, 8, 8, 3))).shape
    (2, 128)
    """
    if min(images.shape[-3:-1]) < 4:
        raise ValueError(f"Images need 4 x 4 pixels or more, but have {images.shape[-3:-1]}.")
    flat = images.reshape(-1, *images.shape[-3:])
    if flat.shape[-1] == 1:
        flat = jnp.broadcast_to(flat, (*flat.shape[:-1], 3))
    first = _responses(flat - 0.5, 0)
    second = _responses(_halved(first), 1)
    found = jnp.concatenate([part for layer in (first, second) for part in _moments(layer)], -1)
    return found.reshape(*images.shape[:-3], -1)


def _responses(
    x: Float[Array, "images height width channels"], layer: int
) -> Float[Array, "images height width filters"]:
    kernel = jnp.asarray(_kernel(layer, x.shape[-1]), x.dtype)
    maps = jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jax.nn.relu(maps)


@functools.cache
def _kernel(layer: int, channels: int) -> np.ndarray:
    """Weights that keep the size of what goes in; the same on every machine and in every version.

    The generator is NumPy's old one, whose numbers never change.
    """
    drawn = np.random.RandomState(layer).standard_normal((3, 3, channels, FILTERS))
    return (drawn * math.sqrt(2 / (9 * channels))).astype(np.float32)


def _halved(
    x: Float[Array, "images height width filters"],
) -> Float[Array, "images half across filters"]:
    """Means of 2 x 2 pixels; an odd last row or column is left out, a single one is kept."""
    height, width = (max(side // 2, 1) for side in x.shape[1:3])
    rows, columns = (min(2, side) for side in x.shape[1:3])
    even = x[:, : rows * height, : columns * width]
    return jnp.mean(even.reshape(x.shape[0], height, rows, width, columns, -1), (2, 4))


def _moments(x: Float[Array, "images height width filters"]) -> tuple[Array, Array]:
    mean = jnp.mean(x, (1, 2))
    spread = jnp.sqrt(jnp.mean(jnp.square(x - mean[:, None, None]), (1, 2)) + FLOOR**2)
    return mean, jnp.log(spread)
