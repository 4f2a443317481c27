"""The meta-learner LSTM: a slow version, and gates that make it gradient descent."""

import dataclasses
import math
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from taskmix.adaptation import Adaptation, meta_gradient
from taskmix.baselines import MetaLSTM, meta_lstm
from taskmix.baselines.meta_lstm import Gate, Learned, UpdateRule, preprocessed
from taskmix.likelihood import Categorical
from taskmix.models import MLP, Conv4
from taskmix.streams import FunctionStream, consecutive

STREAM = FunctionStream(consecutive(("sinusoid",), (10,)), tasks=3, support=4, query=5)
KEY = jax.random.key(0)
SMALL = MetaLSTM(model=MLP(hidden=(4,), init_scale=0.5), updates=3, hidden=5, clip=math.inf)
RATE = 0.05


@pytest.fixture(scope="module")
def batch():
    return STREAM.batch(KEY, 0)


@pytest.fixture(scope="module")
def state(batch):
    return SMALL.init(KEY, batch)


def test_rule_has_2046_parameters_besides_those_of_the_network(batch):
    for learner, network in (
        (MetaLSTM(), 1761),
        (MetaLSTM(model=Conv4(), likelihood=Categorical()), 32_773),
    ):
        state = jax.eval_shape(lambda learner=learner: learner.init(KEY, batch))
        assert learner.parameters(state) == 2046 + network


def test_rule_starts_as_the_paper_says():
    rules = [
        MetaLSTM(model=SMALL.model).init(jax.random.key(k), STREAM.batch(KEY, 0)).params.rule
        for k in range(5)
    ]
    for rule in rules:
        assert -5 <= rule.enter.bias <= -4
        assert 4 <= rule.keep.bias <= 5
        weights = jax.tree.leaves((rule.reader, rule.enter.weight, rule.keep.weight))
        assert all((np.abs(leaf) <= 0.01).all() for leaf in weights)


def test_preprocessing_gives_magnitude_and_sign():
    x = jnp.array([math.exp(-5), -math.exp(2), math.exp(-11), -math.exp(-12), 0.0])
    expected = [[-0.5, 1], [0.2, -1], [-1, math.exp(-1)], [-1, -math.exp(-2)], [-1, 0]]
    np.testing.assert_allclose(preprocessed(x).T, expected, rtol=1e-5)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def slow_preprocessed(x):
    return [np.log(abs(x)) / 10, np.sign(x)] if abs(x) > np.exp(-10) else [-1, np.exp(10) * x]


def slow_update(rule, coordinate, loss, gradient):
    """One coordinate: (value, hidden, cell, enter, keep) after an update."""
    value, hidden, cell, enter, keep = coordinate
    seen = [*slow_preprocessed(loss), *slow_preprocessed(gradient)]
    gates = np.concatenate([seen, hidden], axis=-1) @ rule.reader.weight + rule.reader.bias
    i, f, g, o = np.split(gates, 4)
    cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
    hidden = sigmoid(o) * np.tanh(cell)
    enter = rule.enter.weight @ [*hidden, value, enter] + rule.enter.bias
    keep = rule.keep.weight @ [*hidden, value, keep] + rule.keep.bias
    return sigmoid(keep) * value - sigmoid(enter) * gradient, hidden, cell, enter, keep


def test_updates_are_those_of_a_slow_version(state):
    large = jax.tree.map(lambda leaf: 50 * leaf, state.params.rule)
    rule = dataclasses.replace(
        large,
        enter=Gate(large.enter.weight, jnp.float32(-1)),
        keep=Gate(large.keep.weight, jnp.float32(1)),
    )
    slow_rule = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), rule)
    values, losses = np.array([0.7, -2.0, 0.0]), (3.0, 1e-6)
    gradients = np.array([[0.5, -1e-7, 4.0], [-30.0, 0.2, 0.0]])

    update = jax.jit(SMALL.update)
    coordinate = SMALL.at(jnp.asarray(values, jnp.float32))
    slow = [(value, np.zeros(5), np.zeros(5), 0.0, 0.0) for value in values]
    for loss, gradient in zip(losses, gradients, strict=True):
        coordinate = update(rule, coordinate, jnp.float32(loss), jnp.asarray(gradient, jnp.float32))
        slow = [slow_update(slow_rule, c, loss, g) for c, g in zip(slow, gradient, strict=True)]
        np.testing.assert_allclose(coordinate.value, [c[0] for c in slow], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(coordinate.enter, [c[3] for c in slow], rtol=1e-4, atol=1e-6)


def test_gradient_block_by_block_is_that_of_all_coordinates_at_once(state):
    rule = jax.tree.map(lambda leaf: 50 * leaf, state.params.rule)
    size = 700
    assert size % meta_lstm._BLOCK != 0
    start, upstream = jax.random.normal(KEY, (2, size))
    seen = jnp.array([3.0, 1e-6, 0.2]), jax.random.normal(jax.random.key(1), (3, size))

    def at_once(rule, start):
        return upstream @ SMALL._follow(rule, start, seen)

    def in_blocks(rule, start):
        value = jax.lax.stop_gradient(SMALL._follow(rule, start, seen))
        return upstream @ meta_lstm._value_after(SMALL._follow, rule, start, value, seen)

    expected = jax.jit(jax.value_and_grad(at_once, argnums=(0, 1)))(rule, start)
    found = jax.jit(jax.value_and_grad(in_blocks, argnums=(0, 1)))(rule, start)
    chex.assert_trees_all_close(found, expected, rtol=1e-4, atol=1e-4)


def descent(state):
    """What is learned, with gates that keep everything and let in RATE of a gradient."""
    nothing = jax.tree.map(jnp.zeros_like, state.params.rule)
    enter = Gate(nothing.enter.weight, jnp.float32(math.log(RATE / (1 - RATE))))
    # The sigmoid of 40 is 1 in single precision.
    keep = Gate(nothing.keep.weight, jnp.float32(40))
    return Learned(UpdateRule(nothing.reader, enter, keep), state.params.first)


def test_open_gates_make_it_gradient_descent(state, batch):
    support = jax.tree.map(lambda leaf: leaf[0], batch.support)
    adapted = jax.jit(SMALL._adapt)(descent(state), support)
    descend = Adaptation(steps=3, rate=RATE, clip=math.inf)
    expected = jax.jit(partial(descend, SMALL.model, SMALL.likelihood))(state.params.first, support)
    chex.assert_trees_all_close(adapted, expected, rtol=1e-4, atol=1e-6)


def test_open_gates_make_the_meta_gradient_that_of_first_order_maml(state, batch):
    learner = dataclasses.replace(SMALL, meta_clip=math.inf)
    begun = dataclasses.replace(learner.init(KEY, batch), params=descent(state))
    after, _ = jax.jit(learner.step)(begun, batch, KEY)
    first_order = Adaptation(steps=3, rate=RATE, clip=math.inf, first_order=True)
    gradient = partial(meta_gradient, SMALL.model, SMALL.likelihood, first_order)
    expected, _ = jax.jit(gradient)(state.params.first, batch)
    adam, _ = after.optimiser
    chex.assert_trees_all_close(
        adam.mu.first, jax.tree.map(lambda leaf: 0.1 * leaf, expected), rtol=1e-3, atol=1e-6
    )


def test_meta_gradient_is_clipped(state, batch):
    after, _ = jax.jit(SMALL.step)(state, batch, KEY)
    adam, _ = after.optimiser[1]
    np.testing.assert_allclose(optax.tree_utils.tree_norm(adam.mu), 0.1 * 0.25, rtol=1e-4)


def test_gradient_on_the_support_set_is_clipped(state, batch):
    support = jax.tree.map(lambda leaf: leaf[0], batch.support)
    learner = dataclasses.replace(SMALL, clip=0.1, updates=1)
    adapted = jax.jit(learner._adapt)(descent(state), support)
    moved = jax.tree.map(jnp.subtract, adapted, state.params.first)
    np.testing.assert_allclose(optax.tree_utils.tree_norm(moved), RATE * 0.1, rtol=1e-3)


@pytest.mark.parametrize(
    ("field", "value"),
    [("updates", 0), ("hidden", 0), ("clip", 0.0), ("meta_clip", -1.0), ("meta_rate", 0.0)],
)
def test_bad_hyperparameter_is_refused_by_name_and_value(field, value):
    with pytest.raises(ValueError, match=rf"^{field} is {value};"):
        MetaLSTM(**{field: value})
