import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from taskmix.mixture.alarm import FADING, FEWEST, MOST, RATES, STAKES, Alarm, winnings
from taskmix.mixture.settings import OnlineSettings
from taskmix.mixture.vigilance import AT_ONCE

HALF = RATES.index(0.5)
ONE = np.float32(scipy.stats.norm.cdf(-1.0))
"""The rank whose normal score is -1."""
NOTHING = jnp.zeros(())
BETTING = jnp.asarray(True)
OBSERVE, WINNINGS = jax.jit(Alarm.observe), jax.jit(winnings)


def observed(alarm: Alarm, *ranks: float, won: float = 0.0, betting: bool = True) -> Alarm:
    """After a batch with tasks of these ranks, all of the only cluster."""
    given = jnp.asarray(ranks, dtype=jnp.float32)[:, None]
    members = jnp.ones_like(given, dtype=bool)
    return OBSERVE(alarm, given, members, jnp.asarray(won), jnp.asarray(betting))


def bets(m: int) -> np.ndarray:
    """What is won on each of m + 1 different leads when it is compared with the others."""
    leads = np.random.default_rng(0).permutation(m + 1).astype(np.float32)
    usable = jnp.ones(m, dtype=bool)
    others = jnp.asarray([np.delete(leads, index) for index in range(m + 1)])
    won = jax.vmap(lambda lead, others: WINNINGS(lead, others, usable)[0])
    return np.exp(won(jnp.asarray(leads)[:, None], others))


@pytest.mark.parametrize("m", [1, 13, 40])
def test_bets_on_exchangeable_leads_win_nothing_on_average(m):
    assert bets(m).mean() <= 1 + 1e-6


def test_bets_win_by_the_rank_of_the_lead():
    """The highest of 10 leads has p = 1/10: the mean of s 0.1^(s - 1)."""
    found = WINNINGS(jnp.array([100.0]), jnp.arange(9.0), jnp.ones(9, dtype=bool))
    np.testing.assert_allclose(np.exp(found), np.mean([s * 0.1 ** (s - 1) for s in STAKES]))


def test_equal_leads_win_nothing():
    found = WINNINGS(jnp.zeros(1), jnp.zeros(9), jnp.ones(9, dtype=bool))
    np.testing.assert_allclose(np.exp(found), np.mean(STAKES), rtol=1e-6)


def test_reference_tasks_that_are_not_there_do_not_count():
    usable = jnp.arange(12) < 9
    ordinary = jnp.where(usable, jnp.arange(12.0), jnp.inf)
    found = WINNINGS(jnp.array([4.5]), ordinary, usable)
    np.testing.assert_allclose(found, WINNINGS(jnp.array([4.5]), ordinary[:9], usable[:9]))


def false_alarms(shared: bool, bound: float, tasks: int = 4) -> tuple[float, float]:
    """Alarms per task when nothing changes, and their standard error, over 200 streams.

    Bets are summed over the tasks of a batch, as the mixture does it; references are drawn anew
    for each task, or ``shared`` by all tasks of a stream.
    """
    streams, batches, m = 200, 500, 40

    def stream(key):
        fixed = jax.random.normal(jax.random.fold_in(key, 0), (m,))

        def batch(alarm, key):
            lead_key, reference_key = jax.random.split(key)
            leads = jax.random.normal(lead_key, (tasks, 1))
            fresh = jax.random.normal(reference_key, (tasks, m))
            others = jnp.broadcast_to(fixed, fresh.shape) if shared else fresh
            won = jax.vmap(lambda a, b: winnings(a, b, jnp.ones(m, dtype=bool))[0])(leads, others)
            ranks = jnp.full((tasks, 1), 0.5)
            alarm = alarm.observe(ranks, jnp.ones((tasks, 1), dtype=bool), jnp.sum(won), BETTING)
            rung = alarm.wealth > -jnp.log(bound)
            return dataclasses.replace(alarm, wealth=jnp.where(rung, 0.0, alarm.wealth)), rung

        return jnp.sum(jax.lax.scan(batch, Alarm.begin(1), jax.random.split(key, batches))[1])

    rung = np.asarray(jax.jit(jax.vmap(stream))(jax.random.split(jax.random.key(1), streams)))
    each = rung / (batches * tasks)
    return each.mean(), each.std() / np.sqrt(streams)


def test_false_alarms_stay_below_the_bound():
    rate, error = false_alarms(shared=False, bound=0.01)
    assert 0 < rate < 0.01 - 4 * error


def test_wealth_never_falls_below_nothing_or_above_the_most():
    alarm = Alarm.begin(1)
    assert observed(alarm, 0.5, won=-3.0).wealth == 0
    assert observed(alarm, 0.5, won=99.0).wealth == MOST


def test_wealth_adds_up():
    alarm = observed(observed(Alarm.begin(1), 0.5, won=2.0), 0.5, won=-0.5)
    assert alarm.wealth == 1.5


def test_wealth_fades_where_there_is_nothing_to_bet_on():
    alarm = observed(Alarm.begin(1), 0.5, won=2.0)
    np.testing.assert_allclose(observed(alarm, 0.5, betting=False).wealth, 2 * FADING, rtol=1e-6)


def test_window_weighs_the_past_by_what_it_does_not_forget():
    """Two tasks with score -1, then one with score 0: half of -2 over half of 2 and 1."""
    alarm = observed(observed(Alarm.begin(1), ONE, ONE), 0.5)
    np.testing.assert_allclose(alarm.total[0, HALF] / alarm.weight[0, HALF], -1 / 2, rtol=1e-5)


def test_lowness_is_the_mean_in_its_own_standard_deviations():
    """Weights 1/2, 1/2, 1, 1: the mean is -2/3 and varies by (1/4 + 1/4 + 1 + 1) / 9."""
    alarm = observed(observed(Alarm.begin(1), ONE, ONE), ONE, 0.5)
    variance = 2.5 / 9 + 1 / 50 + 0.1**2
    found = alarm.lowness(jnp.array([50]), 0.1)[0, HALF]
    np.testing.assert_allclose(found, (2 / 3) / np.sqrt(variance), rtol=1e-5)


def test_lowness_of_uniform_ranks_is_standard_normal():
    """Without reference and wander, in every window: its mean square is 1."""

    @jax.jit
    @jax.vmap
    def stream(key):
        def batch(alarm, key):
            ranks = jax.random.uniform(key, (3, 1))
            return alarm.observe(ranks, jnp.ones((3, 1), dtype=bool), NOTHING, BETTING), None

        alarm, _ = jax.lax.scan(batch, Alarm.begin(1), jax.random.split(key, 60))
        return alarm.lowness(jnp.array([10**9]), 0.0)[0]

    found = np.asarray(stream(jax.random.split(jax.random.key(0), 2000)))
    # Four standard errors of a mean of 2000 squares, and what clipping the ranks takes away.
    np.testing.assert_allclose(np.mean(np.square(found), axis=0), 1, atol=4 * np.sqrt(2 / 2000))


def test_a_window_with_too_few_scores_is_not_low():
    alarm = observed(Alarm.begin(1), *[1e-3] * (FEWEST - 1))
    np.testing.assert_array_equal(alarm.lowness(jnp.array([50]), 0.0), 0)


def test_a_batch_without_tasks_of_a_cluster_leaves_its_windows_alone():
    ranks = jnp.full((2, 2), 0.1)
    before = OBSERVE(Alarm.begin(2), ranks, jnp.ones((2, 2), dtype=bool), NOTHING, BETTING)
    after = OBSERVE(before, ranks, jnp.array([[True, False]] * 2), NOTHING, BETTING)
    for name in ("total", "weight", "squared"):
        np.testing.assert_array_equal(getattr(after, name)[1], getattr(before, name)[1])
        assert (getattr(after, name)[0, 1:] != getattr(before, name)[0, 1:]).all()


def test_ranks_of_what_is_not_a_member_do_not_count():
    ranks = jnp.array([[0.3], [jnp.nan]])
    found = OBSERVE(Alarm.begin(1), ranks, jnp.array([[True], [False]]), NOTHING, BETTING)
    np.testing.assert_array_equal(found.total, observed(Alarm.begin(1), 0.3).total)


def history(reasons: list[bool], patience: int) -> list[tuple[bool, int]]:
    """Whether the alarm is on after each batch, and since when."""
    alarm, found = Alarm.begin(1), []
    for reason in reasons:
        alarm = alarm.judged(jnp.asarray(reason), patience)
        found.append((bool(alarm.raised), int(alarm.since)))
    return found


def test_alarm_stays_on_until_patience_has_passed_without_reason():
    found = history([False, True, False, False, False, False], patience=3)
    assert [raised for raised, _ in found] == [False, True, True, True, False, False]


def test_new_reason_prolongs_an_alarm():
    found = history([True, False, True, False, False], patience=2)
    assert [since for _, since in found] == [1, 2, 3, 4, 0]


def test_forgetting_begins_the_windows_of_the_named_clusters_anew():
    ranks = jnp.full((2, 2), 0.1)
    before = OBSERVE(Alarm.begin(2), ranks, jnp.ones((2, 2), dtype=bool), jnp.asarray(1.0), BETTING)
    after = before.forget(jnp.array([True, False]))
    assert not after.weight[0].any()
    np.testing.assert_array_equal(after.total[1], before.total[1])
    assert after.wealth == before.wealth


def test_two_batches_of_four_tasks_can_raise_the_alarm_through_a_cluster_not_in_use():
    """One cannot, however low they rank; images come four at a time, beside 40 that are kept."""
    settings, alarm = OnlineSettings(), Alarm.begin(1)
    lowest = []
    for ranks in [*[(ONE, 1 - ONE, ONE, 1 - ONE)] * 20, *[(0.0,) * 4] * 2]:
        alarm = observed(alarm, *ranks)
        lowness = alarm.lowness(jnp.array([40]), settings.wander)
        lowest.append(float(lowness[0, :AT_ONCE].max()))
    assert max(lowest[:-2]) < 1
    assert lowest[-2] < settings.lowness < lowest[-1]
