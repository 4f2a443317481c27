"""The cell of a long short-term memory.

S. Hochreiter, J. Schmidhuber: Long short-term memory. Neural Computation, 1997.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key


class LSTMParams(eqx.Module):
    """Weights of all four gates side by side: input, forget, candidate, output."""

    weight: Float[Array, "rows gates"]
    bias: Float[Array, " gates"]


class Memory(eqx.Module):
    """What a cell hands on to its next step, with axes (*batch, units) or (units, batch)."""

    hidden: Float[Array, "*axes"]
    cell: Float[Array, "*axes"]


@dataclasses.dataclass(frozen=True)
class LSTM:
    """With [i, f, g, o] = weight [x, h] + bias:

        c' = sigmoid(f) c + sigmoid(i) tanh(g),    h' = sigmoid(o) tanh(c')

    >>> LSTM(inputs=4, units=20).init(jax.random.key(0)).weight.shape
    (24, 80)
    """

    inputs: int
    units: int

    def __post_init__(self) -> None:
        for name in ("inputs", "units"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1.")

    def init(self, key: Key[Array, ""], limit: float | None = None) -> LSTMParams:
        """Weights uniform within ``limit`` of zero, by default 1/sqrt(units); biases zero."""
        limit = self.units**-0.5 if limit is None else limit
        shape = (self.inputs + self.units, 4 * self.units)
        weight = jax.random.uniform(key, shape, minval=-limit, maxval=limit)
        return LSTMParams(weight, jnp.zeros(4 * self.units))

    def start(self, *batch: int) -> Memory:
        """An empty memory."""
        nothing = jnp.zeros((*batch, self.units))
        return Memory(nothing, nothing)

    def apply(self, params: LSTMParams, memory: Memory, x: Float[Array, "*batch inputs"]) -> Memory:
        """One step; the new ``hidden`` is the output."""
        gates = jnp.concatenate([x, memory.hidden], axis=-1) @ params.weight + params.bias
        return _after(gates, memory.cell, axis=-1)

    def apply_to_columns(
        self, params: LSTMParams, memory: Memory, x: Float[Array, "inputs batch"]
    ) -> Memory:
        """The same for columns, which is faster if they outnumber the units by far.

        Processors work along the last axis, and one of 20 units is too short for them.
        """
        gates = params.weight.T @ jnp.concatenate([x, memory.hidden]) + params.bias[:, None]
        return _after(gates, memory.cell, axis=0)


def _after(gates: Array, cell: Array, axis: int) -> Memory:
    """The next memory, the gates being side by side along ``axis``."""
    admit, keep, candidate, show = jnp.split(gates, 4, axis)
    cell = jax.nn.sigmoid(keep) * cell + jax.nn.sigmoid(admit) * jnp.tanh(candidate)
    return Memory(jax.nn.sigmoid(show) * jnp.tanh(cell), cell)
