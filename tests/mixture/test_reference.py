import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from taskmix.mixture.reference import LEAST, ORDINARY, TAIL, Reference, Scores
from taskmix.mixture.reservoir import offered, put
from taskmix.tasks import Examples, TaskBatch

KEY = jax.random.key(0)
RANK, TYPICALITY = jax.jit(Reference.rank), jax.jit(Reference.whole_typicality)


def tasks_of(count: int) -> TaskBatch:
    y = jnp.arange(float(count))[:, None, None]
    examples = Examples.full(y, y)
    return TaskBatch(examples, examples)


def reference_of(scores, places: int | None = None, support=None) -> Reference:
    """With these scores of whole tasks, the first places being filled."""
    scores = np.asarray(scores, dtype=np.float32)
    places = places or scores.size
    empty = Reference.empty(tasks_of(1), places)
    known = jnp.arange(places) < scores.size
    whole = jnp.full(places, 77.0).at[: scores.size].set(scores)
    support = whole if support is None else jnp.asarray(support)
    sample = dataclasses.replace(empty.sample, filled=known, offered=jnp.sum(known) * 1.0)
    return Reference(sample, Scores(whole, support))


def many(*values: float) -> jax.Array:
    return jnp.asarray(values)


def test_rank_is_the_share_of_lower_scores():
    """Ten of twenty lie below 9.5; one more and a half make it neither 0 nor 1."""
    np.testing.assert_allclose(RANK(reference_of(range(20)), many(9.5)), 10.5 / 21)


def test_ranks_of_exchangeable_scores_are_uniform_above_the_tail():
    """Each of 41 scores among the 40 others: its rank is its place."""
    scores = np.sort(np.random.default_rng(0).standard_cauchy(41)).astype(np.float32)

    def ranked(index: int) -> float:
        others = reference_of(np.delete(scores, index))
        return float(RANK(others, many(scores[index]))[0])

    found = [ranked(index) for index in range(5, 41)]
    np.testing.assert_allclose(found, (np.arange(5, 41) + 0.5) / 41, rtol=1e-6)


def test_places_without_a_task_have_no_part_in_a_rank():
    scores, at = range(20), many(-3.0, 0.5, 9.5, 30.0)
    np.testing.assert_array_equal(
        RANK(reference_of(scores, places=32), at), RANK(reference_of(scores), at)
    )


def test_rank_falls_exponentially_in_the_tail():
    """Of 0..19 the tail begins at 2, and 0 and 1 lie 1.5 below on average."""
    found = RANK(reference_of(range(20)), many(2 - 1.5 * math.log(2), 2 - 1.5 * math.log(8)))
    np.testing.assert_allclose(found, [TAIL / 2, TAIL / 8], rtol=1e-5)


def test_rank_never_is_zero():
    assert RANK(reference_of(range(20)), many(-1e9))[0] > 0


def test_tail_of_exponential_scores_has_their_probabilities():
    """Scores -x with x exponential fall below -log(1 / p) with probability p."""
    scores = -np.random.default_rng(1).exponential(size=4000)
    found = RANK(reference_of(scores), jnp.log(many(0.05, 0.01, 0.002)))
    np.testing.assert_allclose(found, [0.05, 0.01, 0.002], rtol=0.25)


def test_ordinary_tasks_have_typicality_zero():
    found = TYPICALITY(reference_of(range(20)), many(2.0, 9.5, 40.0), jnp.full(3, 10))
    np.testing.assert_array_equal(found, 0)


def test_typicality_begins_to_fall_at_the_ordinary_rank():
    """exp((s - 2) / 1.5) * 0.1 = 0.02 at s = 2 - 1.5 log 5."""
    edge = 2 + 1.5 * math.log(ORDINARY / TAIL)
    found = TYPICALITY(reference_of(range(20)), many(edge + 0.01, edge - 0.01), jnp.full(2, 9))
    np.testing.assert_allclose(found, [0, -0.01 / 1.5], rtol=1e-3, atol=1e-6)


def test_typicality_falls_linearly_in_the_tail():
    found = TYPICALITY(reference_of(range(20)), many(-10.0, -13.0, -16.0), jnp.full(3, 9))
    np.testing.assert_allclose(np.diff(found), -3 / 1.5, rtol=1e-5)


def test_a_nat_per_task_is_the_least_scale_of_the_tail():
    """Scores per example that differ by far less than 1/10: ten examples make 1 nat of 0.1."""
    reference = reference_of(np.linspace(0, 1e-4, 20))
    found = TYPICALITY(reference, many(-1.0, -2.0), jnp.full(2, 10))
    np.testing.assert_allclose(found[1] - found[0], -10, rtol=1e-4)


def test_too_small_a_reference_finds_nothing_untypical():
    reference = reference_of(range(LEAST - 1))
    np.testing.assert_array_equal(TYPICALITY(reference, many(-1e3), jnp.full(1, 9)), 0)


def test_support_sets_are_compared_with_support_sets():
    reference = reference_of(range(20), support=jnp.arange(20.0) - 100)
    found = reference.support_typicality(many(-90.0), jnp.full(1, 3))
    np.testing.assert_array_equal(found, 0)
    np.testing.assert_allclose(reference.support_rank(jnp.asarray(-90.5)), 10.5 / 21)


def test_an_offered_task_brings_its_own_scores():
    scores = Scores(10.0 + jnp.arange(6), 20.0 + jnp.arange(6))
    where = jnp.array([True, False, True, True, False, True])
    empty = Reference.empty(tasks_of(1), 3)
    every = jax.tree.map(lambda leaf: leaf[None], (empty.sample, empty.scores, scores))
    sample, kept = offered(*every[:2], tasks_of(6), every[2], where[None], KEY[None])
    numbers = sample.tasks.query.y[..., 0, 0]
    np.testing.assert_array_equal(kept.whole, 10 + numbers)
    np.testing.assert_array_equal(kept.support, 20 + numbers)


def test_rescoring_changes_only_the_places_it_names():
    new = Scores(many(-1.0, -2.0, -5.0), many(-3.0, -4.0, -5.0))
    found = put(reference_of(range(5)).scores, jnp.array([4, 1, 5]), new)
    np.testing.assert_array_equal(found.whole, [0, -2, 2, 3, -1])
    np.testing.assert_array_equal(found.support, [0, -4, 2, 3, -3])


def test_what_is_dropped_is_not_compared_with():
    reference = reference_of(range(21))
    without_last = reference.drop(jnp.arange(21) == 20)
    np.testing.assert_allclose(
        RANK(without_last, many(9.5)), RANK(reference_of(range(20)), many(9.5))
    )
    assert without_last.count() == 20
