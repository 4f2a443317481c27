"""How an image looks apart from what it shows: brightness, contrast, colour and detail.

A filter moves these numbers much and in the same direction for every object, so that a few
images tell which filter a task is seen through before any label is looked at.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from taskmix.streams.filters import luminance

STATISTICS = ("brightness", "contrast", "blue over red", "saturation", "sharpness", "structure")
"""What the columns of ``image_statistics`` are."""

FLOOR = 2.0**-10
"""Added to deviations and differences, a quarter of a grey level of 8 bits: logarithms stay
finite where an image is constant, and the rounding of pixels does not pass for detail."""

DARK = 0.05
"""Added to channels before their ratios are taken: the colour of a black image is noise."""

GREY = 0.02
"""Least saturation. Without it the few grey photographs of a set would lie far from all others."""


def image_statistics(
    images: Float[Array, "*tasks images height width channels"],
) -> Float[Array, "*tasks images statistics"]:
    """Six numbers of each image, on scales where natural images are roughly normal.

    With the mean m and standard deviation s of luminance, and the root mean square
    differences d1 of adjacent pixels and d2 of adjacent means of 2 x 2 pixels:

    brightness      log(m / (1 - m))
    contrast        log(s / sqrt(m (1 - m))), relative to the most that the mean allows
    blue over red   log of the ratio of both channels' means
    saturation      log of the root mean square distance of channels from their pixel's mean,
                    after the channels were scaled to equal means, so that a tint is no part
    sharpness       log(d1 / d2), which falls where the finest detail is lost
    structure       log(d2 / s)

    Ratios make each number say what the others do not. The two of colour are zero for grey
    images, which have one channel. A grey image in three equal channels has constant ones
    too: whoever fits a density to these numbers needs a floor for its variance.
    """
    if min(images.shape[-3:-1]) < 4:
        raise ValueError(f"Images need 4 x 4 pixels or more, but have {images.shape[-3:-1]}.")
    grey = luminance(images)[..., 0]
    mean = jnp.clip(jnp.mean(grey, (-2, -1)), FLOOR, 1 - FLOOR)
    deviation = jnp.log(jnp.std(grey, (-2, -1)) + FLOOR)
    fine, coarse = _log_difference(grey), _log_difference(_halved(grey))
    return jnp.stack(
        [
            jax.scipy.special.logit(mean),
            deviation - jnp.log(mean * (1 - mean)) / 2,
            *_of_colour(images),
            fine - coarse,
            coarse - deviation,
        ],
        axis=-1,
    )


def _of_colour(
    images: Float[Array, "*images height width channels"],
) -> tuple[Float[Array, "*images"], Float[Array, "*images"]]:
    """Blue over red, and saturation."""
    if images.shape[-1] == 1:
        none = jnp.zeros(images.shape[:-3], images.dtype)
        return none, none
    channels = [images[..., c] + DARK for c in range(3)]
    means = [jnp.mean(channel, (-2, -1), keepdims=True) for channel in channels]
    red, green, blue = (channel / mean for channel, mean in zip(channels, means, strict=True))
    # The variance of three numbers is the sum of their squared differences over 9.
    squares = jnp.square(red - green) + jnp.square(green - blue) + jnp.square(blue - red)
    saturation = jnp.sqrt(jnp.mean(squares, (-2, -1)) / 9)
    return jnp.log(means[2] / means[0])[..., 0, 0], jnp.log(saturation + GREY)


def _log_difference(grey: Float[Array, "*images height width"]) -> Float[Array, "*images"]:
    """Logarithm of the root mean square difference of adjacent pixels."""
    down = jnp.mean(jnp.square(jnp.diff(grey, axis=-2)), (-2, -1))
    across = jnp.mean(jnp.square(jnp.diff(grey, axis=-1)), (-2, -1))
    return jnp.log(jnp.sqrt((down + across) / 2) + FLOOR)


def _halved(grey: Float[Array, "*images height width"]) -> Float[Array, "*images half across"]:
    """Means of 2 x 2 pixels; an odd last row or column is left out."""
    height, width = (side // 2 for side in grey.shape[-2:])
    even = grey[..., : 2 * height, : 2 * width]
    return jnp.mean(even.reshape(*grey.shape[:-2], height, 2, width, 2), (-3, -1))
