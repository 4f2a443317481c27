import dataclasses
import json
import operator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.adaptation import Adaptation
from taskmix.baselines import MAML
from taskmix.evaluation import Evaluation, calibration, evaluate, family_measures
from taskmix.learner import Prediction, Told
from taskmix.likelihood import Gaussian
from taskmix.models import MLP
from taskmix.tasks import Examples, Hints, TaskBatch

SMALL_MAML = MAML(model=MLP(hidden=(4,)), adaptation=Adaptation(steps=1))

evaluated = jax.jit(evaluate, static_argnames=("learner", "load", "chunk"))


@dataclasses.dataclass(frozen=True)
class Constants:
    """Clusters that predict 0 and ``state``, and a dead one that predicts NaN.

    With a family told, the first cluster predicts the family instead.
    """

    told: Told = Told.NOTHING
    likelihood: Gaussian = Gaussian()
    one_at_a_time: bool = False
    variance: float | None = None
    background: float | None = None
    knows_novelty: bool = True

    def predict(self, state, support, query_x, hints=None, query_mask=None):
        first = jnp.zeros(()) if hints is None else hints.family.astype(float)
        ones = jnp.ones_like(query_x)
        return Prediction(
            mean=(0.75 * first + 0.25 * state) * ones,
            variance=None if self.variance is None else self.variance * ones,
            background=None if self.background is None else jnp.asarray(self.background),
            components=jnp.stack([first * ones, state * ones, jnp.nan * ones]),
            responsibilities=jnp.array([0.75, 0.25, 0.0]),
            novelty=jnp.mean(support.y) if self.knows_novelty else None,
        )

    def init(self, key, example):
        raise NotImplementedError

    step = parameters = init


def examples(y, mask=None):
    """One feature, one output; shape of ``y`` is (families, tasks, examples)."""
    y = jnp.asarray(y, dtype=float)[..., None]
    found = Examples.full(jnp.ones_like(y), y)
    return found if mask is None else Examples(found.x, found.y, jnp.asarray(mask))


def random_test(families=2, tasks=5, hints=None):
    generator = np.random.default_rng(3)
    support, query = (
        Examples.full(*jnp.asarray(generator.normal(size=(2, families, tasks, size, 1))))
        for size in (3, 4)
    )
    return TaskBatch(support, query, hints)


def test_errors_of_the_mixture_and_of_each_cluster_by_hand():
    # Targets 1 and 3, cluster predictions 0 and 2, mixture 0.5.
    test = TaskBatch(examples([[[7.0]]]), examples([[[1.0, 3.0]]]))
    found = evaluated(Constants(), jnp.asarray(2.0), test)
    np.testing.assert_allclose(found.error, [[(0.25 + 6.25) / 2]])
    np.testing.assert_allclose(found.component_error, [[[5.0, 1.0, np.inf]]])
    np.testing.assert_allclose(found.responsibilities, [[[0.75, 0.25, 0.0]]])
    np.testing.assert_allclose(found.novelty, [[7.0]])


def test_what_a_learner_does_not_know_is_not_a_number_but_its_background_is_nothing():
    test = TaskBatch(examples([[[7.0]]]), examples([[[1.0, 3.0]]]))
    found = evaluated(Constants(knows_novelty=False), jnp.asarray(2.0), test)
    np.testing.assert_array_equal(found.covered, [[np.nan]])
    np.testing.assert_array_equal(found.novelty, [[np.nan]])
    np.testing.assert_array_equal(found.background, [[0.0]])


def test_covered_targets_are_those_within_the_90_percent_interval():
    # The mixture says 0.5 with a standard deviation of 2, so 0.5 - 3.29 to 0.5 + 3.29.
    mask = [[[True, True, True, False]]]
    test = TaskBatch(examples([[[7.0]]]), examples([[[-2.7, 3.7, 3.9, 0.0]]], mask))
    found = evaluated(Constants(variance=4.0, background=0.25), jnp.asarray(2.0), test)
    np.testing.assert_allclose(found.covered, [[2 / 3]])
    np.testing.assert_allclose(found.background, [[0.25]])


def test_coverage_of_normal_targets_is_what_the_interval_promises():
    y = 0.5 + 2 * np.random.default_rng(0).normal(size=(1, 100, 200))
    test = TaskBatch(examples(np.zeros((1, 100, 1))), examples(y))
    found = evaluated(Constants(variance=4.0), jnp.asarray(2.0), test)
    np.testing.assert_allclose(np.mean(found.covered), 0.9, atol=0.005)


def test_masked_query_examples_do_not_count_even_if_they_are_not_numbers():
    plain = TaskBatch(examples([[[7.0]]]), examples([[[1.0, 3.0]]]))
    padded = TaskBatch(
        examples([[[7.0]]]), examples([[[1.0, jnp.nan, 3.0]]], mask=[[[True, False, True]]])
    )
    one, other = (evaluated(Constants(), jnp.asarray(2.0), test) for test in (plain, padded))
    # Predictions are kept as they are, those of padding too.
    np.testing.assert_array_equal(one.details.mean, other.details.mean[:, :, [0, 2]])
    for expected, found in zip(
        jax.tree.leaves(eqx.tree_at(lambda e: e.details, one, measured(one.details))),
        jax.tree.leaves(eqx.tree_at(lambda e: e.details, other, measured(other.details))),
        strict=True,
    ):
        np.testing.assert_array_equal(expected, found)


def measured(details):
    return details.within, details.confidence


def test_calibration_is_right_for_a_distribution_that_is_and_not_for_one_that_is_too_narrow():
    y = 0.5 + 2 * np.random.default_rng(0).normal(size=(1, 100, 200))
    test = TaskBatch(examples(np.zeros((1, 100, 1))), examples(y))
    right = evaluated(Constants(variance=4.0), jnp.asarray(2.0), test)
    found = calibration(right, ["a"])
    np.testing.assert_allclose(found["covered"]["a"], found["levels"], atol=0.01)
    # Half as wide: P(|z| < 0.8416 / 2) = 0.3261 in the interval of 60 %.
    narrow = calibration(evaluated(Constants(variance=1.0), jnp.asarray(2.0), test), ["a"])
    sixty = narrow["levels"].index(0.6)
    np.testing.assert_allclose(narrow["covered"]["a"][sixty], 0.3261, atol=0.01)


def test_intervals_of_details_hold_what_coverage_counts():
    y = np.random.default_rng(0).normal(size=(1, 3, 50))
    test = TaskBatch(examples(np.zeros((1, 3, 1))), examples(y))
    found = evaluated(Constants(variance=4.0), jnp.asarray(2.0), test)
    targets = test.query.y
    inside = (found.details.low <= targets) & (targets <= found.details.high)
    np.testing.assert_allclose(inside.mean(axis=(-2, -1)), found.covered, rtol=1e-6)


def test_calibration_of_a_learner_without_uncertainty_is_not_known():
    test = TaskBatch(examples([[[7.0]]]), examples([[[1.0, 3.0]]]))
    assert calibration(evaluated(Constants(), jnp.asarray(2.0), test), ["a"]) is None


def test_evaluation_equals_a_loop_over_single_tasks():
    test = random_test()
    state = SMALL_MAML.init(jax.random.key(0), test)
    found = evaluated(SMALL_MAML, state, test, chunk=3)
    predict = jax.jit(SMALL_MAML.predict)
    tasks = jax.tree.map(np.asarray, (test.support, test.query))
    for place in np.ndindex(2, 5):
        support, query = jax.tree.map(operator.itemgetter(place), tasks)
        predicted = np.asarray(predict(state, support, query.x).mean)
        expected = np.mean(np.square(predicted - query.y))
        np.testing.assert_allclose(found.error[place], expected, rtol=1e-5)


def doubled(drawn: TaskBatch) -> TaskBatch:
    """Inputs from references, for one task at a time."""
    assert drawn.query.mask.ndim == 1
    support, query = (
        Examples(2.0 * examples.x, examples.y, examples.mask)
        for examples in (drawn.support, drawn.query)
    )
    return dataclasses.replace(drawn, support=support, query=query)


def test_inputs_are_loaded_task_by_task():
    test = random_test()
    state = SMALL_MAML.init(jax.random.key(0), test)
    loaded = eqx.tree_at(lambda b: (b.support.x, b.query.x), test, replace_fn=lambda x: 2.0 * x)
    expected = evaluated(SMALL_MAML, state, loaded)
    found = evaluated(SMALL_MAML, state, test, load=doubled)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, expected)


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_the_chunk_size_does_not_change_the_result(chunk):
    test = random_test()
    expected = evaluated(Constants(), jnp.asarray(2.0), test, chunk=5)
    found = evaluated(Constants(), jnp.asarray(2.0), test, chunk=chunk)
    np.testing.assert_allclose(found.error, expected.error, rtol=1e-6)
    np.testing.assert_allclose(found.novelty, expected.novelty, rtol=1e-6)


def test_compiled_and_vmapped_over_seeds_equals_one_seed_at_a_time():
    test = random_test()
    keys = jax.random.split(jax.random.key(0), 3)
    states = jax.vmap(lambda key: SMALL_MAML.init(key, test))(keys)
    together = jax.vmap(lambda state: evaluated(SMALL_MAML, state, test, chunk=3))(states)
    assert together.error.shape == (3, 2, 5)
    for seed in range(3):
        state = jax.tree.map(operator.itemgetter(seed), states)
        alone = evaluated(SMALL_MAML, state, test, chunk=3)
        np.testing.assert_allclose(together.error[seed], alone.error, rtol=1e-5)


def stacked_hints(family):
    """Hints as they look after the test tasks of several families were stacked."""
    family = jnp.asarray(family)
    hints = Hints(family[0], jnp.asarray(False))
    return eqx.tree_at(
        lambda h: (h.family, h.boundary), hints, (family, jnp.ones(len(family), dtype=bool))
    )


def test_a_learner_that_is_told_sees_the_family_of_each_task():
    test = random_test(2, 3, stacked_hints([[0, 0, 0], [5, 5, 5]]))
    test = dataclasses.replace(test, query=examples(jnp.zeros((2, 3, 4))))
    found = evaluated(Constants(Told.FAMILY), jnp.asarray(0.0), test)
    np.testing.assert_allclose(found.component_error[..., 0], [[0] * 3, [25] * 3])


def test_a_learner_that_is_told_nothing_sees_no_hints():
    test = random_test(1, 3, stacked_hints([[5, 5, 5]]))
    test = dataclasses.replace(test, query=examples(jnp.zeros((1, 3, 4))))
    found = evaluated(Constants(Told.NOTHING), jnp.asarray(0.0), test)
    np.testing.assert_array_equal(found.component_error[..., 0], [[0] * 3])


def test_missing_hints_are_an_error_for_a_learner_that_needs_them():
    with pytest.raises(
        ValueError, match="has to be told the family of tasks, but there are no such hints"
    ):
        evaluated(Constants(Told.FAMILY), jnp.asarray(0.0), random_test())


def hand_made_evaluation():
    return Evaluation(
        error=jnp.array([[1.0, 3.0]]),
        component_error=jnp.array([[[1.0, 4.0, jnp.inf], [2.0, jnp.inf, jnp.inf]]]),
        responsibilities=jnp.array([[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]]),
        novelty=jnp.zeros((1, 2)),
        background=jnp.array([[0.0, 0.5]]),
        covered=jnp.array([[0.75, 1.0]]),
    )


def test_family_measures_by_hand():
    measures = family_measures(hand_made_evaluation(), ["a"], np.array([True, True, False]))
    assert measures == {
        "a": {
            "error": 2.0,
            "ci95": pytest.approx(1.96 / 2**0.5),
            # 0.5 * 1 + 0.5 * 4 and 1 * 2; the cluster without responsibility adds nothing.
            "weighted": 2.25,
            "likeliest": 1.5,
            "oracle": 1.5,
            "component_error": [1.5, None],
            # (0.5 * 1 + 1 * 2) / 1.5; the second has half of the first task, the third nothing.
            "held_error": [pytest.approx(5 / 3), 4.0],
            "responsibilities": [0.75, 0.25],
            "background": 0.25,
            "coverage": 0.875,
        }
    }


def test_coverage_that_is_not_known_is_none():
    unknown = eqx.tree_at(lambda e: e.covered, hand_made_evaluation(), jnp.full((1, 2), jnp.nan))
    measures = family_measures(unknown, ["a"], np.array([True, True, False]))
    assert measures["a"]["coverage"] is None


def test_family_measures_of_diverged_clusters_are_valid_json():
    measures = family_measures(hand_made_evaluation(), ["a"], np.array([True, True, True]))
    assert json.loads(json.dumps(measures, allow_nan=False)) == measures
