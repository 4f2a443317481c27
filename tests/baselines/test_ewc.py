import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.adaptation import Adaptation
from taskmix.baselines import EWC, MAML, OnlineEWC
from taskmix.baselines.consolidation import Quadratic
from taskmix.models import MLP
from taskmix.models.mlp import Linear
from taskmix.tasks import Examples, Hints, TaskBatch

KEY = jax.random.key(0)
NETWORK = {"model": MLP(hidden=(6,)), "adaptation": Adaptation(steps=1, rate=0.05)}
# A line without adaptation, that hardly moves: its gradients can be computed by hand.
LINE = {"model": MLP(hidden=()), "adaptation": Adaptation(steps=0), "meta_rate": 1e-12}


def random_batch(seed: int, boundary: bool = False) -> TaskBatch:
    x = jax.random.normal(jax.random.key(seed), (3, 8, 1))
    y = jnp.sin(x + seed)
    hints = Hints(jnp.zeros(3, dtype=int), jnp.asarray(boundary))
    return TaskBatch(Examples.full(x[:, :4], y[:, :4]), Examples.full(x[:, 4:], y[:, 4:]), hints)


def points(*x: float, boundary: bool = False) -> TaskBatch:
    """One task a number: a single point (x, 0)."""
    examples = Examples.full(jnp.asarray(x)[:, None, None], jnp.zeros((len(x), 1, 1)))
    return TaskBatch(examples, examples, Hints(jnp.zeros(len(x), dtype=int), jnp.asarray(boundary)))


def line_state(learner: EWC):
    """y = x: residuals are the inputs themselves."""
    state = learner.init(KEY, points(1.0, 2.0))
    params = (Linear(jnp.ones((1, 1)), jnp.zeros(1)),)
    return dataclasses.replace(state, params=params)


def numbers(params) -> list[float]:
    (layer,) = params
    return [layer.weight.item(), layer.bias.item()]


@functools.cache
def step_of(learner):
    """Compiled once for all tests of a learner."""
    return jax.jit(learner.step)


def after(learner, *batches, state=None):
    step = step_of(learner)
    state = learner.init(KEY, batches[0]) if state is None else state
    for batch in batches:
        state, info = step(state, batch, KEY)
    return state, info


@pytest.mark.parametrize("build", [EWC, OnlineEWC])
def test_without_strength_it_is_maml_across_a_boundary(build):
    batches = [random_batch(seed, boundary=seed == 2) for seed in range(5)]
    state, info = after(build(**NETWORK, strength=0.0), *batches)
    expected, expected_info = after(MAML(**NETWORK), *batches)
    chex.assert_trees_all_close(state.params, expected.params, rtol=1e-4, atol=1e-6)
    chex.assert_trees_all_close(info, expected_info, rtol=1e-4)
    assert max(leaf.max() for leaf in jax.tree.leaves(state.penalty.importance)) > 0


@pytest.mark.parametrize("build", [EWC, OnlineEWC])
def test_boundary_before_anything_was_learned_adds_nothing(build):
    learner = build(**NETWORK, strength=1e6)
    told, _ = after(learner, random_batch(0, boundary=True), random_batch(1))
    untold, _ = after(learner, random_batch(0), random_batch(1))
    chex.assert_trees_all_equal(
        (told.params, told.optimiser, told.penalty.importance),
        (untold.params, untold.optimiser, untold.penalty.importance),
    )


def test_fisher_is_the_mean_over_tasks_of_squared_gradients():
    learner = EWC(**LINE)
    state, _ = after(learner, points(1.0, 2.0), state=line_state(learner))
    # d/dw = 2 x * x, d/db = 2 x: (2, 2) for x = 1 and (8, 4) for x = 2.
    np.testing.assert_allclose(numbers(state.fisher), [(4 + 64) / 2, (4 + 16) / 2], rtol=1e-6)


def test_fisher_is_a_mean_over_the_window_and_then_fades():
    learner = EWC(**LINE, window=2)
    batches = [points(x) for x in (1.0, 2.0, 3.0)]
    state, _ = after(learner, *batches, state=line_state(learner))
    # Squares in b are 4, 16, 36: the mean of the first two, then halfway to the third.
    np.testing.assert_allclose(numbers(state.fisher)[1], ((4 + 16) / 2 + 36) / 2, rtol=1e-6)


def test_phase_that_ended_is_kept_and_the_next_gathers_anew():
    learner = EWC(**LINE)
    batches = [points(1.0), points(2.0, boundary=True)]
    state, _ = after(learner, *batches, state=line_state(learner))
    np.testing.assert_allclose(numbers(state.penalty.importance), [4, 4], rtol=1e-6)
    np.testing.assert_allclose(numbers(state.penalty.centre), [1, 0], atol=1e-6)
    np.testing.assert_allclose(numbers(state.fisher), [64, 16], rtol=1e-6)


def guarded(learner: EWC):
    """At y = x, with an earlier phase that ended at y = 3 x + 2 and had importance 4."""
    params = (Linear(jnp.full((1, 1), 3.0), jnp.full(1, 2.0)),)
    four = jax.tree.map(lambda leaf: jnp.full_like(leaf, 4.0), params)
    penalty = Quadratic(four, params)
    fisher = (Linear(jnp.full((1, 1), 12.0), jnp.full(1, 4.0)),)
    return dataclasses.replace(line_state(learner), penalty=penalty, fisher=fisher)


def test_ewc_holds_every_phase():
    learner = EWC(**LINE)
    state, _ = after(learner, points(1.0, boundary=True), state=guarded(learner))
    np.testing.assert_allclose(numbers(state.penalty.importance), [16, 8], rtol=1e-6)
    # (4 * 3 + 12 * 1) / 16 and (4 * 2 + 4 * 0) / 8.
    np.testing.assert_allclose(numbers(state.penalty.centre), [1.5, 1.0], rtol=1e-6)


def test_online_ewc_holds_the_last_anchor_with_decayed_importance():
    learner = OnlineEWC(**LINE, decay=0.5)
    state, _ = after(learner, points(1.0, boundary=True), state=guarded(learner))
    np.testing.assert_allclose(numbers(state.penalty.importance), [14, 6], rtol=1e-6)
    np.testing.assert_allclose(numbers(state.penalty.centre), [1, 0], atol=1e-6)


def test_optimiser_sees_the_gradient_of_the_penalty():
    learner = EWC(**LINE, strength=10.0)
    state, _ = after(learner, points(1.0), state=guarded(learner))
    # Adam keeps a tenth of 2 + 10 * 4 * (1 - 3) and of 2 + 10 * 4 * (0 - 2).
    np.testing.assert_allclose(numbers(state.optimiser[0].mu), [-7.8, -7.8], rtol=1e-5)


@pytest.mark.parametrize(
    ("build", "field", "value"),
    [(EWC, "strength", -1.0), (EWC, "window", 0), (OnlineEWC, "decay", 1.5)],
)
def test_bad_hyperparameter_is_refused_by_name_and_value(build, field, value):
    with pytest.raises(ValueError, match=rf"^{field} is {value};"):
        build(**{field: value})
