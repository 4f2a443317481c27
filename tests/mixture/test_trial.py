import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.mixture.trial import EASIER, FRESH, GAIN_RATE, SHARE_RATE, Trial

GAIN = math.log(0.9 + 0.1 * math.exp(2))
"""On a task with log-densities -3 under the mixture and -1 under a candidate with share 0.1."""


TRIED = jax.jit(Trial.tried)


def tried(trial: Trial, mixture, candidate, fair=True, real=True) -> Trial:
    mixture, candidate = jnp.asarray(mixture), jnp.asarray(candidate)
    flags = (jnp.broadcast_to(jnp.asarray(flag), mixture.shape) for flag in (fair, real))
    return TRIED(trial, mixture, candidate, *flags)


def with_evidence(evidence: float) -> Trial:
    return eqx.tree_at(lambda trial: trial.evidence, Trial.begin(), jnp.asarray(evidence))


def test_gain_is_that_of_a_mixture_with_the_candidate():
    np.testing.assert_allclose(tried(Trial.begin(), [-3.0], [-1.0]).evidence, GAIN, rtol=1e-6)


def test_gains_of_the_tasks_of_a_batch_add_up():
    found = tried(with_evidence(5.0), [-3.0, -1.0], [-1.0, -50.0]).evidence
    np.testing.assert_allclose(found, 5 + GAIN + math.log(0.9), rtol=1e-6)


def test_evidence_never_falls_below_nothing():
    assert tried(with_evidence(0.05), [0.0], [-50.0]).evidence == 0


def test_a_candidate_of_the_right_mixture_is_a_test_martingale():
    """The expectation of exp(gain) over tasks of the mixture, by quadrature, is 1."""
    x = np.linspace(-12, 12, 4001)
    density = jax.scipy.stats.norm.logpdf(x)
    candidate = jax.scipy.stats.norm.logpdf(x, 1.0, 0.7)
    start = with_evidence(50.0)
    after = jax.vmap(lambda p, q: tried(start, p[None], q[None]).evidence)(density, candidate)
    np.testing.assert_allclose(np.sum(np.exp(density + after - 50)) * (x[1] - x[0]), 1, rtol=1e-4)


def test_a_candidate_is_promoted_without_reason_no_more_often_than_the_bound_says():
    """Tasks of the mixture's own N(0, 1), a candidate N(1, 1): above b once in e^b tasks."""
    bound, streams, tasks = 3.0, 500, 2000

    @jax.jit
    @jax.vmap
    def stream(key):
        def task(trial, y):
            log = jax.scipy.stats.norm.logpdf
            trial = tried(trial, log(y)[None], log(y, 1.0)[None])
            won = trial.evidence > bound
            evidence = jnp.where(won, 0.0, trial.evidence)
            return eqx.tree_at(lambda trial: trial.evidence, trial, evidence), won

        return jnp.mean(jax.lax.scan(task, Trial.begin(), jax.random.normal(key, (tasks,)))[1])

    rates = np.asarray(stream(jax.random.split(jax.random.key(0), streams)))
    assert 0 < rates.mean() < math.exp(-bound) - 4 * rates.std() / math.sqrt(streams)


@pytest.mark.parametrize("left_out", ["fair", "real"])
def test_gains_count_only_where_the_comparison_is_fair(left_out):
    fair = {"fair": jnp.array([True, False])}
    real = {"real": jnp.array([True, False]), "fair": jnp.array([True, False])}
    found = tried(
        Trial.begin(), [-3.0, -3.0], [-1.0, 9.0], **(fair if left_out == "fair" else real)
    )
    np.testing.assert_allclose(found.evidence, GAIN, rtol=1e-6)


def test_a_task_is_the_candidates_by_bayes_rule():
    found = Trial.begin().taken(jnp.array([-3.0]), jnp.array([-1.0]))
    np.testing.assert_allclose(found, 0.1 * math.exp(2) / (0.9 + 0.1 * math.exp(2)), rtol=1e-6)


def test_share_follows_the_tasks_taken_and_not_the_padding():
    """One of two real tasks is the candidate's beyond doubt; padding is nobody's."""
    found = tried(
        Trial.begin(), [-90.0, 0.0, -90.0], [0.0, -90.0, 0.0], real=jnp.array([True, True, False])
    )
    np.testing.assert_allclose(found.share, 0.1 + SHARE_RATE * (0.5 - 0.1), rtol=1e-5)


@pytest.mark.parametrize(("ahead", "limit"), [(90.0, 0.5), (-90.0, 0.05)])
def test_share_stays_within_bounds(ahead, limit):
    trial = Trial.begin()
    for _ in range(40):
        trial = tried(trial, [0.0], [ahead])
    np.testing.assert_allclose(trial.share, limit)


def test_worth_is_the_mean_gain_on_its_own_tasks():
    """Two tasks beyond doubt its own, 30 and 50 nats ahead; one that is not."""
    found = tried(Trial.begin(), [-30.0, -50.0, 0.0], [0.0, 0.0, -60.0])
    np.testing.assert_allclose(found.worth(), 40, rtol=1e-5)


def test_worth_forgets_the_past():
    first = tried(Trial.begin(), [-30.0], [0.0])
    keep = 1 - GAIN_RATE
    np.testing.assert_allclose(
        tried(first, [-60.0], [0.0]).worth(), (keep * 30 + 60) / (keep + 1), rtol=1e-5
    )


def test_a_candidate_begins_without_a_record():
    trial = Trial.begin(EASIER, 3)
    assert (trial.origin, trial.parent, trial.age, trial.evidence) == (EASIER, 3, 0, 0)
    assert Trial.begin().origin == FRESH
