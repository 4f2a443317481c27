"""A residual network of twelve convolutions, the usual larger network of few-shot learning."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from taskmix.models.block import Statistics
from taskmix.models.convolution import convolve
from taskmix.models.mlp import Linear
from taskmix.models.normalisation import Maps, batch_statistics, checked_images, square_image
from taskmix.models.pooling import max_pool

DEPTH = 3
SLOPE = 0.1
EPSILON = 1e-5


class Unit(eqx.Module):
    """A convolution and the scale and shift after its normalisation.

    It has no bias, which the normalisation would cancel.
    """

    kernel: Float[Array, "size size channels filters"]
    scale: Float[Array, " filters"]
    shift: Float[Array, " filters"]


class Block(eqx.Module):
    """Three 3x3 convolutions, and a 1x1 convolution past them."""

    units: tuple[Unit, ...]
    shortcut: Unit


class ResNet12Params(eqx.Module):
    blocks: tuple[Block, ...]
    head: Linear


@dataclasses.dataclass(frozen=True)
class ResNetEncoder:
    """The residual blocks of a ResNet-12 and the mean over pixels: from images to vectors.

    >>> ResNetEncoder(widths=(8, 16)).features
    16
    """

    channels: int = 3
    """Of an input image: 1 for grey, 3 for colours."""
    size: int = 84
    """Rows, and columns, of an input image."""
    widths: tuple[int, ...] = (64, 128, 256, 512)
    """Filters of each block."""

    def __post_init__(self) -> None:
        if not self.widths or min(self.channels, *self.widths) < 1:
            raise ValueError(
                f"channels and widths are {self.channels} and {self.widths}; all must be at "
                f"least 1, and there must be a width."
            )
        smallest = 2 ** len(self.widths)
        if self.size < smallest:
            raise ValueError(
                f"size is {self.size}; {len(self.widths)} poolings halve it to nothing. "
                f"Images must be at least {smallest} pixels wide."
            )

    @property
    def features(self) -> int:
        """Length of an embedding."""
        return self.widths[-1]

    def init(self, key: Key[Array, ""]) -> tuple[Block, ...]:
        return self.init_blocks(jax.random.split(key, len(self.widths)))

    def init_blocks(self, keys: Key[Array, " blocks"]) -> tuple[Block, ...]:
        """A random block for each of the keys."""
        channels = (self.channels, *self.widths[:-1])
        return tuple(
            _init_block(k, c, filters)
            for k, c, filters in zip(keys, channels, self.widths, strict=True)
        )

    def apply(
        self,
        params: tuple[Block, ...],
        x: Float[Array, "images height width channels"],
        mask: Bool[Array, " images"] | None = None,
        statistics: tuple[Statistics, ...] | None = None,
    ) -> tuple[Float[Array, "images features"], tuple[Statistics, ...]]:
        """Embeddings, and the statistics that every convolution was normalised by, in order.

        Given ``statistics``, every image is embedded on its own; otherwise they are those of
        the real images of the call.
        """
        x = checked_images(x, mask, self.size, self.channels)
        given = None if statistics is None else iter(statistics)
        used: list[Statistics] = []

        def normalise(unit: Unit, x: Maps) -> Float[Array, "images height width filters"]:
            maps = convolve(x, unit.kernel)
            seen = Statistics(*batch_statistics(maps, mask)) if given is None else next(given)
            used.append(seen)
            scale = unit.scale * jax.lax.rsqrt(seen.variance + EPSILON)
            return (maps - seen.mean) * scale + unit.shift

        for block in params:
            x = _apply_block(block, x, normalise)
        return jnp.mean(x, axis=(1, 2)), tuple(used)


@dataclasses.dataclass(frozen=True)
class ResNet12:
    """Residual blocks of three convolutions each, then the mean over pixels and a linear layer.

    Every convolution is normalised by the statistics of the real examples of the current
    call, as in ``Conv4``. The inner loop adapts kernels and the linear layer; scales and
    shifts belong to the outer loop alone, like the shifts of ``Conv4``. There is no dropout
    of blocks.

    References: Oreshkin, Rodriguez, Lacoste (2018), "TADAM", for widths and depth; Lee et al.
    (2019), "Meta-learning with differentiable convex optimization", for leaky rectifiers.

    >>> from taskmix.models.model import parameter_count
    >>> parameter_count(ResNet12())
    7999365
    """

    channels: int = 3
    """Of an input image: 1 for grey, 3 for colours."""
    size: int = 84
    """Rows, and columns, of an input image."""
    outputs: int = 5
    """Numbers per example, such as one per class."""
    widths: tuple[int, ...] = (64, 128, 256, 512)
    """Filters of each block."""
    one_at_a_time: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.outputs < 1:
            raise ValueError(f"outputs is {self.outputs}; it must be at least 1.")
        # Made once here, so that what is wrong with the rest is said before any work.
        _ = self.encoder

    @property
    def encoder(self) -> ResNetEncoder:
        """The network without its linear layer."""
        return ResNetEncoder(self.channels, self.size, self.widths)

    @classmethod
    def fitting(cls, shape: tuple[int, ...], outputs: int) -> ResNet12:
        """One for images of a shape (rows, columns, channels)."""
        height, channels = square_image(shape)
        return cls(channels, height, outputs)

    def init(self, key: Key[Array, ""]) -> ResNet12Params:
        *keys, head = jax.random.split(key, len(self.widths) + 1)
        blocks = self.encoder.init_blocks(jnp.stack(keys))
        glorot = jax.nn.initializers.glorot_uniform()
        weight = glorot(head, (self.widths[-1], self.outputs))
        return ResNet12Params(blocks, Linear(weight, jnp.zeros(self.outputs)))

    def apply(
        self,
        params: ResNet12Params,
        x: Float[Array, "examples height width channels"],
        mask: Bool[Array, " examples"] | None = None,
    ) -> Float[Array, "examples outputs"]:
        embedded, _ = self.encoder.apply(params.blocks, x, mask)
        return embedded @ params.head.weight + params.head.bias

    def adaptable(self, params: ResNet12Params) -> PyTree[bool]:
        def of_unit(unit: Unit) -> PyTree[bool]:
            nothing = jax.tree.map(lambda _: False, unit)
            return eqx.tree_at(lambda u: u.kernel, nothing, True)

        return jax.tree.map(
            lambda node: of_unit(node) if isinstance(node, Unit) else True,
            params,
            is_leaf=lambda node: isinstance(node, Unit),
        )


def _init_block(key: Key[Array, ""], channels: int, filters: int) -> Block:
    *keys, shortcut = jax.random.split(key, DEPTH + 1)
    inputs = (channels, *[filters] * (DEPTH - 1))
    units = tuple(_init_unit(k, 3, c, filters) for k, c in zip(keys, inputs, strict=True))
    return Block(units, _init_unit(shortcut, 1, channels, filters))


def _init_unit(key: Key[Array, ""], size: int, channels: int, filters: int) -> Unit:
    he = jax.nn.initializers.he_normal()
    kernel = he(key, (size, size, channels, filters))
    return Unit(kernel, jnp.ones(filters), jnp.zeros(filters))


def _apply_block(
    block: Block, x: Maps, normalise: Callable[[Unit, Array], Array]
) -> Float[Array, "images rows columns filters"]:
    past = normalise(block.shortcut, x)
    *units, last = block.units
    for unit in units:
        x = jax.nn.leaky_relu(normalise(unit, x), SLOPE)
    return max_pool(jax.nn.leaky_relu(normalise(last, x) + past, SLOPE))
