"""What batch normalisation needs when some of the images of a call may be padding."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Maps = Float[Array, "images height width channels"]
Mask = Bool[Array, " images"]


def checked_images(x: Maps, mask: Mask | None, size: int, channels: int) -> Maps:
    """Images of the size that a network was made for, with zeros in place of padding.

    Then nothing can depend on what padding held, not even through a NaN.
    """
    expected = (size, size, channels)
    if x.shape[1:] != expected:
        raise ValueError(f"Images have shape {x.shape[1:]}; the network expects {expected}.")
    return x if mask is None else jnp.where(mask[:, None, None, None], x, jnp.zeros_like(x))


def batch_statistics(
    x: Maps, mask: Mask | None
) -> tuple[Float[Array, " channels"], Float[Array, " channels"]]:
    """Mean and biased variance of each channel over all pixels of the real images."""
    images, height, width, _ = x.shape
    real = jnp.ones(images, x.dtype) if mask is None else mask.astype(x.dtype)
    weight = real / (height * width * jnp.maximum(jnp.sum(real), 1))
    # Each image is summed before it is weighed: the mask then costs next to nothing.
    mean = weight @ jnp.sum(x, axis=(1, 2))
    return mean, weight @ jnp.sum(jnp.square(x - mean), axis=(1, 2))


def square_image(shape: tuple[int, ...]) -> tuple[int, int]:
    """Pixels of the side of an image of that shape, and its channels."""
    if len(shape) != 3 or shape[0] != shape[1]:
        raise ValueError(
            f"Inputs have shape {shape}; images need (rows, as many columns, channels)."
        )
    return shape[0], shape[2]
