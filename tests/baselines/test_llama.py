"""LLAMA: without its term it is MAML, and the term has the gradient of a dense determinant."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from taskmix.adaptation import Adaptation
from taskmix.baselines import LLAMA, MAML
from taskmix.likelihood import Gaussian
from taskmix.models import MLP, ResNet12
from taskmix.streams import FunctionStream, consecutive

STREAM = FunctionStream(consecutive(("sinusoid",), (10,)), tasks=3, support=4, query=5)
KEY = jax.random.key(0)
PARTS = {
    "model": MLP(hidden=(4,), init_scale=0.5),
    "adaptation": Adaptation(steps=1, rate=0.05, clip=1e6),
}


def run(learner, steps=4):
    state, step = learner.init(KEY, STREAM.batch(KEY, 0)), jax.jit(learner.step)
    infos = []
    for iteration in range(steps):
        state, info = step(state, STREAM.batch(KEY, iteration), jax.random.fold_in(KEY, iteration))
        infos.append(info)
    return state, infos


def test_without_the_determinant_it_is_maml_step_for_step():
    chex.assert_trees_all_close(run(LLAMA(**PARTS, eta=0.0)), run(MAML(**PARTS)), rtol=1e-4)


def test_determinant_moves_the_parameters_but_is_no_part_of_the_error():
    (plain, before), (moved, after) = (
        run(LLAMA(**PARTS, eta=0.0), 1),
        run(LLAMA(**PARTS, eta=1.0), 1),
    )
    chex.assert_trees_all_equal(before, after)
    assert not np.allclose(ravel_pytree(plain.params)[0], ravel_pytree(moved.params)[0])


def slow_objective(learner, params, batch):
    """Mean over tasks of loss and dense determinant; the variance of an output is 1/4."""
    total = 0.0
    for task in range(3):
        support, query = jax.tree.map(lambda leaf, t=task: leaf[t], (batch.support, batch.query))

        def loss(p, examples):
            return jnp.mean(jnp.square(learner.model.apply(p, examples.x) - examples.y))

        slope = jax.grad(loss)(params, support)
        first, last = adapted = jax.tree.map(lambda p, g: p - 0.05 * g, params, slope)
        before = query.x @ first.weight + first.bias
        ones = jnp.ones((5, 1))
        at_hidden = 2 * last.weight[:, 0] * (before > 0)
        moments = [
            (jnp.concatenate([query.x, ones], 1), at_hidden),
            (jnp.concatenate([jnp.maximum(before, 0), ones], 1), 2 * ones),
        ]
        total += loss(adapted, query)
        for a, g in moments:
            blocks = [m.T @ m / 5 + 0.1 * jnp.eye(m.shape[1]) for m in (a, g)]
            total += learner.eta * jnp.linalg.slogdet(jnp.kron(*blocks))[1]
    return total / 3


def test_gradient_is_that_of_the_loss_with_a_dense_determinant():
    learner = LLAMA(**PARTS, likelihood=Gaussian(variance=0.25), eta=0.1, damping=0.01)
    batch = STREAM.batch(KEY, 0)
    params = jax.tree.map(lambda leaf: leaf + 0.1, learner.model.init(KEY))
    found, _ = jax.jit(learner._gradient)(params, batch, KEY)
    expected = jax.jit(jax.grad(lambda p: slow_objective(learner, p, batch)))(params)
    chex.assert_trees_all_close(found, expected, rtol=1e-3, atol=1e-4)


def test_determinant_of_a_line_does_not_depend_on_the_line():
    """Its information is that of the inputs alone, so the term has no gradient."""
    line = dataclasses.replace(LLAMA(**PARTS, eta=1.0), model=MLP(hidden=()))
    plain = dataclasses.replace(line, eta=0.0)
    chex.assert_trees_all_close(run(line, 1)[0], run(plain, 1)[0], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("field", "value"), [("eta", -1.0), ("damping", 0.0), ("meta_rate", 0.0)])
def test_bad_hyperparameter_is_refused_by_name_and_value(field, value):
    with pytest.raises(ValueError, match=rf"^{field} is {value};"):
        LLAMA(**{field: value})


def test_network_whose_layers_cannot_be_seen_is_refused():
    with pytest.raises(ValueError, match=r"^model is ResNet12"):
        LLAMA(model=ResNet12())
