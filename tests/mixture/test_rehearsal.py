import dataclasses
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from taskmix.adaptation import TaskResult
from taskmix.adaptation.bayesian_head import BayesianHead
from taskmix.adaptation.task_model import Predictive
from taskmix.likelihood import Gaussian
from taskmix.mixture.rehearsal import Rehearsal, silenced
from taskmix.mixture.reservoir import Reservoir
from taskmix.models import MLP
from taskmix.tasks import Examples, TaskBatch

KEY = jax.random.key(0)
HEAD = BayesianHead(MLP(hidden=(6,), outputs=4, activation="tanh", init_scale=0.0), width=4)


@dataclasses.dataclass(frozen=True)
class Slope:
    """A number p whose loss on a task is y p, y being the task's only target: its gradient is y."""

    one_at_a_time: bool = False
    likelihood = Gaussian()
    exact = False

    def init(self, key):
        return jnp.zeros(())

    def loss(self, params, support, query):
        loss = params * jnp.sum(query.y)
        return loss, TaskResult(loss, query.y)

    def evidence(self, params, examples):
        return jnp.zeros(())

    def adapt(self, params, support):
        return params

    def predict(self, posterior, query_x, query_mask=None):
        return Predictive(query_x)

    def judge(self, params, support, query):
        raise NotImplementedError


AT_ONCE = Slope()


def tasks_of(*slopes: float) -> TaskBatch:
    """Tasks of one example."""
    y = jnp.asarray(slopes)[:, None, None]
    examples = Examples.full(jnp.ones_like(y), y)
    return TaskBatch(examples, examples)


def kept_of(*slopes: float) -> Reservoir:
    """A reservoir of four places with these tasks."""
    empty = Reservoir.empty(tasks_of(0.0), 4)
    if not slopes:
        return empty
    return empty.offer(tasks_of(*slopes), jnp.ones(len(slopes), dtype=bool), KEY)[0]


def descended(rehearsal, batch, weights, reservoir, model=AT_ONCE, **settings) -> float:
    """Where plain gradient descent with rate 1 comes to from 0."""
    optimiser = optax.sgd(1.0)
    params = jnp.zeros(())
    weights = jnp.asarray(weights)
    params, _, _ = rehearsal(
        model, optimiser, params, optimiser.init(params), batch, weights, reservoir, KEY, **settings
    )
    return float(params)


@pytest.mark.parametrize("model", [AT_ONCE, Slope(one_at_a_time=True)])
def test_gradient_is_the_weighted_mean_over_new_and_kept_tasks(model):
    """(1 * 1 + 0.5 * 4 + 10 + 20) / (1 + 0.5 + 1 + 1) with new slopes 1, 4 and kept 10, 20."""
    found = descended(Rehearsal(), tasks_of(1.0, 4.0), [1.0, 0.5], kept_of(10.0, 20.0), model=model)
    np.testing.assert_allclose(found, -33 / 3.5, rtol=1e-6)


def test_kept_tasks_weigh_what_the_caller_says():
    """(1 + 4 + 0.25 * 30) / (2 + 0.5)."""
    found = descended(
        Rehearsal(), tasks_of(1.0, 4.0), [1.0, 1.0], kept_of(10.0, 20.0), again=jnp.asarray(0.25)
    )
    np.testing.assert_allclose(found, -12.5 / 2.5, rtol=1e-6)


def test_no_more_tasks_are_rehearsed_than_asked_for():
    """All four kept have the slope 10, so which two are drawn does not matter: (1 + 20) / 3."""
    kept = kept_of(10.0, 10.0, 10.0, 10.0)
    np.testing.assert_allclose(
        descended(Rehearsal(rehearsed=2), tasks_of(1.0), [1.0], kept), -21 / 3, rtol=1e-6
    )


@pytest.mark.parametrize("kept", [True, False])
def test_with_nothing_kept_only_new_tasks_count(kept):
    reservoir = kept_of() if kept else None
    np.testing.assert_allclose(
        descended(Rehearsal(), tasks_of(1.0, 4.0), [1.0, 1.0], reservoir), -2.5, rtol=1e-6
    )


def test_several_updates_are_several_steps_of_the_given_size():
    """Three times 0.1 of the mean slope 2.5."""
    found = descended(
        Rehearsal(updates=3), tasks_of(1.0, 4.0), [1.0, 1.0], None, size=jnp.asarray(0.1)
    )
    np.testing.assert_allclose(found, -0.75, rtol=1e-6)


def test_every_update_draws_anew():
    """With a new slope 0 and one of the kept slopes 1 and 3 per update, eight equal draws would
    give -4 or -12."""
    found = descended(Rehearsal(8, rehearsed=1), tasks_of(0.0), [1.0], kept_of(1.0, 3.0))
    assert -12 < found < -4


@pytest.fixture(scope="module")
def learned():
    """Tasks, a state to begin with, and two updates of a Bayesian head on tasks with weights."""
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))

    @jax.jit
    def learn(batch, weights, reservoir, params, state):
        return Rehearsal(updates=2, rehearsed=2)(
            HEAD, optimiser, params, state, batch, weights, reservoir, KEY
        )[:2]

    params = HEAD.init(KEY)
    x = jax.random.normal(KEY, (4, 6, 1))
    tasks = TaskBatch(
        Examples.full(x[:, :3], jnp.sin(x[:, :3])), Examples.full(x[:, 3:], jnp.sin(x[:, 3:]))
    )
    reservoir, _ = Reservoir.empty(tasks, 3).offer(tasks, jnp.ones(4, dtype=bool), KEY)
    begin = (params, optimiser.init(params))
    return tasks, begin, lambda batch, weights: learn(batch, weights, reservoir, *begin)


def test_what_has_no_weight_changes_no_bit(learned):
    tasks, _, learn = learned
    weights = jnp.array([1.0, 0.0, 0.5, 0.0])
    spoiled = jax.tree.map(
        lambda leaf: leaf if leaf.dtype == bool else leaf.at[1].set(math.nan).at[3].set(1e30),
        tasks,
    )
    chex.assert_trees_all_equal(learn(spoiled, weights), learn(tasks, weights))


def test_padding_has_no_weight(learned):
    tasks, _, learn = learned
    padded = silenced(tasks, jnp.array([True, False, True, False]))
    expected = learn(tasks, jnp.array([1.0, 0.0, 0.5, 0.0]))
    chex.assert_trees_all_equal(learn(padded, jnp.array([1.0, 7.0, 0.5, 2.0])), expected)
    chex.assert_tree_all_finite(expected)


def test_without_new_tasks_nothing_is_learned(learned):
    tasks, begin, learn = learned
    chex.assert_trees_all_equal(learn(tasks, jnp.zeros(4)), begin)


def test_results_are_those_before_the_first_update():
    params, batch = HEAD.init(KEY), tasks_of(1.0, 2.0, 3.0)
    optimiser = optax.sgd(0.1)
    _, _, results = Rehearsal(updates=3)(
        HEAD, optimiser, params, optimiser.init(params), batch, jnp.ones(3), kept_of(5.0), KEY
    )
    _, expected = jax.vmap(HEAD.loss, (None, 0, 0))(params, batch.support, batch.query)
    chex.assert_trees_all_close(results, expected, rtol=1e-6)


@pytest.mark.parametrize("settings", [{"updates": 0}, {"rehearsed": -1}])
def test_impossible_settings_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        Rehearsal(**settings)
