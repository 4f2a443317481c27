"""A residual network of twelve convolutions, the usual larger network of few-shot learning."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from taskmix.models.convolution import convolve
from taskmix.models.mlp import Linear
from taskmix.models.normalisation import Maps, Mask, batch_statistics, checked_images, square_image
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
    size: int = 84
    outputs: int = 5
    widths: tuple[int, ...] = (64, 128, 256, 512)
    one_at_a_time: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.widths or min(self.channels, self.outputs, *self.widths) < 1:
            raise ValueError(
                f"channels, outputs and widths are {self.channels}, {self.outputs} and "
                f"{self.widths}; all must be at least 1, and there must be a width."
            )
        smallest = 2 ** len(self.widths)
        if self.size < smallest:
            raise ValueError(
                f"size is {self.size}; {len(self.widths)} poolings halve it to nothing. "
                f"Images must be at least {smallest} pixels wide."
            )

    @classmethod
    def fitting(cls, shape: tuple[int, ...], outputs: int) -> ResNet12:
        """One for images of a shape (rows, columns, channels)."""
        height, channels = square_image(shape)
        return cls(channels, height, outputs)

    def init(self, key: Key[Array, ""]) -> ResNet12Params:
        *keys, head = jax.random.split(key, len(self.widths) + 1)
        blocks = tuple(
            _init_block(k, channels, filters)
            for k, channels, filters in zip(
                keys, (self.channels, *self.widths[:-1]), self.widths, strict=True
            )
        )
        glorot = jax.nn.initializers.glorot_uniform()
        weight = glorot(head, (self.widths[-1], self.outputs))
        return ResNet12Params(blocks, Linear(weight, jnp.zeros(self.outputs)))

    def apply(
        self,
        params: ResNet12Params,
        x: Float[Array, "examples height width channels"],
        mask: Bool[Array, " examples"] | None = None,
    ) -> Float[Array, "examples outputs"]:
        x = checked_images(x, mask, self.size, self.channels)
        for block in params.blocks:
            x = _apply_block(block, x, mask)
        return jnp.mean(x, axis=(1, 2)) @ params.head.weight + params.head.bias

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
    block: Block, x: Maps, mask: Mask | None
) -> Float[Array, "images rows columns filters"]:
    past = _apply_unit(block.shortcut, x, mask)
    *units, last = block.units
    for unit in units:
        x = jax.nn.leaky_relu(_apply_unit(unit, x, mask), SLOPE)
    return max_pool(jax.nn.leaky_relu(_apply_unit(last, x, mask) + past, SLOPE))


def _apply_unit(
    unit: Unit, x: Maps, mask: Mask | None
) -> Float[Array, "images height width filters"]:
    maps = convolve(x, unit.kernel)
    mean, variance = batch_statistics(maps, mask)
    return (maps - mean) * (unit.scale * jax.lax.rsqrt(variance + EPSILON)) + unit.shift
