import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.mixture.global_prior import (
    GlobalPrior,
    candidates,
    deviation_at,
    noisy,
    summary_weights,
)

KEY = jax.random.key(0)
PARAMS = {"w": jnp.array([[1.0, 2.0], [4.0, 8.0], [100.0, 100.0]]), "b": jnp.array([3.0, 0.0, 9.0])}
ALIVE = jnp.array([True, True, False])


def refreshed(sizes, refresh, params=PARAMS) -> GlobalPrior:
    weights = summary_weights(ALIVE, jnp.array(sizes), refresh)
    start = GlobalPrior.at(jax.tree.map(jnp.zeros_like, PARAMS), 0, 10)
    return start.refreshed(params, weights, jnp.asarray(0), 1.0, jnp.asarray(True))


def test_average_is_over_the_living_whatever_their_size():
    centre = refreshed([9.0, 1.0, 5.0], "average").mean()
    chex.assert_trees_all_close(centre, {"w": jnp.array([2.5, 5.0]), "b": jnp.array(1.5)})


def test_weighted_average_follows_the_sizes():
    centre = refreshed([2.0, 6.0, 5.0], "weighted").mean()
    chex.assert_trees_all_close(centre, {"w": jnp.array([3.25, 6.5]), "b": jnp.array(0.75)})


def test_weighted_average_counts_an_idle_cluster_as_one_task():
    chex.assert_trees_all_close(refreshed([3.0, 0.0, 5.0], "weighted").mean()["b"], jnp.array(2.25))


@pytest.mark.parametrize("refresh", ["average", "weighted", "density"])
def test_dead_rows_do_not_enter_even_if_not_a_number(refresh):
    broken = jax.tree.map(lambda leaf: leaf.at[2].set(jnp.nan), PARAMS)
    sizes = [2.0, 6.0, 5.0]
    chex.assert_trees_all_equal(refreshed(sizes, refresh, broken), refreshed(sizes, refresh))


def test_density_draws_a_kernel_per_candidate_in_proportion_to_its_size():
    draws = 4000
    prior = refreshed([1.0, 3.0, 5.0], "density")
    drawn = candidates(prior, "density", None, draws, KEY)["b"]
    first = int((drawn == 3.0).sum())
    assert first + int((drawn == 0.0).sum()) == draws
    assert abs(first - draws / 4) < 4 * math.sqrt(draws * 0.25 * 0.75)


def test_density_spreads_candidates_around_their_kernels_by_the_bandwidth():
    prior = refreshed([1.0, 1.0, 0.0], "density")
    drawn = candidates(prior, "density", jnp.asarray(0.1), 2000, KEY)["w"][:, 0]
    nearest = jnp.where(drawn < 2.5, 1.0, 4.0)
    np.testing.assert_allclose((drawn - nearest).std(), 0.1, rtol=0.05)


def test_candidates_without_deviation_are_exactly_the_centre():
    prior = refreshed([2.0, 6.0, 5.0], "weighted")
    (same,) = jax.tree.leaves(
        jax.tree.map(lambda leaf: leaf[None], candidates(prior, "weighted", None, 2, KEY)["b"])
    )
    np.testing.assert_array_equal(same[0], jnp.full(2, prior.mean()["b"]))


def test_draws_are_spread_around_the_centre_and_independent():
    centre = {"w": jnp.full(10000, 2.0), "b": jnp.full(10000, -1.0)}
    drawn = noisy(centre, jnp.asarray(0.5), KEY)
    deviation = np.stack([drawn["w"] - 2, drawn["b"] + 1])
    np.testing.assert_allclose(deviation.mean(axis=1), 0, atol=0.02)
    np.testing.assert_allclose(deviation.std(axis=1), 0.5, atol=0.02)
    assert abs(np.corrcoef(deviation)[0, 1]) < 0.05


def test_variance_of_a_candidate_halves_after_so_many_iterations():
    annealed = [float(deviation_at(0.4, 100, t)) ** 2 for t in (0, 100, 300)]
    np.testing.assert_allclose(annealed, [0.16, 0.08, 0.04], rtol=1e-5)
    assert float(deviation_at(0.4, 0, 300)) == pytest.approx(0.4)


def test_refreshments_come_ever_less_often():
    """Pauses of 10, 20 and 40 after the first at 5: refreshed at 5, 15, 35 and 75."""
    prior = GlobalPrior.at(PARAMS, 5, 10)
    weights = summary_weights(ALIVE, jnp.ones(3), "average")
    when = []
    for now in range(100):
        params = jax.tree.map(lambda leaf, now=now: jnp.full_like(leaf, now), PARAMS)
        prior = prior.refreshed(params, weights, jnp.asarray(now), 2.0, jnp.asarray(True))
        when.append(float(prior.mean()["b"]))
    assert sorted(set(when[5:])) == [5.0, 15.0, 35.0, 75.0]


def test_refreshment_that_is_not_taken_changes_no_bit_of_the_centres():
    prior = GlobalPrior.at(PARAMS, 0, 10)
    other = jax.tree.map(lambda leaf: leaf + 1, PARAMS)
    after = prior.refreshed(other, jnp.ones(3) / 3, jnp.asarray(0), 1.0, jnp.asarray(False))
    chex.assert_trees_all_equal(after.centres, prior.centres)
    assert after.due == 10
