"""Long short-term memory: one step of a recurrent cell.

S. Hochreiter, J. Schmidhuber: Long short-term memory. Neural Computation 1997.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key


class LSTMParams(eqx.Module):
    """Weights of the input gate, the forget gate, the candidate and the output gate, in a row."""

    inputs: Float[Array, "inputs gates"]
    recurrent: Float[Array, "hidden gates"]
    bias: Float[Array, " gates"]


class LSTMState(eqx.Module):
    hidden: Float[Array, "rows hidden"]
    cell: Float[Array, "rows hidden"]


@dataclasses.dataclass(frozen=True)
class LSTM:
    """The same weights for every row.

    i, f, o = sigmoid(...), g = tanh(...), each affine in (x, h);
    c = f * c + i * g;  h = o * tanh(c).
    """

    inputs: int
    hidden: int

    def init(self, key: Key[Array, ""], scale: float) -> LSTMParams:
        """All numbers drawn from U(-scale, scale)."""
        shapes = (self.inputs, 4 * self.hidden), (self.hidden, 4 * self.hidden), (4 * self.hidden,)
        return LSTMParams(
            *(
                jax.random.uniform(k, shape, minval=-scale, maxval=scale)
                for k, shape in zip(jax.random.split(key, 3), shapes, strict=True)
            )
        )

    def first(self, rows: int) -> LSTMState:
        """Zeros."""
        return LSTMState(jnp.zeros((rows, self.hidden)), jnp.zeros((rows, self.hidden)))

    def step(
        self, params: LSTMParams, state: LSTMState, x: Float[Array, "rows inputs"]
    ) -> LSTMState:
        gates = x @ params.inputs + state.hidden @ params.recurrent + params.bias
        enter, keep, candidate, leave = jnp.split(gates, 4, axis=-1)
        cell = jax.nn.sigmoid(keep) * state.cell + jax.nn.sigmoid(enter) * jnp.tanh(candidate)
        return LSTMState(jax.nn.sigmoid(leave) * jnp.tanh(cell), cell)
