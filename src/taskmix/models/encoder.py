"""The convolutions of Conv4 alone: from images to vectors that can be compared."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from taskmix.models.block import Statistics, normalised_maps
from taskmix.models.convolution import convolve
from taskmix.models.normalisation import Maps, Mask, checked_images
from taskmix.models.repeated import check_repeated

# PyTorch's default.
EPSILON = 1e-5


class EncoderBlock(eqx.Module):
    """A convolution, and the scale and shift after its normalisation.

    Normalisation cancels ``bias`` exactly (a running mean follows it), so it is counted and
    never used; its gradient is zero.
    """

    kernel: Float[Array, "size size channels filters"]
    shift: Float[Array, " filters"]
    bias: Float[Array, " filters"] | None
    scale: Float[Array, " filters"] | None


@dataclasses.dataclass(frozen=True)
class Encoder:
    """Several times: 3x3 convolution, batch normalisation, rectifier, 2x2 max-pool; flattened.

    >>> Encoder(size=84, filters=64).features
    1600
    """

    channels: int = 3
    """Of an input image: 1 for grey, 3 for colours."""
    size: int = 84
    """Rows, and columns, of an input image."""
    filters: int = 32
    """Of each convolution."""
    blocks: int = 4
    """Of convolution, normalisation, rectifier and pool."""
    affine: bool = True
    """Whether a block has a bias and a scale beside its shift."""

    def __post_init__(self) -> None:
        for name in ("channels", "filters"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        # Before 2 is raised to that power, which may have any number of digits.
        check_repeated(blocks=self.blocks)
        if self.size < 2**self.blocks:
            raise ValueError(
                f"size is {self.size}; {self.blocks} poolings halve it to nothing. "
                f"Images must be at least {2**self.blocks} pixels wide."
            )

    @property
    def features(self) -> int:
        """Length of an embedding."""
        return self.filters * (self.size >> self.blocks) ** 2

    def init(self, key: Key[Array, ""]) -> tuple[EncoderBlock, ...]:
        """Kernels as in Conv4, so that embeddings begin alike whichever method asks."""
        glorot = jax.nn.initializers.glorot_uniform()
        zero = jnp.zeros(self.filters)
        channels = (self.channels, *[self.filters] * (self.blocks - 1))
        return tuple(
            EncoderBlock(
                kernel=glorot(k, (3, 3, c, self.filters)),
                shift=zero,
                bias=zero if self.affine else None,
                scale=zero + 1 if self.affine else None,
            )
            for k, c in zip(jax.random.split(key, self.blocks), channels, strict=True)
        )

    def init_statistics(self) -> tuple[Statistics, ...]:
        """Statistics that change nothing, before there are any."""
        neutral = Statistics(jnp.zeros(self.filters), jnp.ones(self.filters))
        return (neutral,) * self.blocks

    def apply(
        self,
        params: tuple[EncoderBlock, ...],
        x: Float[Array, "images height width channels"],
        mask: Bool[Array, " images"] | None = None,
        statistics: tuple[Statistics, ...] | None = None,
    ) -> tuple[Float[Array, "images features"], tuple[Statistics, ...]]:
        """Embeddings, and the statistics they were normalised by.

        Given ``statistics``, every image is embedded on its own; otherwise they are those of
        the real images of the call.
        """
        x = checked_images(x, mask, self.size, self.channels)
        used = []
        for number, block in enumerate(params):
            given = None if statistics is None else statistics[number]
            x, seen = _apply_block(block, x, mask, given)
            used.append(seen)
        return x.reshape(x.shape[0], -1), tuple(used)


def _apply_block(
    block: EncoderBlock, x: Maps, mask: Mask | None, statistics: Statistics | None
) -> tuple[Float[Array, "images rows columns filters"], Statistics]:
    """pool(relu(scale * normalised + shift)).

    Pooling comes first, which a negative scale does not allow. Its sign is given to the
    kernel, and with it to the mean: that leaves scale * normalised as it is.
    """
    if block.scale is None:
        normalised, seen = normalised_maps(convolve(x, block.kernel), mask, EPSILON, statistics)
        return jax.nn.relu(normalised + block.shift), seen
    sign = jnp.where(block.scale < 0, -1, 1).astype(block.scale.dtype)
    given = None if statistics is None else _flipped(statistics, sign)
    maps = convolve(x, sign * block.kernel)
    normalised, seen = normalised_maps(maps, mask, EPSILON, given)
    return jax.nn.relu(sign * block.scale * normalised + block.shift), _flipped(seen, sign)


def _flipped(statistics: Statistics, sign: Float[Array, " filters"]) -> Statistics:
    return Statistics(sign * statistics.mean, statistics.variance)
