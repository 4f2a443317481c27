import dataclasses
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.adaptation import Adaptation
from taskmix.baselines import MAML, SI
from taskmix.models import MLP
from taskmix.models.mlp import Linear
from taskmix.tasks import Examples, Hints, TaskBatch

KEY = jax.random.key(0)
NETWORK = {"model": MLP(hidden=(6,)), "adaptation": Adaptation(steps=1, rate=0.05)}
LINE = SI(model=MLP(hidden=()), adaptation=Adaptation(steps=0), damping=0.01)


def random_batch(seed: int, boundary: bool = False) -> TaskBatch:
    x = jax.random.normal(jax.random.key(seed), (3, 8, 1))
    y = jnp.sin(x + seed)
    hints = Hints(jnp.zeros(3, dtype=int), jnp.asarray(boundary))
    return TaskBatch(Examples.full(x[:, :4], y[:, :4]), Examples.full(x[:, 4:], y[:, 4:]), hints)


def one_point(boundary: bool = False) -> TaskBatch:
    """The task of the point (1, 0), whose loss is (w + b)^2."""
    examples = Examples.full(jnp.ones((1, 1, 1)), jnp.zeros((1, 1, 1)))
    return TaskBatch(examples, examples, Hints(jnp.zeros(1, dtype=int), jnp.asarray(boundary)))


def line(weight: float, bias: float) -> tuple[Linear]:
    return (Linear(jnp.full((1, 1), weight), jnp.full(1, bias)),)


def numbers(params) -> np.ndarray:
    (layer,) = params
    return np.array([layer.weight.item(), layer.bias.item()])


@pytest.fixture(scope="module")
def step():
    return jax.jit(LINE.step)


@pytest.fixture(scope="module")
def began():
    state = LINE.init(KEY, one_point())
    return dataclasses.replace(state, params=line(1.0, 1.0), start=line(1.0, 1.0))


@pytest.fixture(scope="module")
def walked(step, began):
    """A hundred steps along the straight line w = b, downhill."""
    state = began
    for _ in range(100):
        state, _ = step(state, one_point(), KEY)
    return state


def test_path_along_a_line_sums_to_what_the_loss_fell_by(walked):
    fell = 2.0**2 - numbers(walked.params).sum() ** 2
    assert fell > 0.5
    # A step of size d overstates the fall of a quadratic by d^2: 100 * 0.002^2 in all.
    np.testing.assert_allclose(numbers(walked.path).sum(), fell, atol=1e-3)
    np.testing.assert_allclose(*numbers(walked.path), rtol=1e-4)


def test_importance_is_the_path_over_the_squared_distance(step, walked):
    after, _ = step(walked, one_point(boundary=True), KEY)
    moved = numbers(walked.params) - 1
    expected = numbers(walked.path) / (moved**2 + 0.01)
    np.testing.assert_allclose(numbers(after.penalty.importance), expected, rtol=1e-5)
    np.testing.assert_array_equal(numbers(after.penalty.centre), numbers(walked.params))
    np.testing.assert_array_equal(numbers(after.start), numbers(walked.params))


def test_path_begins_anew_with_a_phase(step, walked):
    after, _ = step(walked, one_point(boundary=True), KEY)
    expected = numbers(walked.params).sum() * 2 * (numbers(walked.params) - numbers(after.params))
    np.testing.assert_allclose(numbers(after.path), expected, rtol=1e-4)


def test_parameter_that_raised_the_loss_has_no_importance(step, began):
    uphill = dataclasses.replace(began, path=line(-1.0, 0.5))
    after, _ = step(uphill, one_point(boundary=True), KEY)
    np.testing.assert_allclose(numbers(after.penalty.importance), [0, 0.5 / 0.01], rtol=1e-6)


def test_optimiser_sees_a_penalty_without_one_half(began):
    learner = dataclasses.replace(LINE, strength=3.0)
    state = dataclasses.replace(
        began, penalty=type(began.penalty)(importance=line(5.0, 0.0), centre=line(0.5, 0.0))
    )
    after, _ = jax.jit(learner.step)(state, one_point(), KEY)
    # Adam keeps a tenth of 2 (w + b) + 2 * 3 * 5 * (1 - 0.5), and of 2 (w + b).
    np.testing.assert_allclose(numbers(after.optimiser[0].mu), [1.9, 0.4], rtol=1e-5)


def test_without_strength_it_is_maml_across_a_boundary():
    ours, maml = SI(**NETWORK, strength=0.0), MAML(**NETWORK)
    step, expected_step = jax.jit(ours.step), jax.jit(maml.step)
    state, expected = ours.init(KEY, random_batch(0)), maml.init(KEY, random_batch(0))
    for seed in range(5):
        batch = random_batch(seed, boundary=seed == 2)
        state, info = step(state, batch, KEY)
        expected, expected_info = expected_step(expected, batch, KEY)
        chex.assert_trees_all_close(state.params, expected.params, rtol=1e-5, atol=1e-7)
        chex.assert_trees_all_close(info, expected_info, rtol=1e-5)
    assert max(leaf.max() for leaf in jax.tree.leaves(state.penalty.importance)) > 0


def test_boundary_before_anything_was_learned_adds_nothing(step, began):
    told, _ = step(began, one_point(boundary=True), KEY)
    untold, _ = step(began, one_point(), KEY)
    np.testing.assert_array_equal(numbers(told.penalty.importance), [0, 0])
    chex.assert_trees_all_equal((told.params, told.path), (untold.params, untold.path))


@pytest.mark.parametrize(
    ("field", "value"), [("strength", -1.0), ("strength", math.nan), ("damping", 0.0)]
)
def test_bad_hyperparameter_is_refused_by_name_and_value(field, value):
    with pytest.raises(ValueError, match=rf"^{field} is {value};"):
        SI(**{field: value})
