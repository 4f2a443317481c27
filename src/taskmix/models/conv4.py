"""MAML's network for small images: four convolutions and a linear layer."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from taskmix.models.block import normalised_maps
from taskmix.models.convolution import convolve
from taskmix.models.mlp import Linear
from taskmix.models.model import Tap, no_tap
from taskmix.models.normalisation import Maps, Mask, checked_images, square_image

BLOCKS = 4
# TensorFlow's default, which MAML used.
EPSILON = 1e-3


class Block(eqx.Module):
    """A convolution and the shift after its normalisation (MAML learns no scale).

    Subtracting the batch's mean cancels ``bias`` exactly, so it is counted and never used;
    its gradient is zero.
    """

    kernel: Float[Array, "size size channels filters"]
    bias: Float[Array, " filters"]
    shift: Float[Array, " filters"]


class Conv4Params(eqx.Module):
    blocks: tuple[Block, ...]
    head: Linear


@dataclasses.dataclass(frozen=True)
class Conv4:
    """Four times: 3x3 convolution, batch normalisation, rectifier, 2x2 max-pool; then linear.

    Statistics are always those of the real examples of the current call, in training and in
    testing, so an output depends on the other examples of its call (it is *transductive*).
    The inner loop adapts weights and biases; shifts belong to the outer loop alone.

    Reference: Finn, Abbeel, Levine (2017), "Model-agnostic meta-learning", appendix A.1.

    >>> from taskmix.models.model import parameter_count
    >>> parameter_count(Conv4())
    32773
    """

    channels: int = 3
    """Of an input image: 1 for grey, 3 for colours."""
    size: int = 84
    """Rows, and columns, of an input image."""
    filters: int = 32
    """Of each convolution."""
    outputs: int = 5
    """Numbers per example, such as one per class."""
    one_at_a_time: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if min(self.channels, self.filters, self.outputs) < 1:
            raise ValueError(
                f"channels, filters and outputs are {self.channels}, {self.filters} and "
                f"{self.outputs}; all must be at least 1."
            )
        if self.size < 2**BLOCKS:
            raise ValueError(
                f"size is {self.size}; {BLOCKS} poolings halve it to nothing. "
                f"Images must be at least {2**BLOCKS} pixels wide."
            )

    @classmethod
    def fitting(cls, shape: tuple[int, ...], outputs: int) -> Conv4:
        """One for images of a shape (rows, columns, channels)."""
        height, channels = square_image(shape)
        return cls(channels, height, outputs=outputs)

    def init(self, key: Key[Array, ""]) -> Conv4Params:
        *keys, head = jax.random.split(key, BLOCKS + 1)
        glorot = jax.nn.initializers.glorot_uniform()
        channels = (self.channels, *[self.filters] * (BLOCKS - 1))
        zero = jnp.zeros(self.filters)
        blocks = tuple(
            Block(glorot(k, (3, 3, c, self.filters)), zero, zero)
            for k, c in zip(keys, channels, strict=True)
        )
        features = self.filters * (self.size // 2**BLOCKS) ** 2
        weight = glorot(head, (features, self.outputs))
        return Conv4Params(blocks, Linear(weight, jnp.zeros(self.outputs)))

    def apply(
        self,
        params: Conv4Params,
        x: Float[Array, "examples height width channels"],
        mask: Bool[Array, " examples"] | None = None,
    ) -> Float[Array, "examples outputs"]:
        return self.apply_tapped(params, x, mask, no_tap)

    def apply_tapped(
        self,
        params: Conv4Params,
        x: Float[Array, "examples height width channels"],
        mask: Bool[Array, " examples"] | None,
        tap: Tap,
    ) -> Float[Array, "examples outputs"]:
        """What ``apply`` gives, with ``tap`` after every layer, before its nonlinearity."""
        x = checked_images(x, mask, self.size, self.channels)
        for block in params.blocks:
            x = _apply_block(block, x, mask, tap)
        x = x.reshape(x.shape[0], -1)
        return tap(params.head, x, x @ params.head.weight + params.head.bias)

    def adaptable(self, params: Conv4Params) -> PyTree[bool]:
        everything = jax.tree.map(lambda _: True, params)
        return eqx.tree_at(
            lambda p: [block.shift for block in p.blocks], everything, [False] * BLOCKS
        )


def _apply_block(
    block: Block, x: Maps, mask: Mask | None, tap: Tap
) -> Float[Array, "images rows columns filters"]:
    maps = tap(block, x, convolve(x, block.kernel))
    normalised, _ = normalised_maps(maps, mask, EPSILON)
    return jax.nn.relu(normalised + block.shift)
