import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from taskmix.adaptation import Adaptation, BayesianHead
from taskmix.adaptation.calibrated import CalibratedGradient
from taskmix.adaptation.gradient import Gradient
from taskmix.baselines import MAML, SingleModel
from taskmix.baselines.maml import MAMLState
from taskmix.models import MLP
from taskmix.tasks import Examples, TaskBatch

KEY = jax.random.key(0)
PARTS = {"model": MLP(hidden=(6,)), "adaptation": Adaptation(steps=1, rate=0.05)}
HEAD = BayesianHead(MLP(hidden=(6,), outputs=4, activation="tanh", init_scale=0.0), width=4)
REPLAY = {"task_model": Gradient(**PARTS), "meta_rate": 1e-3, "meta_clip": math.inf}
TASKS = 3


def batch_of(seed: int) -> TaskBatch:
    x = jax.random.normal(jax.random.key(seed), (TASKS, 8, 1))
    y = jnp.sin(x + seed)
    return TaskBatch(Examples.full(x[:, :4], y[:, :4]), Examples.full(x[:, 4:], y[:, 4:]))


def first_task(batch: TaskBatch) -> TaskBatch:
    return jax.tree.map(lambda leaf: leaf[0], batch)


def test_step_is_clipped_adam_on_the_mean_loss():
    learner = SingleModel(HEAD)
    state = learner.init(KEY, batch_of(0))
    after, info = jax.jit(learner.step)(state, batch_of(0), KEY)

    def objective(params):
        each, _ = jax.vmap(HEAD.loss, (None, 0, 0))(params, batch_of(0).support, batch_of(0).query)
        return jnp.mean(each)

    loss, gradient = jax.jit(jax.value_and_grad(objective))(state.params)
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(2e-3))
    updates, _ = optimiser.update(gradient, optimiser.init(state.params))
    expected = optax.apply_updates(state.params, updates)
    chex.assert_trees_all_close(after.params, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(info.loss, loss, rtol=1e-5)


@pytest.mark.parametrize("task_model", [HEAD, Gradient(**PARTS), CalibratedGradient(**PARTS)])
# With one update this is part of the contract that tests/contracts checks.
@pytest.mark.parametrize("updates", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_error_is_that_of_the_prediction_before_the_batch(task_model, updates):
    learner = SingleModel(task_model, reservoir=4, updates=updates)
    step = jax.jit(learner.step)
    state, _ = step(learner.init(KEY, batch_of(0)), batch_of(0), KEY)
    _, info = step(state, batch_of(1), KEY)
    one = first_task(batch_of(1))
    prediction = jax.jit(learner.predict)(state, one.support, one.query.x)
    error = np.square(prediction.mean - one.query.y).mean()
    np.testing.assert_allclose(info.error[0], error, rtol=1e-3)


def test_prediction_carries_what_the_task_model_knows():
    one = first_task(batch_of(0))
    known, unknown = SingleModel(HEAD), SingleModel(**REPLAY)
    predictions = [
        learner.predict(learner.init(KEY, batch_of(0)), one.support, one.query.x)
        for learner in (known, unknown)
    ]
    assert (predictions[0].variance > predictions[0].noise).all()
    assert predictions[1].variance is None
    assert predictions[1].noise is None


def test_tasks_kept_are_tasks_seen_whole():
    learner = SingleModel(**REPLAY, reservoir=4)
    step = jax.jit(learner.step)
    state = learner.init(KEY, batch_of(0))
    for seed in range(4):
        state, _ = step(state, batch_of(seed), jax.random.key(seed))
    assert state.reservoir.offered == 4 * TASKS
    assert state.reservoir.filled.all()
    seen = [
        jax.tree.map(lambda leaf, j=j: leaf[j], batch_of(s)) for s in range(4) for j in range(3)
    ]
    for place in range(4):
        one = jax.tree.map(lambda leaf, i=place: leaf[i], state.reservoir.tasks)
        same = [
            all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(task))) for task in seen
        ]
        assert sum(same) == 1


def test_replay_with_nothing_kept_is_maml():
    learner, maml = SingleModel(**REPLAY, reservoir=40), MAML(**PARTS)
    state, info = jax.jit(learner.step)(learner.init(KEY, batch_of(0)), batch_of(0), KEY)
    expected, expected_info = jax.jit(maml.step)(maml.init(KEY, batch_of(0)), batch_of(0), KEY)
    chex.assert_trees_all_close(state.params, expected.params, rtol=1e-6)
    chex.assert_trees_all_close(info, expected_info, rtol=1e-6)


@pytest.mark.parametrize("places", [TASKS, 2])
def test_replay_is_maml_on_the_batch_and_the_tasks_kept(places):
    """With no more places than tasks are rehearsed, all that is kept is."""
    learner, maml = SingleModel(**REPLAY, reservoir=places), MAML(**PARTS)
    state, _ = jax.jit(learner.step)(learner.init(KEY, batch_of(0)), batch_of(0), KEY)
    after, info = jax.jit(learner.step)(state, batch_of(1), KEY)
    both = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), batch_of(1), state.reservoir.tasks)
    same = MAMLState(state.params, state.optimiser)
    expected, expected_info = jax.jit(maml.step)(same, both, KEY)
    chex.assert_trees_all_close(after.params, expected.params, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(info.error, expected_info.error[:TASKS], rtol=1e-5)


def test_padding_is_not_kept():
    learner = SingleModel(HEAD, reservoir=6)
    batch = batch_of(0)
    state, _ = jax.jit(learner.step)(learner.init(KEY, batch), batch, KEY)
    padded, _ = jax.jit(learner.step)(state, batch_of(1).take(jnp.array([0])).padded(TASKS), KEY)
    assert padded.reservoir.filled.sum() == TASKS + 1


@pytest.mark.parametrize(
    "wrong", [{"reservoir": -1}, {"updates": 0}, {"meta_rate": 0.0}, {"meta_clip": 0.0}]
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SingleModel(**wrong)
