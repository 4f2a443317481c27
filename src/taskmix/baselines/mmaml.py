"""MMAML: MAML from an initialisation that is modulated to the kind of the task.

R. Vuorio, S.-H. Sun, H. Hu, J. J. Lim: Multimodal model-agnostic meta-learning via task-aware
modulation. NeurIPS 2019.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree

from taskmix.baselines.maml import MAML, MAMLState
from taskmix.likelihood import masked_mean
from taskmix.models import MLP, Model, is_layer, units_of
from taskmix.models.conv4 import Block
from taskmix.models.mlp import Linear
from taskmix.models.resnet12 import Unit
from taskmix.tasks import Examples, TaskBatch

GRID = 4
"""An image is described by the cells of a square grid with so many rows."""


class Modulation(eqx.Module):
    """A scale and a shift for the output of each unit of a layer; (1, 0) does nothing."""

    scale: Float[Array, " units"]
    shift: Float[Array, " units"]


class ModulatedParams(eqx.Module):
    network: PyTree
    modulations: tuple[Modulation, ...]
    """One for each layer, in order."""


@dataclasses.dataclass(frozen=True)
class Modulated:
    """A network under a modulation, which the inner loop does not change."""

    model: Model

    @property
    def one_at_a_time(self) -> bool:
        return self.model.one_at_a_time

    def init(self, key: Key[Array, ""]) -> ModulatedParams:
        """A network of the model that is not modulated."""
        network = self.model.init(key)
        return ModulatedParams(
            network, tuple(Modulation(jnp.ones(n), jnp.zeros(n)) for n in units_of(network))
        )

    def apply(
        self, params: ModulatedParams, x: Array, mask: Bool[Array, " examples"] | None = None
    ) -> Float[Array, "examples outputs"]:
        return self.model.apply(effective(params), x, mask)

    def adaptable(self, params: ModulatedParams) -> PyTree[bool]:
        nothing = jax.tree.map(lambda _: False, params)
        return eqx.tree_at(lambda p: p.network, nothing, self.model.adaptable(params.network))


def effective(params: ModulatedParams) -> PyTree:
    """Parameters with which the network itself computes what the modulated one does.

    A scale before a batch normalisation would be cancelled by it, so a layer's rectified
    outputs are scaled, which is a scale of the next layer's inputs, and its shift is added
    where the network has its own: after the normalisation, or to the bias. Outputs of the
    network, and of convolutions with a scale of their own, are modulated directly.
    """
    layers, structure = jax.tree.flatten(params.network, is_leaf=is_layer)
    modulated: list[Any] = []
    incoming = None
    for place, (layer, own) in enumerate(zip(layers, params.modulations, strict=True), start=1):
        outgoing = None
        match layer:
            case Linear() if place == len(layers):
                weight = _scaled_inputs(layer.weight, incoming) * own.scale
                layer = Linear(weight, layer.bias * own.scale + own.shift)
            case Linear():
                weight = _scaled_inputs(layer.weight, incoming)
                layer, outgoing = Linear(weight, layer.bias + own.shift), own.scale
            case Block():
                kernel = _scaled_inputs(layer.kernel, incoming)
                layer, outgoing = Block(kernel, layer.bias, layer.shift + own.shift), own.scale
            case Unit():
                layer = Unit(layer.kernel, layer.scale * own.scale, layer.shift + own.shift)
            case _:
                raise ValueError(
                    f"layer {place} is a {type(layer).__name__}; only those of MLP, Conv4 and "
                    f"ResNet12 can be modulated."
                )
        modulated.append(layer)
        incoming = outgoing
    return jax.tree.unflatten(structure, modulated)


def _scaled_inputs(
    weight: Float[Array, "*kernel inputs outputs"], scale: Float[Array, " units"] | None
) -> Float[Array, "*kernel inputs outputs"]:
    """The last axis of flattened maps is that of the units, so the scale is repeated."""
    if scale is None:
        return weight
    return weight * jnp.tile(scale, weight.shape[-2] // scale.size)[:, None]


class MMAMLParams(eqx.Module):
    network: PyTree
    encoder: PyTree
    """From what is known of an example to its encoding."""
    generator: PyTree
    """From the embedding of a task to a modulation of every layer."""


@dataclasses.dataclass(frozen=True)
class MMAML(MAML):
    """Embed the support set, modulate every layer by the embedding, then adapt as MAML does.

    The embedding is the mean encoding of the support examples. The modulation stays as it is
    while the inner loop adapts the network under it.

    Examples
    --------
    >>> MMAML(embedding=8).told.value
    'nothing'
    """

    embedding: int = 32
    """Numbers that summarise a support set; also the hidden units on the way to and from it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.embedding < 1:
            raise ValueError(f"embedding is {self.embedding}; it must be at least 1.")

    def init(self, key: Key[Array, ""], example: TaskBatch) -> MAMLState:
        """The generator ends in zeros: learning begins with MAML, without a modulation."""
        key, encoding, generating = jax.random.split(key, 3)
        network = self.model.init(key)
        one = jax.tree.map(lambda leaf: leaf[0], example.support)
        features = jax.eval_shape(describe, one).shape[-1]
        encoder = self._encoder(features).init(encoding)
        *hidden, last = self._generator(network).init(generating)
        generator = (*hidden, jax.tree.map(jnp.zeros_like, last))
        params = MMAMLParams(network, encoder, generator)
        return MAMLState(params, self._begin(params))

    def _adapt(self, params: MMAMLParams, support: Examples) -> PyTree:
        start = ModulatedParams(params.network, self._modulations(params, support))
        modulated = Modulated(self.model)
        return effective(self.adaptation(modulated, self.likelihood, start, support))

    def _modulations(self, params: MMAMLParams, support: Examples) -> tuple[Modulation, ...]:
        features = describe(support)
        encodings = self._encoder(features.shape[-1]).apply(params.encoder, features)
        embedding = masked_mean(encodings.T, support.mask)
        numbers = self._generator(params.network).apply(params.generator, embedding[None])[0]
        units = units_of(params.network)
        parts = jnp.split(numbers, np.cumsum([2 * n for n in units])[:-1])
        return tuple(
            Modulation(1 + part[:n], part[n:]) for part, n in zip(parts, units, strict=True)
        )

    def _encoder(self, features: int) -> MLP:
        return MLP(features, (self.embedding,), self.embedding)

    def _generator(self, network: PyTree) -> MLP:
        return MLP(self.embedding, (self.embedding,), 2 * sum(units_of(network)))


def describe(support: Examples) -> Float[Array, "examples features"]:
    """What the encoder sees of each example: its input, and its target if that is a vector.

    Labels are left out, since their order within a task is arbitrary. Of an image it sees
    mean and standard deviation of every channel in the cells of a coarse grid.
    """
    x = support.x
    if x.ndim == 4:
        images, height, width, channels = x.shape
        rows, columns = height // GRID, width // GRID
        cells = x[:, : GRID * rows, : GRID * columns].reshape(
            images, GRID, rows, GRID, columns, channels
        )
        statistics = (jnp.mean(cells, axis=(2, 4)), jnp.std(cells, axis=(2, 4)))
        x = jnp.concatenate(statistics, axis=-1).reshape(images, -1)
    return x if support.y.ndim == 1 else jnp.concatenate([x, support.y], axis=-1)
