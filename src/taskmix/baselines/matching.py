"""Matching networks: labels of the support set, weighed by attention.

O. Vinyals, C. Blundell, T. Lillicrap, K. Kavukcuoglu, D. Wierstra: Matching networks for one
shot learning. NeurIPS 2016.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Key, PyTree

from taskmix.adaptation import annealed_optimiser
from taskmix.baselines.metric import LOG_ZERO, MetricLearner, memberships
from taskmix.baselines.single import check_positive
from taskmix.models import LSTM, check_repeated
from taskmix.models.lstm import LSTMParams, Memory
from taskmix.tasks import Examples

Embedded = Float[Array, "support features"]
Queries = Float[Array, "query features"]


class FullContext(eqx.Module):
    """Weights of the three memories that let an embedding depend on the support set."""

    forward: LSTMParams
    backward: LSTMParams
    attention: LSTMParams


@dataclasses.dataclass(frozen=True)
class Matching(MetricLearner):
    """p(y = k | x) = sum of a(x, x_i) over the support examples i of class k,
    a(x, .) = softmax_i(scale * cosine(f(x), g(x_i))).

    f and g share the encoder. The scale is a departure from the paper, which has none:
    cosines within [-1, 1] make attention almost uniform.

    With full context, g reads the support set as a sequence (its order matters) and f
    attends to it several times; without, both are the encoder's.

    Examples
    --------
    >>> import taskmix as tm
    >>> Matching(tm.Conv4(size=16), full_context=False).told.value
    'nothing'
    """

    anneal_over: int = 0
    """Iterations over which the meta rate falls to zero; 0 keeps it."""
    full_context: bool = True
    """Whether an embedding depends on the whole support set."""
    scale: float = 10.0
    """What cosines are multiplied by."""
    reads: int = 3
    """How often a query attends to the support set (full context)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(scale=self.scale)
        check_repeated(reads=self.reads)
        _ = self.optimiser()

    def optimiser(self) -> optax.GradientTransformation:
        return annealed_optimiser(self.meta_rate, self.anneal_over, optimiser=self.meta_optimiser)

    def init_comparison(self, key: Key[Array, ""]) -> FullContext | tuple[()]:
        if not self.full_context:
            return ()
        forward, backward, attention = jax.random.split(key, 3)
        reader, attender = self._memories(self.encoder.features)
        return FullContext(reader.init(forward), reader.init(backward), attender.init(attention))

    def compare(
        self, params: PyTree, support: Examples, query: Queries
    ) -> Float[Array, "query classes"]:
        known = support.x
        if self.full_context:
            known = self._read(params, known, support.mask)
            query = self._attend(params, known, support.mask, query)
        members = memberships(support.y, support.mask, self.way)
        attention = self.scale * _unit(query) @ _unit(known).T
        log_attention = jax.nn.log_softmax(jnp.where(support.mask, attention, -jnp.inf))
        present = jnp.any(members, axis=0)
        # Sums of nothing are left out before the logarithm, so that no gradient is infinite.
        of_class = jnp.where(members.T | ~present[:, None], log_attention[:, None], -jnp.inf)
        return jnp.where(present, jax.nn.logsumexp(of_class, axis=-1), LOG_ZERO)

    def _read(
        self, params: FullContext, known: Embedded, mask: Bool[Array, " support"]
    ) -> Embedded:
        """g_i = g'_i + forward_i + backward_i, memories that run over the set both ways."""
        reader, _ = self._memories(known.shape[-1])

        def run(weights: LSTMParams, reverse: bool) -> Embedded:
            def advance(memory: Memory, example: tuple[Array, Array]) -> tuple[Memory, Array]:
                x, real = example
                following = reader.apply(weights, memory, x)
                memory = jax.tree.map(lambda a, b: jnp.where(real, a, b), following, memory)
                return memory, memory.hidden

            return jax.lax.scan(advance, reader.start(), (known, mask), reverse=reverse)[1]

        return known + run(params.forward, False) + run(params.backward, True)

    def _attend(
        self, params: FullContext, known: Embedded, mask: Bool[Array, " support"], query: Queries
    ) -> Queries:
        """h_k = f' + LSTM(f', [h_{k-1}, r_{k-1}], c_{k-1}), r_k = softmax_i(h_k . g_i) g.

        It begins with h_0 = f' and an empty cell, and gives h after the last read.
        """
        _, attender = self._memories(known.shape[-1])
        memory = Memory(query, jnp.zeros_like(query))
        for _ in range(self.reads):
            attention = jax.nn.softmax(jnp.where(mask, memory.hidden @ known.T, -jnp.inf))
            seen = jnp.concatenate([query, attention @ known], axis=-1)
            following = attender.apply(params.attention, memory, seen)
            memory = Memory(query + following.hidden, following.cell)
        return memory.hidden

    def _memories(self, features: int) -> tuple[LSTM, LSTM]:
        """That which reads the support set, and that which attends to it."""
        return LSTM(features, features), LSTM(2 * features, features)


def _unit(x: Float[Array, "n features"]) -> Float[Array, "n features"]:
    """Vectors of length one; those of nearly no length stay as short as they are."""
    squared = jnp.sum(jnp.square(x), axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.maximum(squared, 1e-12))
