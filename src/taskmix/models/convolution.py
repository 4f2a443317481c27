"""Convolution of images, closed under differentiation so that it stays fast in second order.

XLA's own gradient of a convolution is another convolution with unusual strides or grouping;
inside a loop over tasks on a CPU it is up to ninety times slower than the convolution itself.
Here both gradients are written out, and since a convolution and its kernel gradient are
bilinear, the derivative of each is again one of the two:

    y = x * w          dx = g * flip(w)      dw = corr(x, g)
    w' = corr(x, g)    dx = g * flip(v)      dg = x * v         (v: upstream of w')
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# The fast path of a native convolution needs a multiple of this many input channels.
LANES = 4

_NHWC = ("NHWC", "HWIO", "NHWC")

Images = Float[Array, "images height width channels"]
Maps = Float[Array, "images height width filters"]
Kernel = Float[Array, "size size channels filters"]


@jax.custom_vjp
def convolve(x: Images, kernel: Kernel) -> Maps:
    """Convolution with stride 1 and zero padding; the kernel has an odd size.

    Only reverse-mode derivatives are defined, to any order.
    """
    missing = -x.shape[-1] % LANES
    if missing:
        x = jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, missing)))
        kernel = jnp.pad(kernel, ((0, 0), (0, 0), (0, missing), (0, 0)))
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=_NHWC)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def kernel_gradient(x: Images, upstream: Maps, size: int) -> Kernel:
    """Derivative of sum(upstream * convolve(x, kernel)) in a kernel of the given size.

    It is a convolution in which channels are the images and images the channels, taken over a
    few images at a time, which stay in the cache of a core.
    """
    missing = -x.shape[0] % LANES
    if missing:
        x, upstream = (jnp.pad(a, ((0, missing), *[(0, 0)] * 3)) for a in (x, upstream))
    edge = (size // 2, size // 2)

    def add(total: Array, block: tuple[Images, Maps]) -> tuple[Array, None]:
        images, maps = block
        part = jax.lax.conv_general_dilated(
            images.transpose(3, 1, 2, 0),
            maps.transpose(1, 2, 0, 3),
            (1, 1),
            (edge, edge),
            dimension_numbers=_NHWC,
        )
        return total + part, None

    zero = jnp.zeros((x.shape[-1], size, size, upstream.shape[-1]), upstream.dtype)
    total, _ = jax.lax.scan(add, zero, (_blocks(x), _blocks(upstream)))
    return total.transpose(1, 2, 0, 3)


def _flip(kernel: Kernel) -> Float[Array, "size size filters channels"]:
    """The kernel of the transposed convolution."""
    return kernel[::-1, ::-1].swapaxes(2, 3)


def _convolve_backward(residuals: tuple[Array, Array], upstream: Array) -> tuple[Array, Array]:
    x, kernel = residuals
    return convolve(upstream, _flip(kernel)), kernel_gradient(x, upstream, kernel.shape[0])


def _kernel_gradient_backward(
    size: int, residuals: tuple[Array, Array], upstream: Array
) -> tuple[Array, Array]:
    x, maps = residuals
    return convolve(maps, _flip(upstream)), convolve(x, upstream)


convolve.defvjp(lambda x, kernel: (convolve(x, kernel), (x, kernel)), _convolve_backward)
kernel_gradient.defvjp(
    lambda x, upstream, size: (kernel_gradient(x, upstream, size), (x, upstream)),
    _kernel_gradient_backward,
)


def patches(x: Images, size: int) -> Float[Array, "taps pixels"]:
    """The neighbourhood of every pixel as a column, in the order of a flattened kernel.

    Rows are shifted images of one channel each, which are copied in long runs even if there
    are few channels.
    """
    _, height, width, channels = x.shape
    edge = (size // 2, size // 2)
    planes = jnp.pad(x.transpose(3, 0, 1, 2), ((0, 0), (0, 0), edge, edge))
    shifted = [
        planes[:, :, row : row + height, column : column + width]
        for row in range(size)
        for column in range(size)
    ]
    return jnp.stack(shifted).reshape(size * size * channels, -1)


def _blocks(x: Images) -> Float[Array, "blocks block height width channels"]:
    return x.reshape(-1, LANES, *x.shape[1:])
