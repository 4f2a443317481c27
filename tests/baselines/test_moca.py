"""The filter over run lengths, and exact posteriors, against slow versions of both."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from taskmix.adaptation import BayesianHead, Gradient
from taskmix.baselines import MOCA
from taskmix.baselines.linear_gaussian import Seen, conditioned, log_normal, statistics
from taskmix.baselines.moca import MOCAParams, Runs, followed, kinds
from taskmix.likelihood import Categorical
from taskmix.models import MLP
from taskmix.tasks import Examples, TaskBatch

KEY = jax.random.key(0)
HEAD = BayesianHead(MLP(hidden=(4,), outputs=3, activation="tanh"), width=3)
RNG = np.random.default_rng(0)
WIDTH, COUNT = 3, 5
PHI, Y = RNG.normal(size=(COUNT, WIDTH)), RNG.normal(size=COUNT)
FACTOR, OWN = RNG.normal(size=(WIDTH, WIDTH)), np.eye(WIDTH) * 0.3
MEAN, NOISE = RNG.normal(size=WIDTH), jnp.asarray(0.2)
REAL = jnp.ones(COUNT, dtype=bool)


def test_evidence_is_the_density_of_the_joint_normal_distribution():
    found = log_normal(
        jnp.array(MEAN), jnp.array(FACTOR @ FACTOR.T), jnp.array(PHI), jnp.array(Y), REAL, NOISE
    )
    kernel = PHI @ FACTOR @ FACTOR.T @ PHI.T + 0.2 * np.eye(COUNT)
    np.testing.assert_allclose(found, multivariate_normal(PHI @ MEAN, kernel).logpdf(Y), rtol=1e-4)


def test_prediction_is_the_conditional_of_the_joint_normal_distribution():
    spread, aside = FACTOR @ FACTOR.T, RNG.normal(size=(2, WIDTH))
    _, mean, variance = conditioned(
        jnp.array(MEAN),
        jnp.array(spread),
        jnp.array(PHI),
        jnp.array(Y),
        REAL,
        jnp.array(aside),
        NOISE,
    )
    inverse = np.linalg.inv(PHI @ spread @ PHI.T + 0.2 * np.eye(COUNT))
    cross = aside @ spread @ PHI.T
    np.testing.assert_allclose(mean, aside @ MEAN + cross @ inverse @ (Y - PHI @ MEAN), rtol=1e-3)
    expected = np.diag(aside @ spread @ aside.T - cross @ inverse @ cross.T)
    np.testing.assert_allclose(variance, expected, rtol=1e-2, atol=1e-4)


def test_padding_says_nothing_of_a_kind():
    mask = jnp.array([True, True, True, False, False])
    padded = statistics(jnp.array(OWN), jnp.array(PHI), jnp.array(Y), mask, NOISE)
    alone = statistics(
        jnp.array(OWN), jnp.array(PHI[:3]), jnp.array(Y[:3]), jnp.ones(3, dtype=bool), NOISE
    )
    np.testing.assert_allclose(padded.precision, alone.precision, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(padded.information, alone.information, rtol=1e-5, atol=1e-6)


def test_posterior_of_a_kind_makes_the_chain_rule_hold():
    """log p(a, b) = log p(a) + log p(b | a) for two tasks of one kind, as one large normal."""
    params = MOCAParams(
        None, jnp.array(MEAN), jnp.array(FACTOR), jnp.sqrt(0.3) * jnp.eye(WIDTH), jnp.zeros(())
    )
    nothing = Runs(jnp.zeros(1), jnp.zeros((1, WIDTH, WIDTH)), jnp.zeros((1, WIDTH)))
    seen = statistics(jnp.array(OWN), jnp.array(PHI), jnp.array(Y), REAL, NOISE)
    once = Runs(jnp.zeros(1), seen.precision[None], seen.information[None])
    other, targets = RNG.normal(size=(COUNT, WIDTH)), RNG.normal(size=COUNT)
    parts = []
    for runs, phi, y in ((nothing, PHI, Y), (once, other, targets)):
        mean, spread = kinds(params, runs)
        parts.append(
            log_normal(mean[0], spread[0] + OWN, jnp.array(phi), jnp.array(y), REAL, NOISE)
        )
    both = np.concatenate([PHI, other])
    kernel = both @ FACTOR @ FACTOR.T @ both.T + 0.2 * np.eye(2 * COUNT)
    kernel[:COUNT, :COUNT] += PHI @ OWN @ PHI.T
    kernel[COUNT:, COUNT:] += other @ OWN @ other.T
    joint = multivariate_normal(both @ MEAN, kernel).logpdf(np.concatenate([Y, targets]))
    np.testing.assert_allclose(sum(parts), joint, rtol=1e-3)


def test_filter_follows_the_recursion_of_run_lengths():
    """Four beliefs through three batches, against sums over every history of changes."""
    likelihood, hazard = RNG.uniform(0.1, 1.0, size=(3, 4)), 0.2
    runs = Runs(jnp.array([0.0, -1e9, -1e9, -1e9]), jnp.zeros((4, 1, 1)), jnp.zeros((4, 1)))
    belief = np.array([1.0, 0.0, 0.0, 0.0])
    for batch in likelihood:
        seen = Seen(jnp.ones((1, 1)), jnp.ones(1))
        runs = followed(runs, jnp.log(batch), seen, hazard)
        weighed = belief * batch / (belief * batch).sum()
        belief = np.array([hazard, 0.0, 0.0, 0.0])
        for age in range(4):
            belief[min(age + 1, 3)] += (1 - hazard) * weighed[age]
    np.testing.assert_allclose(jnp.exp(runs.log_belief), belief, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(runs.information[:, 0], [0, 1, 2, 3])


def levels(level: float, key: jax.Array) -> TaskBatch:
    """Tasks whose functions are constant, near a level that is their kind's."""
    own, noise = (jax.random.normal(one, (4, 6, 1)) for one in jax.random.split(key))
    x, y = own, level + 0.3 * own[:, :1] + 0.1 * noise
    return TaskBatch(Examples.full(x[:, :3], y[:, :3]), Examples.full(x[:, 3:], y[:, 3:]))


def test_belief_in_a_new_run_rises_when_the_kind_of_tasks_changes():
    learner = MOCA(HEAD, longest=8, hazard=0.02)
    step, keys = jax.jit(learner.step), jax.random.split(KEY, 23)
    state = learner.init(KEY, levels(0.0, KEY))
    young, losses = [], []
    for iteration, key in enumerate(keys):
        batch = levels(2.0 if iteration < 20 else -2.0, key)
        state, info = step(state, batch, KEY)
        young.append(float(jnp.exp(state.runs.log_belief[:4]).sum()))
        losses.append(float(info.loss))
    assert young[19] < 0.2
    assert max(young[20:]) > 0.8
    assert losses[20] > losses[19]
    assert losses[22] < losses[20]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"hazard": 1.0}, "hazard is 1.0"),
        ({"longest": 0}, "longest is 0"),
        ({"task_model": dataclasses.replace(HEAD, likelihood=Categorical())}, "class numbers"),
        ({"task_model": dataclasses.replace(HEAD, outputs=2)}, "2 outputs"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        MOCA(**settings)


def test_only_a_bayesian_head_will_do(monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    with pytest.raises(ValueError, match="BayesianHead"):
        MOCA(Gradient())
