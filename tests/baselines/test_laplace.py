"""Online Laplace: without strength it is MAML; a phase that ends leaves its curvature."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.adaptation import Adaptation
from taskmix.baselines import MAML, OnlineLaplace
from taskmix.models import MLP
from taskmix.models.kronecker import quadratic
from taskmix.streams import FunctionStream, consecutive
from taskmix.tasks import Hints

STREAM = FunctionStream(consecutive(("linear", "sinusoid"), (3, 100)), tasks=3, support=4, query=5)
KEY = jax.random.key(0)
PARTS = {"model": MLP(hidden=(4,)), "adaptation": Adaptation(steps=1, rate=0.05)}
LINE = OnlineLaplace(
    model=MLP(hidden=(), init_scale=1.0), adaptation=Adaptation(steps=1), memory=1, strength=2.0
)


line_step = jax.jit(LINE.step)


def run(learner, steps):
    state, step = learner.init(KEY, STREAM.batch(KEY, 0)), jax.jit(learner.step)
    for iteration in range(steps):
        state, info = step(state, STREAM.batch(KEY, iteration), jax.random.fold_in(KEY, iteration))
    return state, info


def at_boundary(batch):
    return dataclasses.replace(batch, hints=Hints(batch.hints.family, jnp.asarray(True)))


def test_without_strength_it_is_maml_step_for_step_across_a_boundary():
    ours, maml = OnlineLaplace(**PARTS, strength=0.0), MAML(**PARTS)
    batch = STREAM.batch(KEY, 0)
    state, expected = ours.init(KEY, batch), maml.init(KEY, batch)
    step, expected_step = jax.jit(ours.step), jax.jit(maml.step)
    for iteration in range(6):
        batch = STREAM.batch(KEY, iteration)
        state, info = step(state, batch, KEY)
        expected, expected_info = expected_step(expected, batch, KEY)
        chex.assert_trees_all_close(
            (state.params, state.optimiser, info),
            (expected.params, expected.optimiser, expected_info),
            rtol=1e-4,
            atol=1e-7,
        )
    assert any(leaf.any() for leaf in jax.tree.leaves(state.precision))


def test_boundary_before_anything_was_learned_adds_nothing():
    learner = OnlineLaplace(**PARTS, strength=100.0)
    batch = STREAM.batch(KEY, 0)
    state = learner.init(KEY, batch)
    step = jax.jit(learner.step)
    announced, _ = step(state, at_boundary(batch), KEY)
    plain, _ = step(state, batch, KEY)
    chex.assert_trees_all_equal(announced, plain)
    assert not any(leaf.any() for leaf in jax.tree.leaves(announced.precision))


@pytest.fixture(scope="module")
def line():
    """A line after two batches, and after the batch with which a phase begins."""
    batches = [STREAM.batch(KEY, iteration) for iteration in range(3)]
    before = LINE.init(KEY, batches[0])
    for batch in batches[:2]:
        before, _ = line_step(before, batch, KEY)
    after, _ = line_step(before, at_boundary(batches[2]), KEY)
    return batches, before, after


def dense(factors):
    return np.kron(factors.inputs, factors.outputs)


def test_phase_that_ends_leaves_its_mode_and_the_curvature_of_its_last_batch(line):
    batches, before, after = line
    chex.assert_trees_all_equal(after.mode, before.params)
    # The information of a line, with memory 1: the second moment of (x, 1) in the last queries.
    x = np.asarray(batches[1].query.x).ravel()
    rows = np.stack([x, np.ones_like(x)], axis=1)
    np.testing.assert_allclose(dense(after.precision[0]), rows.T @ rows / len(x), rtol=1e-4)


def test_average_forgets_the_phase_that_ended(line):
    batches, _, after = line
    x = np.asarray(batches[2].query.x).ravel()
    np.testing.assert_allclose(after.curvature[0].inputs[0, 0], np.mean(x**2), rtol=1e-4)
    np.testing.assert_allclose(after.weight, 1)


def test_average_of_a_short_phase_is_not_drawn_to_zero():
    batch = STREAM.batch(KEY, 0)
    learner = dataclasses.replace(LINE, memory=50)
    step = jax.jit(learner.step)
    state, _ = step(learner.init(KEY, batch), batch, KEY)
    after, _ = step(state, at_boundary(batch), KEY)
    expected = np.mean(np.square(batch.query.x))
    np.testing.assert_allclose(dense(after.precision[0])[0, 0], expected, rtol=1e-4)


def test_pull_is_that_of_the_dense_precision(line):
    batches, _, state = line
    moved = dataclasses.replace(
        state, params=jax.tree.map(lambda leaf: leaf + jnp.float32(0.3), state.params)
    )
    plain = MAML(LINE.model, LINE.likelihood, LINE.adaptation)
    gradient, _ = jax.jit(plain._gradient)(moved.params, batches[2], KEY)
    after, _ = line_step(moved, batches[2], KEY)
    (layer,), (mode,) = moved.params, moved.mode
    distance = [layer.weight.item() - mode.weight.item(), layer.bias.item() - mode.bias.item()]
    pull = LINE.strength * dense(state.precision[0]) @ distance
    expected = [gradient[0].weight.item() + pull[0], gradient[0].bias.item() + pull[1]]
    # Adam keeps a tenth of a gradient and nine tenths of what it had.
    (new,), (old,) = after.optimiser[0].mu, state.optimiser[0].mu
    found = [
        (new.weight.item() - 0.9 * old.weight.item()) / 0.1,
        (new.bias.item() - 0.9 * old.bias.item()) / 0.1,
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_strength_keeps_parameters_near_the_mode():
    def distance(strength):
        state, _ = run(OnlineLaplace(**PARTS, strength=strength, meta_rate=1e-2), 40)
        return quadratic(state.precision, jax.tree.map(jnp.subtract, state.params, state.mode))

    assert distance(1e4) < 0.1 * distance(0.0)


def test_batch_without_hints_is_refused():
    batch = STREAM.batch(KEY, 0)
    with pytest.raises(ValueError, match="told where a phase begins; pass hints"):
        LINE.step(LINE.init(KEY, batch), batch.without_hints(), KEY)


@pytest.mark.parametrize(("field", "value"), [("strength", -1.0), ("memory", 0)])
def test_bad_hyperparameter_is_refused_by_name_and_value(field, value):
    with pytest.raises(ValueError, match=rf"^{field} is {value};"):
        OnlineLaplace(**{field: value})
