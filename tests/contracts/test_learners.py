"""What every learner owes to the loop, the evaluation and the reports."""

import dataclasses
import functools
import math
from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmix.adaptation import Adaptation
from taskmix.baselines import MAML, MMAML, PLATIPUS, MTNet, PerFamily
from taskmix.baselines.single import Single
from taskmix.evaluation import evaluate
from taskmix.experiments import METHODS, Regression, build_learner
from taskmix.experiments.methods import learner_class
from taskmix.learner import Growing, Info, Learner, Prediction, State, Told
from taskmix.mixture import FiniteMixture, OnlineMixture, PaperMixture
from taskmix.streams import FunctionStream, consecutive, interleaved
from taskmix.tasks import Examples, Hints, TaskBatch

PARTS = Regression(
    families=("linear", "sinusoid"),
    lengths=(50, 50),
    hidden=(8,),
    adaptation=Adaptation(steps=1, rate=0.05),
    meta_rate=1e-2,
    head_rate=1e-2,
).learner_settings()
STREAM = FunctionStream(interleaved(("linear", "sinusoid"), 100), tasks=3, support=4, query=5)
# Of the same shapes, so that a step compiled for one serves the other.
EASY = FunctionStream(consecutive(("linear",), (200,)), tasks=3, support=4, query=5)
KEY = jax.random.key(0)
SEEDS = jax.random.split(KEY, 2)

SMALL = {"reservoir": 8, "reference": 8, "capacity": 2}
"""An online mixture that compiles sooner."""


def small(build: Callable[..., Learner]) -> Learner:
    own = SMALL if issubclass(learner_class(build), OnlineMixture) else {}
    return build_learner(build, PARTS, own)


LEARNERS = {
    f"{name}-{rule}": small(method.rule(rule))
    for name, method in METHODS.items()
    for rule in ("ours", "paper")
    if (rule == "ours" or method.paper is not None) and not method.classes_only
}


@dataclasses.dataclass(frozen=True)
class Trained:
    """A learner with its compiled methods and a state that is no longer the first one."""

    learner: Learner
    init: Callable[..., State]
    step: Callable[..., tuple[State, Info]]
    predict: Callable[..., Prediction]
    state: State
    traces: int
    """How often the step was compiled for its first batches."""

    def predict_first(self, batch: TaskBatch) -> Prediction:
        """The first task of the batch."""
        support, query, hints = first_task(self.learner, batch)
        return self.predict(self.state, support, query.x, hints, jnp.ones(5, dtype=bool))


@pytest.fixture(scope="module", params=LEARNERS)
def trained(request) -> Trained:
    learner = LEARNERS[request.param]
    traces = 0

    def counted(state: State, batch: TaskBatch, key: jax.Array) -> tuple[State, Info]:
        nonlocal traces
        traces += 1
        return learner.step(state, batch, key)

    init, step = jax.jit(learner.init), jax.jit(counted)
    state = init(KEY, batch_at(0))
    for iteration in range(3):
        state, _ = step(state, batch_at(iteration), KEY)
    return Trained(learner, init, step, jax.jit(learner.predict), state, traces)


@functools.cache
def batch_at(iteration: int) -> TaskBatch:
    return jax.jit(STREAM.batch)(KEY, iteration)


def first_task(learner: Learner, batch: TaskBatch) -> tuple[Examples, Examples, Hints | None]:
    support, query = jax.tree.map(lambda leaf: leaf[0], (batch.support, batch.query))
    if learner.told is Told.NOTHING:
        return support, query, None
    # Built by the tree, since the class itself asks for an axis of tasks.
    return support, query, jax.tree.map(lambda leaf: leaf.reshape(-1)[0], batch.hints)


def test_learner_meets_the_protocol(trained):
    assert isinstance(trained.learner, Learner)


def test_hyperparameters_are_frozen(trained):
    with pytest.raises(dataclasses.FrozenInstanceError):
        trained.learner.meta_rate = 1.0


def test_info_has_the_shapes_of_the_batch_and_the_clusters(trained):
    _, info = trained.step(trained.state, batch_at(3), KEY)
    clusters = trained.predict_first(batch_at(3)).responsibilities.shape[0]
    assert isinstance(info, Info)
    chex.assert_shape([info.loss, info.spawned, info.alarm, info.suspicion], ())
    chex.assert_shape(info.error, (3,))
    chex.assert_shape(info.responsibilities, (3, clusters))
    chex.assert_shape(info.alive, (clusters,))
    assert {info.spawned.dtype, info.alarm.dtype, info.alive.dtype} == {jnp.dtype(bool)}
    assert 0 <= info.suspicion <= 1
    assert info.clusters >= 1


def test_cluster_is_opened_in_a_row_that_was_empty(trained):
    """So that whoever counts rows knows which cluster is which."""
    state, before = trained.step(trained.state, batch_at(3), KEY)
    for iteration in range(4, 8):
        state, after = trained.step(state, batch_at(iteration), KEY)
        assert int((after.alive & ~before.alive).sum()) == int(after.spawned)
        before = after


def test_batch_may_have_fewer_tasks(trained):
    """A task that is not finite is left out of its batch."""
    one = batch_at(3).take(jnp.array([1]))
    after, info = jax.eval_shape(trained.learner.step, trained.state, one, KEY)
    chex.assert_shape(info.error, (1,))
    chex.assert_trees_all_equal_shapes_and_dtypes(
        after, jax.eval_shape(lambda state: state, trained.state)
    )


def test_prediction_has_the_shapes_of_the_query_and_the_clusters(trained):
    prediction = trained.predict_first(batch_at(3))
    clusters = prediction.responsibilities.shape[0]
    chex.assert_shape(prediction.components, (clusters, 5, 1))
    for shape, parts in (
        ((5, 1), (prediction.mean, prediction.variance, prediction.noise)),
        ((), (prediction.novelty, prediction.background)),
    ):
        chex.assert_shape([part for part in parts if part is not None], shape)


def test_prediction_is_finite_and_within_bounds(trained):
    prediction = trained.predict_first(batch_at(3))
    chex.assert_tree_all_finite(known(prediction))
    for share in (prediction.novelty, prediction.background):
        assert share is None or 0 <= share <= 1
    if prediction.variance is not None:
        assert (prediction.variance >= 0).all()
    if prediction.noise is not None:
        assert (prediction.noise <= prediction.variance * (1 + 1e-5)).all()


def test_wider_interval_holds_the_narrower_one(trained):
    prediction = trained.predict_first(batch_at(3))
    if prediction.variance is None:
        with pytest.raises(ValueError, match="does not know how uncertain it is"):
            prediction.interval(0.9)
        return
    (low, high), (lower, higher) = (prediction.interval(level) for level in (0.5, 0.9))
    assert (lower < low).all()
    assert (low < high).all()
    assert (high < higher).all()


def known(prediction: Prediction) -> tuple[jax.Array | None, ...]:
    """What does not depend on how many clusters there is room for."""
    names = ("mean", "variance", "noise", "background", "novelty")
    return tuple(getattr(prediction, name) for name in names)


def test_step_keeps_structure_shapes_and_types_of_the_state(trained):
    after, _ = trained.step(trained.state, batch_at(3), KEY)
    chex.assert_trees_all_equal_shapes_and_dtypes(after, trained.state)


def test_steps_from_the_first_state_on_compile_once(trained):
    assert trained.traces == 1


def test_step_is_a_function_of_its_arguments(trained):
    batch = batch_at(3)
    before = jax.tree.map(np.array, trained.state)
    first = trained.step(trained.state, batch, KEY)
    trained.step(first[0], batch_at(9), KEY)
    chex.assert_trees_all_equal(trained.step(trained.state, batch, KEY), first)
    chex.assert_trees_all_equal(jax.tree.map(np.array, trained.state), before)


def test_same_key_gives_the_same_first_state(trained):
    batch = batch_at(0)
    first = trained.init(KEY, batch)
    chex.assert_trees_all_equal(trained.init(jax.random.key(0), batch), first)


def test_example_gives_shapes_only(trained):
    first = trained.init(KEY, batch_at(0))
    other = trained.init(KEY, batch_at(7))
    chex.assert_trees_all_equal(other, first)


def test_responsibilities_are_a_distribution_over_living_clusters(trained):
    """What is left of a task went to the background; without one, nothing is."""
    _, info = trained.step(trained.state, batch_at(3), KEY)
    prediction = trained.predict_first(batch_at(3))
    background = 0.0 if prediction.background is None else prediction.background
    np.testing.assert_allclose(prediction.responsibilities.sum() + background, 1, rtol=1e-5)
    for shares in (*info.responsibilities, prediction.responsibilities):
        assert shares.sum() <= 1 + 1e-5
        assert prediction.background is not None or shares.sum() >= 1 - 1e-5
        assert (shares >= 0).all()
        assert not shares[~info.alive].any()


def test_error_is_that_of_the_prediction_before_learning(trained):
    if trained.learner.told is Told.FAMILY or isinstance(trained.learner, FiniteMixture):
        pytest.skip("has several clusters; its own tests compare it with a slow version")
    if isinstance(trained.learner, MTNet) and trained.learner.masked:
        pytest.skip("draws masks with the key of the step; its own tests draw the same")
    batch = batch_at(3)
    _, info = trained.step(trained.state, batch_at(3), KEY)
    assert info.clusters == 1
    expected = np.mean(np.square(trained.predict_first(batch).mean - batch.query.y[0]))
    np.testing.assert_allclose(info.error[0], expected, rtol=1e-4)


def test_room_for_one_step_is_there_or_comes_with_growth(trained):
    state, learner = trained.state, trained.learner
    skip_unless_growing(learner)
    if not learner.has_room(state, 1):
        state = learner.grow(state)
    assert learner.has_room(state, 1)


def skip_unless_growing(learner: Learner) -> None:
    if not isinstance(learner, Growing):
        pytest.skip("opens no clusters")


def test_growth_changes_no_prediction(trained):
    skip_unless_growing(trained.learner)
    batch = batch_at(3)
    grown = dataclasses.replace(trained, state=trained.learner.grow(trained.state))
    before, after = trained.predict_first(batch), grown.predict_first(batch)
    chex.assert_trees_all_equal(known(after), known(before))


def skip_without_clusters(learner: Learner) -> None:
    if isinstance(learner, Single) and type(learner) is not MAML:
        pytest.skip("has no clusters: MAML stands for all of these")


def test_evaluation_of_the_protocol_accepts_the_learner(trained):
    skip_without_clusters(trained.learner)
    test = jax.tree.map(lambda leaf: leaf[None], STREAM.test_tasks(KEY, 0, 4))
    evaluation = jax.jit(lambda state: evaluate(trained.learner, state, test))(trained.state)
    assert np.isfinite(evaluation.error).all()


def skip_if_another_stands_for_it(learner: Learner) -> None:
    if learner.told is Told.BOUNDARIES and isinstance(learner, OnlineMixture):
        pytest.skip("is compiled for long: the one that is told nothing stands for it")


PADDING = st.sampled_from([math.nan, math.inf, -math.inf, 3e38, -3e38, 1.0, 0.0])


def ragged(fill_x: float, fill_y: float) -> TaskBatch:
    """The batch after training with the last examples masked, and this content in them."""
    batch = batch_at(3)

    def masked(examples: Examples, real: jax.Array) -> Examples:
        mask = jnp.arange(examples.mask.shape[1]) < real[:, None]
        return Examples(
            jnp.where(mask[..., None], examples.x, fill_x),
            jnp.where(mask[..., None], examples.y, fill_y),
            mask,
        )

    return TaskBatch(
        masked(batch.support, jnp.array([3, 1, 4])),
        masked(batch.query, jnp.array([5, 2, 1])),
        batch.hints,
    )


@settings(max_examples=8)
@given(fill_x=PADDING, fill_y=PADDING)
def test_content_of_padding_changes_no_bit_of_a_step(trained, fill_x, fill_y):
    expected = trained.step(trained.state, ragged(0.0, 0.0), KEY)
    batch = ragged(fill_x, fill_y)
    chex.assert_trees_all_equal(trained.step(trained.state, batch, KEY), expected)
    chex.assert_tree_all_finite(expected)


@settings(max_examples=8)
@given(fill_x=PADDING, fill_y=PADDING)
def test_content_of_padding_changes_no_bit_of_a_prediction(trained, fill_x, fill_y):
    expected = trained.predict_first(ragged(0.0, 0.0))
    chex.assert_trees_all_equal(trained.predict_first(ragged(fill_x, fill_y)), expected)
    chex.assert_tree_all_finite(expected)


def with_padding_tasks(fill: float) -> TaskBatch:
    """The batch after training with two more tasks, of which nothing is real."""
    batch = batch_at(3).padded(5)

    def filled(examples: Examples) -> Examples:
        real = examples.mask[..., None]
        return Examples(
            jnp.where(real, examples.x, fill), jnp.where(real, examples.y, fill), examples.mask
        )

    return dataclasses.replace(batch, support=filled(batch.support), query=filled(batch.query))


def test_content_of_padding_tasks_changes_no_bit_of_a_step(trained):
    skip_if_another_stands_for_it(trained.learner)
    expected = trained.step(trained.state, with_padding_tasks(0.0), KEY)
    found = trained.step(trained.state, with_padding_tasks(math.nan), KEY)
    chex.assert_trees_all_equal(found, expected)


def test_padding_tasks_have_no_error_and_no_cluster(trained):
    skip_if_another_stands_for_it(trained.learner)
    _, info = trained.step(trained.state, with_padding_tasks(1.0), KEY)
    np.testing.assert_array_equal(np.isnan(info.error), [False] * 3 + [True] * 2)
    assert not info.responsibilities[3:].any()
    assert np.isfinite(info.loss)


def test_batch_with_padding_tasks_is_the_batch_without_them(trained):
    skip_if_another_stands_for_it(trained.learner)
    after, info = trained.step(trained.state, with_padding_tasks(math.nan), KEY)
    expected, expected_info = trained.step(trained.state, batch_at(3), KEY)
    chex.assert_trees_all_close(after, expected, rtol=1e-4, atol=1e-6)
    real = (info.error[:3], info.responsibilities[:3], info.loss, info.alive)
    expected_real = (expected_info.error, expected_info.responsibilities)
    expected_real += (expected_info.loss, expected_info.alive)
    chex.assert_trees_all_close(real, expected_real, rtol=1e-4, atol=1e-6)


def test_task_with_padding_is_the_task_without_it(trained):
    batch = ragged(math.nan, math.nan)
    support, query, hints = first_task(trained.learner, batch)
    short = Examples(support.x[:3], support.y[:3], support.mask[:3])
    padded = trained.predict_first(batch)
    found = trained.predict(trained.state, short, query.x, hints, jnp.ones(5, dtype=bool))
    chex.assert_trees_all_close(found, padded, rtol=1e-4, atol=1e-6)


def test_mask_of_queries_changes_no_prediction_of_a_network_that_sees_each_alone(trained):
    support, query, hints = first_task(trained.learner, batch_at(3))
    masked = trained.predict(trained.state, support, query.x, hints, jnp.arange(5) < 2)
    expected = trained.predict_first(batch_at(3))
    chex.assert_trees_all_close(masked, expected, rtol=1e-5, atol=1e-6)


@jax.jit
def easy_batch(key: jax.Array, iteration: jax.Array | int) -> TaskBatch:
    return EASY.batch(key, iteration)


def test_learner_learns_an_easy_family(trained):
    state, errors = trained.init(KEY, batch_at(0)), []
    for iteration in range(300):
        state, info = trained.step(state, easy_batch(KEY, iteration), KEY)
        errors.append(info.error)
    assert np.mean(errors[-60:]) < 0.5 * np.mean(errors[:15])


def test_scanned_seeds_give_what_single_steps_of_one_seed_give(trained):
    """As the loop takes them: side by side, but those of learners that open clusters in turn."""
    skip_without_clusters(trained.learner)
    skip_if_another_stands_for_it(trained.learner)

    def run(key: jax.Array) -> Info:
        def advance(state: State, iteration: jax.Array) -> tuple[State, Info]:
            return trained.learner.step(state, easy_batch(key, iteration), key)

        state = trained.learner.init(key, easy_batch(key, 0))
        return jax.lax.scan(advance, state, jnp.arange(3))[1]

    growing = isinstance(trained.learner, Growing)
    every = functools.partial(jax.lax.map, run) if growing else jax.vmap(run)
    scanned = jax.jit(every)(SEEDS)
    for seed, key in enumerate(SEEDS):
        state = trained.init(key, easy_batch(key, 0))
        for iteration in range(3):
            state, info = trained.step(state, easy_batch(key, iteration), key)
            np.testing.assert_allclose(scanned.error[seed, iteration], info.error, rtol=1e-3)


def test_learner_told_nothing_ignores_what_hints_say(trained):
    if trained.learner.told is not Told.NOTHING:
        pytest.skip("is told something")
    other = Hints(1 - batch_at(3).hints.family, ~batch_at(3).hints.boundary)
    hinted = dataclasses.replace(batch_at(3), hints=other)
    chex.assert_trees_all_equal(
        trained.step(trained.state, hinted, KEY), trained.step(trained.state, batch_at(3), KEY)
    )


@pytest.mark.parametrize(
    ("build", "field", "value"),
    [
        (Adaptation, "steps", -1),
        (Adaptation, "rate", 0.0),
        (Adaptation, "rate", math.nan),
        (Adaptation, "clip", -1.0),
        (MAML, "meta_rate", 0.0),
        (MAML, "meta_rate", math.nan),
        (PerFamily, "meta_rate", -1e-3),
        (PerFamily, "families", 0),
        (PLATIPUS, "kl_weight", -1e-4),
        (PLATIPUS, "initial_rate", math.nan),
        (PLATIPUS, "samples", 0),
        (MMAML, "embedding", 0),
        (FiniteMixture, "meta_rate", -1e-3),
        (FiniteMixture, "components", 0),
        (FiniteMixture, "temperature", 0.0),
        (FiniteMixture, "temperature", math.nan),
        (PaperMixture, "meta_rate", 0.0),
        (PaperMixture, "temperature", -1.0),
        (PaperMixture, "concentration", 0.0),
        (PaperMixture, "coefficient", -0.5),
        (PaperMixture, "threshold", 0.0),
        (PaperMixture, "window", 0),
        (PaperMixture, "warm_up", -1),
        (PaperMixture, "cool_down", 0),
        (PaperMixture, "refresh_every", 0),
        (PaperMixture, "noise", -0.1),
        (PaperMixture, "noise", math.nan),
        (PaperMixture, "capacity", 0),
        (OnlineMixture, "meta_rate", math.nan),
        (OnlineMixture, "meta_clip", 0.0),
        (OnlineMixture, "anneal_over", -1),
        (OnlineMixture, "reservoir", -1),
        (OnlineMixture, "rehearsed", -1),
        (OnlineMixture, "youth", 0),
        (OnlineMixture, "reference", -1),
        (OnlineMixture, "held_out", -0.1),
        (OnlineMixture, "averaging_rate", 0.0),
        (OnlineMixture, "memory", 0.0),
        (OnlineMixture, "persistence", -1.0),
        (OnlineMixture, "maturity", 0),
        (OnlineMixture, "settled", 0.0),
        (OnlineMixture, "probation", 0),
        (OnlineMixture, "parting", 0),
        (OnlineMixture, "certainty", 0.0),
        (OnlineMixture, "worth", math.nan),
        (OnlineMixture, "keep_worth", -1.0),
        (OnlineMixture, "review", 0),
        (OnlineMixture, "false_alarms", 0.0),
        (OnlineMixture, "lowness", -1.0),
        (OnlineMixture, "wander", -0.1),
        (OnlineMixture, "wander", math.nan),
        (OnlineMixture, "calm", 0),
        (OnlineMixture, "patience", 0),
        (OnlineMixture, "capacity", 0),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else str(value),
)
def test_bad_hyperparameter_is_refused_by_name_and_value(build, field, value):
    with pytest.raises(ValueError, match=rf"^{field} is {value};"):
        build(**{field: value})


@pytest.mark.parametrize(
    "wrong",
    [
        {"held_out": 1.0},
        {"averaging_rate": 1.5},
        {"false_alarms": 1.0},
        {"parting": 400, "probation": 400},
    ],
)
def test_settings_of_an_online_mixture_that_make_no_sense_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        OnlineMixture(**wrong)


def test_unknown_refresh_of_the_global_prior_is_refused(monkeypatch):
    # The annotation already says it; the check is for callers without a type checker.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match="refresh is 'median'"):
        PaperMixture(refresh="median")
