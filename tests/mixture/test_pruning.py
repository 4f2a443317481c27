"""Which clusters the paper's heuristics would remove, by numbers computed by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from taskmix.mixture.pruning import due, like_a_larger_one, odds_ratios, with_few_tasks

ALIVE = jnp.array([True, True, True, False])


def test_cluster_with_less_than_its_share_of_an_equal_share_has_few_tasks():
    """90 tasks for three: an equal share is 30, a tenth of it 3."""
    recent, old = jnp.array([60.0, 27.5, 2.5, 0.0]), jnp.ones(4, dtype=bool)
    np.testing.assert_array_equal(
        with_few_tasks(recent, ALIVE, old, 0.1), [False, False, True, False]
    )
    np.testing.assert_array_equal(with_few_tasks(recent, ALIVE, old, 0.08), np.zeros(4, bool))


def test_cluster_that_was_born_since_the_last_look_is_not_judged():
    recent = jnp.array([60.0, 30.0, 0.0, 0.0])
    young = jnp.array([True, True, False, False])
    assert not with_few_tasks(recent, ALIVE, young, 0.1).any()


def test_no_task_at_all_leaves_every_cluster():
    assert not with_few_tasks(jnp.zeros(4), ALIVE, jnp.ones(4, dtype=bool), 0.5).any()


def test_odds_ratio_is_that_of_the_assignment_probabilities():
    """Two tasks with p = (0.6, 0.3, 0.1) and (0.2, 0.4, 0.4), an independent slow version."""
    shares = np.array([[0.6, 0.3, 0.1], [0.2, 0.4, 0.4]])
    found = odds_ratios(jnp.log(shares), jnp.array(shares), jnp.array([True, True]))
    for a in range(3):
        for b in range(3):
            weights = [shares[j, a] + shares[j, b] for j in range(2)]
            logs = [abs(math.log(shares[j, a] / shares[j, b])) for j in range(2)]
            mean = sum(w * x for w, x in zip(weights, logs, strict=True)) / sum(weights)
            np.testing.assert_allclose(found[a, b], math.exp(mean), rtol=1e-5)


def test_padding_and_tasks_of_other_clusters_do_not_count():
    shares = jnp.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    evidence = jnp.array([[0.0, 0.0, -50.0], [0.0, -9.0, -50.0], [-50.0, -80.0, 0.0]])
    real = jnp.array([True, False, True])
    found = odds_ratios(evidence, shares, real)
    np.testing.assert_allclose(found[0, 1], 1.0)
    assert found[0, 2] > 1e6


def test_smaller_of_two_that_are_alike_goes_and_only_one_at_a_time():
    ratios = jnp.array(
        [[1.0, 1.2, 9.0, 1.0], [1.2, 1.0, 1.3, 1.0], [9.0, 1.3, 1.0, 1.0], [1.0] * 4]
    )
    sizes = jnp.array([50.0, 20.0, 10.0, 0.0])
    gone = like_a_larger_one(ratios, ALIVE, sizes, 1.5)
    np.testing.assert_array_equal(gone, [False, False, True, False])
    assert not like_a_larger_one(ratios, ALIVE, sizes, 1.1).any()


def test_of_equals_the_later_goes():
    ratios, sizes = jnp.ones((4, 4)), jnp.array([5.0, 5.0, 9.0, 0.0])
    gone = like_a_larger_one(ratios, jnp.array([True, True, False, False]), sizes, 1.5)
    np.testing.assert_array_equal(gone, [False, True, False, False])


def test_looks_come_after_the_warm_up_only():
    times = [int(t) for t in range(1, 50) if due(jnp.asarray(t), 10, 15)]
    assert times == [20, 30, 40]
    assert jax.jit(due, static_argnums=(1, 2))(jnp.asarray(20), 10, 15)
