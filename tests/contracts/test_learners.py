"""What every learner owes to the loop, the evaluation and the reports."""

import functools
import math

import chex
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmix.adaptation import Adaptation
from taskmix.baselines import MAML, MMAML, PLATIPUS, VCBML, MTNet, PerFamily
from taskmix.baselines.single import Single
from taskmix.experiments import METHODS, Recipe, Regression
from taskmix.learner import Growing, Info, Learner, State, Told, visible
from taskmix.mixture import FiniteMixture, OnlineMixture, PaperMixture
from taskmix.streams import FunctionStream, consecutive, interleaved
from taskmix.tasks import Examples, TaskBatch
from taskmix.testing import CHECKS, Trial
from taskmix.testing.checks import check_evaluation
from taskmix.testing.comparing import assert_alike

PARTS = Regression(
    families=("linear", "sinusoid"),
    lengths=(50, 50),
    hidden=(8,),
    adaptation=Adaptation(steps=1, rate=0.05),
    meta_rate=1e-2,
    head_rate=1e-2,
).shared()
STREAM = FunctionStream(interleaved(("linear", "sinusoid"), 100), tasks=3, support=4, query=5)
# Of the same shapes, so that a step compiled for one serves the other.
EASY = FunctionStream(consecutive(("linear",), (200,)), tasks=3, support=4, query=5)
KEY = jax.random.key(0)
SEEDS = jax.random.split(KEY, 2)

SMALL = {"reservoir": 8, "reference": 8, "capacity": 2}
"""An online mixture that compiles sooner."""


def small(recipe: Recipe) -> Learner:
    own = SMALL if issubclass(recipe.learner, OnlineMixture) else {}
    return recipe.build(PARTS, own)


LEARNERS = {
    f"{name}-{rule}": small(method.rule(rule))
    for name, method in METHODS.items()
    for rule in ("ours", "paper")
    if (rule == "ours" or method.paper is not None) and not method.classes_only
}


LONG = "task-aware-ours"
"""Is compiled for as long as ``nonparametric-ours``, and differs in what raises the alarm."""
CASES = [pytest.param(name, marks=pytest.mark.slow if name == LONG else ()) for name in LEARNERS]


@pytest.fixture(scope="module", params=CASES)
def trained(request) -> Trial:
    return Trial(LEARNERS[request.param], STREAM)


def skip_without_clusters(learner: Learner) -> None:
    if isinstance(learner, Single) and type(learner) is not MAML:
        pytest.skip("has no clusters: MAML stands for all of these")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_learner_keeps_its_contract(trained, check):
    if check is check_evaluation:
        skip_without_clusters(trained.learner)
    check(trained)


def test_step_keeps_structure_shapes_and_types_of_the_state_without_being_compiled():
    learner = LEARNERS[LONG]
    batch = jax.eval_shape(lambda: visible(learner, STREAM.batch(KEY, 0)))
    assert batch.hints is not None
    state = jax.eval_shape(learner.init, KEY, batch)
    after, info = jax.eval_shape(learner.step, state, batch, KEY)
    assert_alike(after, state)
    assert info.error.shape == (3,)


def test_error_is_that_of_the_prediction_before_learning(trained):
    if trained.learner.told is Told.FAMILY or isinstance(trained.learner, FiniteMixture):
        pytest.skip("has several clusters; its own tests compare it with a slow version")
    if isinstance(trained.learner, MTNet) and trained.learner.masked:
        pytest.skip("draws masks with the key of the step; its own tests draw the same")
    batch = trained.batch(3)
    _, info = trained.step(trained.state, trained.batch(3), KEY)
    assert info.clusters == 1 or isinstance(trained.learner, VCBML)
    expected = np.mean(np.square(trained.predicted(batch).mean - batch.query.y[0]))
    np.testing.assert_allclose(info.error[0], expected, rtol=1e-4)


PADDING = st.sampled_from([math.nan, math.inf, -math.inf, 3e38, -3e38, 1.0, 0.0])


def ragged(trained: Trial, fill_x: float, fill_y: float) -> TaskBatch:
    """The batch after training with the last examples masked, and this content in them."""
    batch = trained.batch(3)

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
    expected = trained.step(trained.state, ragged(trained, 0.0, 0.0), KEY)
    batch = ragged(trained, fill_x, fill_y)
    chex.assert_trees_all_equal(trained.step(trained.state, batch, KEY), expected)
    chex.assert_tree_all_finite(expected)


@settings(max_examples=8)
@given(fill_x=PADDING, fill_y=PADDING)
def test_content_of_padding_changes_no_bit_of_a_prediction(trained, fill_x, fill_y):
    expected = trained.predicted(ragged(trained, 0.0, 0.0))
    chex.assert_trees_all_equal(trained.predicted(ragged(trained, fill_x, fill_y)), expected)
    chex.assert_tree_all_finite(expected)


@jax.jit
def easy_batch(key: jax.Array, iteration: jax.Array | int) -> TaskBatch:
    return EASY.batch(key, iteration)


def test_learner_learns_an_easy_family(trained):
    state, errors = trained.init(KEY, trained.batch(0)), []
    for iteration in range(300):
        batch = visible(trained.learner, easy_batch(KEY, iteration))
        state, info = trained.step(state, batch, KEY)
        errors.append(info.error)
    assert np.mean(errors[-60:]) < 0.5 * np.mean(errors[:15])


def assert_scanned_seeds_are_single_steps(trained: Trial) -> None:
    def run(key: jax.Array) -> Info:
        def advance(state: State, iteration: jax.Array) -> tuple[State, Info]:
            batch = visible(trained.learner, easy_batch(key, iteration))
            return trained.learner.step(state, batch, key)

        state = trained.learner.init(key, visible(trained.learner, easy_batch(key, 0)))
        return jax.lax.scan(advance, state, jnp.arange(3))[1]

    growing = isinstance(trained.learner, Growing)
    every = functools.partial(jax.lax.map, run) if growing else jax.vmap(run)
    scanned = jax.jit(every)(SEEDS)
    for seed, key in enumerate(SEEDS):
        state = trained.init(key, visible(trained.learner, easy_batch(key, 0)))
        for iteration in range(3):
            batch = visible(trained.learner, easy_batch(key, iteration))
            state, info = trained.step(state, batch, key)
            np.testing.assert_allclose(scanned.error[seed, iteration], info.error, rtol=1e-3)


def test_scanned_seeds_give_what_single_steps_of_one_seed_give(trained):
    """As the loop takes them: side by side, but those of learners that open clusters in turn."""
    skip_without_clusters(trained.learner)
    if isinstance(trained.learner, OnlineMixture):
        pytest.skip(
            "is compiled for long: a slow test has it, and another that opens clusters is tested"
        )
    assert_scanned_seeds_are_single_steps(trained)


@pytest.mark.slow
def test_scanned_seeds_of_the_online_mixture_give_what_single_steps_give():
    assert_scanned_seeds_are_single_steps(Trial(LEARNERS["nonparametric-ours"], STREAM))


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
        (PaperMixture, "concentration", -1.0),
        (PaperMixture, "expected_clusters", 0.0),
        (PaperMixture, "window_growth", -1),
        (PaperMixture, "adapted_precision", -1.0),
        (PaperMixture, "refresh_growth", 0.5),
        (PaperMixture, "bandwidth", 0.0),
        (PaperMixture, "noise_halved_after", -1),
        (PaperMixture, "draws", 0),
        (PaperMixture, "prune_every", 0),
        (PaperMixture, "prune_share", 0.0),
        (PaperMixture, "prune_odds", math.nan),
        (PaperMixture, "validation", 0),
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


@pytest.mark.parametrize("field", ["refresh", "concentration_from", "averaged", "prune"])
def test_unknown_word_in_a_setting_of_the_papers_mixture_is_refused(monkeypatch, field):
    # The annotation already says it; the check is for callers without a type checker.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match=f"{field} is 'median'"):
        PaperMixture(**{field: "median"})
