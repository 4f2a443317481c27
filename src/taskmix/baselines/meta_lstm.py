"""Meta-learner LSTM: the update rule of the inner loop is learned, and is that of an LSTM's cell.

S. Ravi, H. Larochelle: Optimization as a model for few-shot learning. ICLR 2017.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Key, PyTree

from taskmix.adaptation import (
    MetaOptimiser,
    TaskResult,
    annealed_optimiser,
    clip_scale,
    one_after_the_other,
    query_result,
    task_loss,
)
from taskmix.adaptation.means import task_weights
from taskmix.baselines.single import Single, check_positive, query_info, single_prediction
from taskmix.learner import Info, Prediction, Told, protected
from taskmix.likelihood import Gaussian, Likelihood
from taskmix.models import MLP, Model, check_repeated
from taskmix.models.lstm import LSTM, LSTMParams, Memory
from taskmix.tasks import Examples, Hints, TaskBatch

# Gradients of e^-10 and less are as good as zero.
_PRECISION = 10.0
# Of the weights at the start.
_SCALE = 0.01

# What backpropagation keeps of so many coordinates stays in the cache of a core.
_BLOCK = 256

Coordinates = Float[Array, " coordinates"]
Seen = tuple[Float[Array, "*updates"], Float[Array, "*updates coordinates"]]
"""Loss and gradient on the support set."""


class Gate(eqx.Module):
    """Weights of (h_t, theta_{t-1}, the gate's own last value), and a bias."""

    weight: Float[Array, " inputs"]
    bias: Float[Array, ""]


class UpdateRule(eqx.Module):
    """What all coordinates of all layers share."""

    reader: LSTMParams
    enter: Gate
    keep: Gate


class Learned(eqx.Module):
    rule: UpdateRule
    first: PyTree
    """Parameters from which every task starts: the first state of the cell."""


class MetaLSTMState(eqx.Module):
    params: Learned
    optimiser: PyTree


class Coordinate(eqx.Module):
    """Where the update of every coordinate has come to."""

    value: Coordinates
    reader: Memory
    """With one column a coordinate."""
    enter: Coordinates
    """Value of the gate before its sigmoid."""
    keep: Coordinates


Follow = Callable[[UpdateRule, Coordinates, Seen], Coordinates]


@dataclasses.dataclass(frozen=True)
class MetaLSTM(Single):
    """A coordinate theta of the network is the cell of an LSTM and its gradient the input.

    For each coordinate, with the same weights: an ordinary LSTM reads loss and gradient and
    gives h_t, then
        i_t = W_I (h_t, theta_{t-1}, i_{t-1}) + b_I,  f_t = W_F (h_t, theta_{t-1}, f_{t-1}) + b_F,
        theta_t = sigmoid(f_t) theta_{t-1} - sigmoid(i_t) grad_t.
    Gates are fed back before their sigmoid; at first they are 0. Loss and gradient count as
    constants, so there are no second derivatives.

    Departures: batch normalisation uses the statistics of each call, as the networks here do,
    and not running ones in tests; its shifts are learned but not adapted; gradients on the
    support set are clipped, without which regression diverges; an update of the rule is from
    all tasks of a batch, not from one.

    Examples
    --------
    >>> MetaLSTM(updates=3).told.value
    'nothing'
    """

    model: Model = MLP()
    """Network that the learned rule updates."""
    likelihood: Likelihood = Gaussian()
    """What targets are: numbers, classes or counts."""
    meta_rate: float = 1e-3
    """Rate of the optimiser that learns across tasks."""
    anneal_over: int = 0
    """Iterations over which the meta rate falls to zero; 0 keeps it."""
    updates: int = 12
    """Steps on the support set; the paper takes 12 with one example per class, 8 with five, and so
    do the image experiments."""
    hidden: int = 20
    """Units of the LSTM that reads loss and gradient."""
    clip: float = 10.0
    """Largest norm of a gradient on the support set; longer ones are scaled down."""
    meta_clip: float = 0.25
    """Largest norm of the meta-gradient; longer ones are scaled down."""
    meta_optimiser: MetaOptimiser = dataclasses.field(default=optax.adam, kw_only=True)
    """From a rate, or a schedule of rates, to what makes updates of gradients: one of optax's."""

    told = Told.NOTHING

    def __post_init__(self) -> None:
        check_positive(meta_rate=self.meta_rate, clip=self.clip, meta_clip=self.meta_clip)
        check_positive(hidden=self.hidden)
        check_repeated(updates=self.updates)
        _ = self._optimiser()

    def init(self, key: Key[Array, ""], example: TaskBatch) -> MetaLSTMState:
        """A rule that starts near gradient descent with rate 0.01 and little decay."""
        first, reader, enter, keep = jax.random.split(key, 4)
        rule = UpdateRule(
            self._reader().init(reader, _SCALE),
            _init_gate(enter, self.hidden, -5.0),
            _init_gate(keep, self.hidden, 4.0),
        )
        params = Learned(rule, self.model.init(first))
        return MetaLSTMState(params, self._optimiser().init(params))

    @protected
    def step(
        self, state: MetaLSTMState, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[MetaLSTMState, Info]:
        batch = batch.without_padding_values()

        def task_loss(
            params: Learned, support: Examples, query: Examples
        ) -> tuple[Float[Array, ""], TaskResult]:
            outputs = self.model.apply(self._adapt(params, support), query.x, query.mask)
            result = query_result(self.likelihood, outputs, query)
            return result.loss, result

        # One task at a time for any network: what several keep outgrows the cache of a core.
        gradient, result = one_after_the_other(
            jax.grad(task_loss, has_aux=True),
            state.params,
            (batch.support, batch.query),
            task_weights(batch),
        )
        updates, optimiser = self._optimiser().update(gradient, state.optimiser)
        state = MetaLSTMState(optax.apply_updates(state.params, updates), optimiser)
        return state, query_info(self.likelihood, result, batch)

    def predict(
        self,
        state: MetaLSTMState,
        support: Examples,
        query_x: Array,
        hints: Hints | None = None,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Prediction:
        params = self._adapt(state.params, support.without_padding_values())
        mean = self.likelihood.predictive(self.model.apply(params, query_x, query_mask))
        return single_prediction(mean)

    def _adapt(self, params: Learned, support: Examples) -> PyTree:
        """Parameters of one task, differentiable in what is learned."""
        fast, slow = eqx.partition(params.first, self.model.adaptable(params.first))
        start, unravel = ravel_pytree(fast)

        rule, begin, rest = jax.lax.stop_gradient((params.rule, start, slow))

        def loss(value: Coordinates) -> Float[Array, ""]:
            combined = eqx.combine(unravel(value), rest)
            return task_loss(self.model, self.likelihood, combined, support)

        def advance(coordinate: Coordinate, _: None) -> tuple[Coordinate, Seen]:
            height, slope = jax.value_and_grad(loss)(coordinate.value)
            seen = height, slope * clip_scale(slope, self.clip)
            return self.update(rule, coordinate, *seen), seen

        coordinate, seen = jax.lax.scan(advance, self.at(begin), length=self.updates)
        value = _value_after(self._follow, params.rule, start, coordinate.value, seen)
        return eqx.combine(unravel(value), slow)

    def _follow(self, rule: UpdateRule, start: Coordinates, seen: Seen) -> Coordinates:
        """The coordinates after updates by losses and gradients that are known."""
        coordinate, _ = jax.lax.scan(
            lambda coordinate, one: (self.update(rule, coordinate, *one), None),
            self.at(start),
            seen,
        )
        return coordinate.value

    def at(self, value: Coordinates) -> Coordinate:
        """Coordinates before their first update."""
        zero = jnp.zeros_like(value)
        nothing = self._reader().start(len(value))
        return Coordinate(value, jax.tree.map(jnp.transpose, nothing), zero, zero)

    def update(
        self,
        rule: UpdateRule,
        coordinate: Coordinate,
        loss: Float[Array, ""],
        gradient: Coordinates,
    ) -> Coordinate:
        """One update of every coordinate."""
        losses = jnp.broadcast_to(preprocessed(loss)[:, None], (2, len(gradient)))
        seen = jnp.concatenate([losses, preprocessed(gradient)])
        reader = self._reader().apply_to_columns(rule.reader, coordinate.reader, seen)
        enter = _gate(rule.enter, reader.hidden, coordinate.value, coordinate.enter)
        keep = _gate(rule.keep, reader.hidden, coordinate.value, coordinate.keep)
        value = jax.nn.sigmoid(keep) * coordinate.value - jax.nn.sigmoid(enter) * gradient
        return Coordinate(value, reader, enter, keep)

    def _reader(self) -> LSTM:
        return LSTM(inputs=4, units=self.hidden)

    def _optimiser(self) -> optax.GradientTransformation:
        return annealed_optimiser(
            self.meta_rate, self.anneal_over, self.meta_clip, self.meta_optimiser
        )


def preprocessed(x: Float[Array, "*columns"]) -> Float[Array, "parts=2 *columns"]:
    """Magnitude and sign: (log|x|/p, sign x) if |x| > e^-p, else (-1, e^p x), with p = 10."""
    large = jnp.abs(x) > math.exp(-_PRECISION)
    magnitude = jnp.where(large, jnp.log(jnp.where(large, jnp.abs(x), 1)) / _PRECISION, -1)
    return jnp.stack([magnitude, jnp.where(large, jnp.sign(x), math.exp(_PRECISION) * x)])


def _init_gate(key: Key[Array, ""], hidden: int, lowest: float) -> Gate:
    """Small weights, and a bias between ``lowest`` and 1 more."""
    weight, bias = jax.random.split(key)
    return Gate(
        jax.random.uniform(weight, (hidden + 2,), minval=-_SCALE, maxval=_SCALE),
        jax.random.uniform(bias, (), minval=lowest, maxval=lowest + 1),
    )


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _value_after(
    follow: Follow, rule: UpdateRule, start: Coordinates, value: Coordinates, seen: Seen
) -> Coordinates:
    """``value``, known to be follow(rule, start, seen), differentiable in rule and start.

    With losses and gradients given, coordinates do not depend on each other. So their updates
    are gone back through block by block; an iteration on images takes half the time that
    it takes with all of them at once.
    """
    return value


def _value_after_backward(
    follow: Follow, residuals: tuple[UpdateRule, Coordinates, Seen], upstream: Coordinates
) -> tuple[UpdateRule, Coordinates, None, None]:
    rule, start, (losses, gradients) = residuals

    def add(
        total: UpdateRule, block: tuple[Coordinates, Array, Coordinates]
    ) -> tuple[UpdateRule, Coordinates]:
        start, gradients, upstream = block
        _, pull_back = jax.vjp(
            lambda rule, start: follow(rule, start, (losses, gradients)), rule, start
        )
        in_rule, in_start = pull_back(upstream)
        return jax.tree.map(jnp.add, total, in_rule), in_start

    blocks = (_blocks(start), jnp.moveaxis(_blocks(gradients), 0, 1), _blocks(upstream))
    in_rule, in_start = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, rule), blocks)
    return in_rule, in_start.ravel()[: len(start)], None, None


_value_after.defvjp(
    lambda follow, rule, start, value, seen: (value, (rule, start, seen)), _value_after_backward
)


def _blocks(x: Float[Array, "*rows coordinates"]) -> Float[Array, "*rows blocks block"]:
    """Coordinates in blocks; the last one is filled up with zeros, which pass nothing on."""
    padding = [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % _BLOCK)]
    return jnp.pad(x, padding).reshape(*x.shape[:-1], -1, _BLOCK)


def _gate(
    gate: Gate, hidden: Float[Array, "hidden coordinates"], value: Coordinates, last: Coordinates
) -> Coordinates:
    """W (h_t, theta_{t-1}, last) + b."""
    *_, of_value, of_last = gate.weight
    return gate.weight[:-2] @ hidden + of_value * value + of_last * last + gate.bias
