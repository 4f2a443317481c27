"""Filters that turn one set of images into several families of tasks.

The paper names blur, night and pencil and gives no recipe; these are deterministic ones in
the spirit of its example pictures, and the others are here to see what a learner makes of filters
that nothing in it was chosen for. ``register_filter`` adds one's own. Each maps float images in
[0, 1], one channel (grey) or three (red, green, blue), to images of the same shape in [0, 1].
Lengths are fractions of the shorter side, so that a filter looks the same at 84 pixels, the usual
size of miniImageNet, as at 32.

Batch normalisation in the first layer cancels any scale and offset of brightness: a filter is
only another family to such a network if it moves colours, tones or detail against each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from taskmix.registry import Registry

Images = Float[Array, "*images height width channels"]

BLUR = 1 / 42
"""Standard deviation of the blur as a part of the shorter side: 2 of 84 pixels, 0.76 of 32."""

STROKE = 1 / 16
"""The same for the surroundings a pencil compares with: 5.25 of 84 pixels, 2 of 32."""

PAPER = 0.1
"""Added to brightness before the pencil compares, so that noise in the dark leaves no stroke."""

LEVELS = 4
"""Tones that a poster has per channel."""

GRAIN = 0.15
"""Standard deviation of noise."""

CELL = 1 / 12
"""Side of the cells of a pixelated image as a part of the shorter side: 7 of 84 pixels."""

FOG = (0.85, 0.25)
"""Share of white in the topmost and in the lowest row of a foggy image."""

MOONLIGHT = (0.45, 0.6, 1.0)
"""What night leaves of red, green and blue."""

LUMINANCE = (0.299, 0.587, 0.114)
"""Share of red, green and blue in brightness (ITU-R BT.601)."""


def plain(images: Images) -> Images:
    """The images themselves."""
    return images


def blur(images: Images) -> Images:
    """Out of focus: a Gaussian of width side / 42, mirrored at the edges.

    Keeps the mean of every channel, and constant images as they are.
    """
    return jnp.clip(_smooth(images, BLUR), 0, 1)


def night(images: Images) -> Images:
    """Moonlight: y = c ((x + g) / 2)^2 with luminance g and c = 0.45, 0.6, 1 for R, G, B.

    As to an eye in the dark, half of the colour is gone; the square deepens shadows and c
    tints what is left. Batch normalisation undoes neither. A grey image takes the c of a
    white one's luminance, 0.6: only the square then tells it from a plain image.
    """
    gains = np.array(MOONLIGHT, np.float32)
    if _channels(images) == 1:
        gains = gains @ np.array(LUMINANCE, np.float32)[:, None]
    return jnp.square((images + luminance(images)) / 2) * gains


def pencil(images: Images) -> Images:
    """A drawing: y = min(1, (g + 0.1) / (smooth(g) + 0.1))^1.5 of the luminance g.

    Where the image is darker than its surroundings, smoothed over side / 16, a stroke
    appears, and all else is white paper: the usual "colour dodge" sketch, its faint strokes
    darkened by the power. Every channel holds the same drawing.
    """
    grey = luminance(images)
    strokes = jnp.minimum(1, (grey + PAPER) / (_smooth(grey, STROKE) + PAPER))
    # Several times faster than a general power.
    return jnp.broadcast_to(strokes * jnp.sqrt(strokes), images.shape)


def invert(images: Images) -> Images:
    """The negative."""
    return 1 - images


def posterise(images: Images) -> Images:
    """Four tones per channel, each the nearest one."""
    return jnp.round(images * (LEVELS - 1)) / (LEVELS - 1)


def noise(images: Images) -> Images:
    """Normal noise of deviation 0.15 on every channel, the same whenever an image is seen."""
    flat = images.reshape(-1, *images.shape[-3:])
    places = np.arange(math.prod(images.shape[-3:]), dtype=np.uint32).reshape(images.shape[-3:])

    def noisy(image: Images) -> Images:
        # A filter is a function of the image alone, so that decides its noise: in whole numbers,
        # whose sum does not depend on the order.
        tones = jnp.round(255 * image).astype(jnp.uint32)
        seed = jnp.sum(tones * (places * np.uint32(2654435761) + np.uint32(1)), dtype=jnp.uint32)
        return image + GRAIN * jax.random.normal(jax.random.key(seed), image.shape, image.dtype)

    return jnp.clip(jax.vmap(noisy)(flat), 0, 1).reshape(images.shape)


def grey(images: Images) -> Images:
    """Luminance in every channel."""
    return jnp.broadcast_to(luminance(images), images.shape)


def rotate(images: Images) -> Images:
    """A quarter turn to the left."""
    height, width = images.shape[-3:-1]
    if height != width:
        raise ValueError(f"Images are {height} x {width}; only squares can be turned.")
    return jnp.rot90(images, axes=(-3, -2))


def pixelate(images: Images) -> Images:
    """Means of square cells, a twelfth of the shorter side each, in place of their pixels."""
    height, breadth = images.shape[-3:-1]
    cell = max(2, round(CELL * min(height, breadth)))
    return jnp.einsum(
        "ij,kl,...jlc->...ikc",
        _cells(height, cell),
        _cells(breadth, cell),
        images,
        precision="highest",
    )


def fog(images: Images) -> Images:
    """A white veil, 85 % at the upper edge and 25 % at the lower, over a blurred image."""
    veil = jnp.linspace(*FOG, images.shape[-3], dtype=images.dtype)[:, None, None]
    return (1 - veil) * blur(images) + veil


def as_filter(name: str, thing: object) -> Callable[[Images], Images]:
    """What is registered, if it can be a filter."""
    if not callable(thing):
        raise ValueError(f"{name} is no filter; register a function from images to images.")
    return thing


FILTERS: Registry[Callable[[Images], Images]] = Registry(
    "image filter", "taskmix.filters", as_filter
)
"""Every filter by its name."""
for _filter in (plain, blur, night, pencil, invert, posterise, noise, grey, rotate, pixelate, fog):
    FILTERS.register(_filter.__name__, _filter)


def register_filter(name: str, function: Callable[[Images], Images]) -> Callable[[Images], Images]:
    """Add a filter of one's own, to be chosen by its name as ours are.

    Parameters
    ----------
    name
        What ``--families`` and tables call it.
    function
        From float images in [0, 1], of shape (..., rows, columns, channels), to images of the
        same shape in [0, 1]. It must depend on the images alone and be made of what JAX can
        trace.

    Returns
    -------
    callable
        The ``function``.

    Examples
    --------
    >>> import taskmix as tm
    >>> _ = tm.register_filter("sepia-example", lambda images: images * jnp.array([1, 0.9, 0.7]))
    >>> image_filter("sepia-example")(jnp.ones((4, 4, 3)))[0, 0, 1].item()
    0.8999999761581421
    >>> FILTERS.remove("sepia-example")
    """
    FILTERS.register(name, function)
    return function


def image_filter(name: str) -> Callable[[Images], Images]:
    """The filter of that name.

    >>> image_filter("night")(jnp.ones((4, 4, 3)))[0, 0].tolist()
    [0.44999998807907104, 0.6000000238418579, 1.0]
    """
    return FILTERS.find(name)


def checked_filter(name: str, shape: tuple[int, ...]) -> Callable[[Images], Images]:
    """The filter of that name, if it gives images of the ``shape`` that it gets."""
    found = image_filter(name)
    given = jax.ShapeDtypeStruct((2, *shape), jnp.float32)
    made = jax.eval_shape(found, given)
    if getattr(made, "shape", None) != given.shape or made.dtype != given.dtype:
        raise ValueError(
            f"The image filter {name!r} makes {made} of images of shape {given.shape}; it must "
            f"keep shape and type."
        )
    return found


def luminance(images: Images) -> Float[Array, "*images height width 1"]:
    """Brightness of each pixel: a weighted mean of red, green and blue, or the grey itself."""
    if _channels(images) == 1:
        return images
    # On a CPU many times faster than a sum over so short an axis.
    red, green, blue = (weight * images[..., c : c + 1] for c, weight in enumerate(LUMINANCE))
    return red + green + blue


def _channels(images: Images) -> int:
    channels = images.shape[-1]
    if channels not in (1, 3):
        raise ValueError(f"An image has 1 channel (grey) or 3 (red, green, blue), not {channels}.")
    return channels


def _smooth(images: Images, width: float) -> Images:
    """Gaussian smoothing; ``width`` is its standard deviation as a part of the shorter side."""
    height, breadth = images.shape[-3:-1]
    deviation = width * min(height, breadth)
    # The precision matters on a GPU only, which would round to 10 bits.
    return jnp.einsum(
        "ij,kl,...jlc->...ikc",
        _smoothing(height, deviation),
        _smoothing(breadth, deviation),
        images,
        precision="highest",
    )


def _cells(length: int, cell: int) -> np.ndarray:
    """The matrix that puts the mean of its cell in place of every pixel of a line."""
    number = np.arange(length) // cell
    same = number[:, None] == number
    return (same / same.sum(axis=1, keepdims=True)).astype(np.float32)


def _smoothing(length: int, deviation: float) -> np.ndarray:
    """The matrix that smooths a line of pixels, mirrored at both ends.

    Images are small, so that one product with it is faster than a convolution or a sum of
    shifted images. It is symmetric and its rows sum to one, hence a mean is kept.
    """
    reach = max(1, math.ceil(3 * deviation))
    weights = np.exp(-0.5 * np.square(np.arange(-reach, reach + 1) / deviation))
    mirrored = np.pad(np.eye(length), ((reach, reach), (0, 0)), mode="symmetric")
    windows = np.lib.stride_tricks.sliding_window_view(mirrored, 2 * reach + 1, axis=0)
    return (windows @ (weights / weights.sum())).astype(np.float32)
