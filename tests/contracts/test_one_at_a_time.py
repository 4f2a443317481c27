"""A model may ask for its tasks one after the other; that must change the speed only."""

import dataclasses
import functools
import operator

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.adaptation import (
    Adaptation,
    BayesianHead,
    CalibratedGradient,
    Gradient,
    TaskModel,
    meta_gradient,
    over_rows,
)
from taskmix.baselines import MAML, MMAML, PLATIPUS, MTNet, PerFamily, SingleModel
from taskmix.evaluation import evaluate
from taskmix.learner import Told
from taskmix.likelihood import Gaussian
from taskmix.mixture import FiniteMixture, OnlineMixture, PaperMixture
from taskmix.mixture.clusters import Clusters
from taskmix.mixture.responsibilities import assessments
from taskmix.models import MLP
from taskmix.streams import FunctionStream, consecutive, interleaved
from taskmix.tasks import Examples, TaskBatch
from taskmix.training import Settings, train

KEY = jax.random.key(0)
STREAM = FunctionStream(interleaved(("linear", "sinusoid"), 100), tasks=4, support=5, query=6)


@jax.custom_batching.custom_vmap
def alone(x):
    return x


@alone.def_vmap
def refuse(size, batched, x):
    raise AssertionError(f"{size} networks were applied at once")


class OneAtATime(MLP):
    """Refuses to be vmapped, over inputs or over parameters."""

    one_at_a_time = True

    def apply(self, params, x, mask=None):
        jax.tree.map(lambda leaf: alone(jax.lax.stop_gradient(leaf)), (params, x))
        return super().apply(params, x, mask)


AT_ONCE, IN_TURN = MLP(hidden=(8,)), OneAtATime(hidden=(8,))
ADAPTATION = Adaptation(steps=1, rate=0.05)
LIKELIHOOD = Gaussian()
GRADIENT = Gradient(AT_ONCE, LIKELIHOOD, ADAPTATION)
CALIBRATED = CalibratedGradient(AT_ONCE, LIKELIHOOD, ADAPTATION, parts=2)
HEAD = BayesianHead(AT_ONCE, width=1)


def in_turn(task_model: TaskModel) -> TaskModel:
    """The same with the network that refuses to be vmapped."""
    network = "features" if isinstance(task_model, BayesianHead) else "model"
    return dataclasses.replace(task_model, **{network: IN_TURN})


@pytest.fixture(scope="module")
def batch() -> TaskBatch:
    """Ragged tasks of two families, with hints."""
    drawn = jax.jit(STREAM.batch)(KEY, 0)

    def ragged(examples: Examples) -> Examples:
        real = jnp.array([5, 2, 4, 3])[:, None]
        return Examples(examples.x, examples.y, jnp.arange(examples.mask.shape[1]) < real)

    return TaskBatch(ragged(drawn.support), ragged(drawn.query), drawn.hints)


def several(model: MLP | TaskModel, count: int):
    return jax.vmap(model.init)(jax.random.split(KEY, count))


def assert_close(found, expected):
    chex.assert_trees_all_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("unroll", [False, True])
@pytest.mark.parametrize("model", [AT_ONCE, IN_TURN])
def test_function_runs_over_the_first_axis_of_all_arguments(model, unroll):
    numbers, tree = jnp.arange(3.0), {"a": jnp.ones((3, 2))}
    found = over_rows(model, lambda n, t: n * t["a"], unroll)(numbers, tree)
    np.testing.assert_array_equal(found, [[0, 0], [1, 1], [2, 2]])


def test_stand_in_cannot_be_applied_to_two_tasks_at_once(batch):
    with pytest.raises(AssertionError, match="4 networks were applied at once"):
        jax.vmap(IN_TURN.apply, (None, 0))(IN_TURN.init(KEY), batch.query.x)


@pytest.mark.parametrize("threads", [1, 2])
def test_meta_gradient_is_the_same_with_any_number_of_threads(batch, threads, monkeypatch):
    monkeypatch.setattr("taskmix.adaptation.means.threads", lambda: threads)
    params = AT_ONCE.init(KEY)
    expected, found = (
        jax.jit(functools.partial(meta_gradient, model, LIKELIHOOD, ADAPTATION))(params, batch)
        for model in (AT_ONCE, IN_TURN)
    )
    assert_close(found, expected)


def test_judgement_of_the_living_is_the_same(batch):
    params, alive = several(AT_ONCE, 4), jnp.array([True, False, True, False])
    expected, found = (
        jax.jit(functools.partial(assessments, task_model))(params, batch, alive)
        for task_model in (GRADIENT, in_turn(GRADIENT))
    )
    living = [jax.tree.map(lambda leaf: leaf[:, alive], found) for found in (found, expected)]
    assert_close(*living)


def test_clusters_that_do_not_exist_are_not_judged(batch):
    params = jax.tree.map(lambda leaf: leaf.at[1].set(jnp.nan), several(IN_TURN, 3))
    alive = jnp.array([True, False, True])
    found = jax.jit(functools.partial(assessments, in_turn(GRADIENT)))(params, batch, alive)
    chex.assert_tree_all_finite(found)


SMALL = {"reservoir": 4, "rehearsed": 2, "reference": 4, "capacity": 2}
LEARNERS = {
    "maml": MAML(AT_ONCE, LIKELIHOOD, ADAPTATION),
    "per family": PerFamily(GRADIENT, families=2),
    "single": SingleModel(HEAD, reservoir=4, rehearsed=2),
    "calibrated": SingleModel(CALIBRATED),
    "mt-net": MTNet(AT_ONCE, LIKELIHOOD, ADAPTATION),
    "platipus": PLATIPUS(AT_ONCE, LIKELIHOOD, ADAPTATION, samples=2),
    "mmaml": MMAML(AT_ONCE, LIKELIHOOD, ADAPTATION),
    "finite": FiniteMixture(GRADIENT),
    "detached": FiniteMixture(GRADIENT, detached=True),
    "sampled": FiniteMixture(GRADIENT, sampled=True),
    "paper": PaperMixture(GRADIENT),
    "online": OnlineMixture(HEAD, **SMALL),
    "online, gradient": OnlineMixture(CALIBRATED, **SMALL),
}


ONLINE = [name for name in LEARNERS if name.startswith("online")]
CASES = [pytest.param(name, marks=pytest.mark.slow if name in ONLINE else ()) for name in LEARNERS]
"""Those of the online mixture take long to compile."""


@pytest.fixture(scope="module", params=CASES)
def both(request):
    """The learner with either model."""
    learner = LEARNERS[request.param]
    if hasattr(learner, "task_model"):
        return learner, dataclasses.replace(learner, task_model=in_turn(learner.task_model))
    return learner, dataclasses.replace(learner, model=IN_TURN)


@pytest.fixture(scope="module")
def state(both, batch):
    """Where there are clusters, two that differ are alive, and all may learn."""
    learner, _ = both
    state = learner.init(KEY, batch)
    if isinstance(learner, PaperMixture):
        params = several(learner.task_model, state.clusters.capacity)
        clusters = Clusters(params, state.clusters.optimiser, jnp.arange(4) < 2)
        state = dataclasses.replace(state, clusters=clusters, cooling=jnp.zeros_like(state.cooling))
    if isinstance(learner, OnlineMixture):
        # Two clusters and the candidate.
        params = several(learner.task_model, 3)
        members = dataclasses.replace(state.members, params=params, averaged=params)
        state = dataclasses.replace(state, members=members, alive=jnp.ones(2, dtype=bool))
    return state


def living_rows(state):
    """Parameters and optimiser of what exists; of the rest nothing is known."""
    clusters = getattr(state, "clusters", state)
    if not isinstance(clusters, Clusters):
        return clusters
    return jax.tree.map(lambda leaf: leaf[clusters.alive], clusters)


def first_task(learner, batch):
    support, query = jax.tree.map(operator.itemgetter(0), (batch.support, batch.query))
    hints = None
    if learner.told is not Told.NOTHING:
        # Built by the tree, since the class itself asks for an axis of tasks.
        hints = jax.tree.map(lambda leaf: leaf.reshape(-1)[0], batch.hints)
    return support, query.x, hints, query.mask


def test_step_is_the_same(both, state, batch):
    (expected, expected_info), (found, info) = (
        jax.jit(learner.step)(state, batch, KEY) for learner in both
    )
    assert_close(living_rows(found), living_rows(expected))
    assert_close(info, expected_info)


@pytest.mark.parametrize("name", ONLINE)
def test_online_mixture_applies_one_network_at_a_time(name, batch):
    """To trace is enough: the network refuses to be vmapped."""
    learner = dataclasses.replace(LEARNERS[name], task_model=in_turn(LEARNERS[name].task_model))
    state = jax.eval_shape(learner.init, KEY, batch)
    jax.eval_shape(learner.step, state, batch, KEY)
    jax.eval_shape(learner.predict, state, *first_task(learner, batch))


def test_prediction_is_the_same(both, state, batch):
    expected, found = (
        jax.jit(learner.predict)(state, *first_task(learner, batch)) for learner in both
    )
    exists = np.asarray(expected.responsibilities) > 0
    # What a cluster that does not exist would have said means nothing.
    expected, found = (
        eqx.tree_at(lambda p: p.components, p, p.components[exists]) for p in (expected, found)
    )
    assert_close(found, expected)


def test_evaluation_is_the_same(batch):
    both = [MAML(model, LIKELIHOOD, ADAPTATION) for model in (AT_ONCE, IN_TURN)]
    state = both[0].init(KEY, batch)
    test = jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *(STREAM.test_tasks(KEY, family, 3) for family in (0, 1))
    )
    expected, found = (
        jax.jit(functools.partial(evaluate, learner))(state, test) for learner in both
    )
    assert_close((found.error, found.novelty), (expected.error, expected.novelty))
    assert_close(found.responsibilities, expected.responsibilities)


def test_training_is_the_same_and_takes_the_seeds_one_after_the_other():
    stream = FunctionStream(consecutive(("linear",), (5,)), tasks=2, support=3, query=3)
    settings = Settings(evaluate_every=3, test_tasks=2)
    expected, found = (
        train(MAML(model, adaptation=ADAPTATION), stream, [0, 1], settings, lambda chunk: None)
        for model in (AT_ONCE, IN_TURN)
    )
    chex.assert_trees_all_close(found, expected, rtol=1e-3, atol=1e-5)
