"""A fully connected network."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from taskmix.models.model import Tap, no_tap


class Linear(eqx.Module):
    """Weights and biases of one layer."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]


@dataclasses.dataclass(frozen=True)
class MLP:
    """The regression network of the paper: two hidden layers of 40 units.

    Weights start as N(0, init_scale^2), biases as zero. With ``init_scale`` 0 the weights of a
    layer start as N(0, 2 / its inputs) and the biases of the first one as N(0, 1), which spreads
    the bends of the first layer over the inputs; so it is done for features.

    Examples
    --------
    >>> network = MLP(inputs=2, hidden=(8,), outputs=3)
    >>> network.apply(network.init(jax.random.key(0)), jnp.ones((5, 2))).shape
    (5, 3)
    """

    inputs: int = 1
    """Numbers per input."""
    hidden: tuple[int, ...] = (40, 40)
    """Units of each hidden layer."""
    outputs: int = 1
    """Numbers per output."""
    init_scale: float = 0.1
    """Standard deviation of the first weights; 0 for one that suits the width."""
    activation: Literal["relu", "tanh"] = "relu"
    """After hidden layers; after the last one as well if it is `tanh`."""
    input_scale: float = 1.0
    """What inputs are divided by."""

    one_at_a_time = False
    by_row = True
    """What it makes of an example depends on no other."""

    def __post_init__(self) -> None:
        if min(self.inputs, self.outputs, *self.hidden) < 1:
            raise ValueError(
                f"sizes are {(self.inputs, *self.hidden, self.outputs)}; all must be at least 1."
            )
        if not 0 <= self.init_scale < math.inf:
            raise ValueError(f"init_scale is {self.init_scale}; it must be 0 or more, and finite.")
        if not 0 < self.input_scale < math.inf:
            raise ValueError(f"input_scale is {self.input_scale}; it must be positive and finite.")

    @classmethod
    def fitting(cls, shape: tuple[int, ...], outputs: int) -> MLP:
        """One for inputs of a shape."""
        if len(shape) != 1:
            raise ValueError(f"Inputs have shape {shape}; a fully connected network needs vectors.")
        return cls(inputs=shape[0], outputs=outputs)

    def init(self, key: Key[Array, ""]) -> tuple[Linear, ...]:
        sizes = (self.inputs, *self.hidden, self.outputs)
        keys = jax.random.split(key, len(sizes) - 1)
        if not self.init_scale:
            first, *others = (
                Linear((2 / m) ** 0.5 * jax.random.normal(k, (m, n)), jnp.zeros(n))
                for k, m, n in zip(keys, sizes[:-1], sizes[1:], strict=True)
            )
            bias = jax.random.normal(jax.random.fold_in(key, 0), first.bias.shape)
            return (Linear(first.weight, bias), *others)
        return tuple(
            Linear(self.init_scale * jax.random.normal(k, (m, n)), jnp.zeros(n))
            for k, m, n in zip(keys, sizes[:-1], sizes[1:], strict=True)
        )

    def apply(
        self,
        params: tuple[Linear, ...],
        x: Float[Array, "examples inputs"],
        mask: Bool[Array, " examples"] | None = None,
    ) -> Float[Array, "examples outputs"]:
        return self.apply_tapped(params, x, mask, no_tap)

    def apply_tapped(
        self,
        params: tuple[Linear, ...],
        x: Float[Array, "examples inputs"],
        mask: Bool[Array, " examples"] | None,
        tap: Tap,
    ) -> Float[Array, "examples outputs"]:
        """What ``apply`` gives, with ``tap`` after every layer, before its nonlinearity."""
        bend = jax.nn.relu if self.activation == "relu" else jnp.tanh
        if self.input_scale != 1:
            x = x / self.input_scale
        for layer in params[:-1]:
            x = bend(tap(layer, x, x @ layer.weight + layer.bias))
        outputs = tap(params[-1], x, x @ params[-1].weight + params[-1].bias)
        return jnp.tanh(outputs) if self.activation == "tanh" else outputs

    def adaptable(self, params: tuple[Linear, ...]) -> PyTree:
        return jax.tree.map(lambda _: True, params)
