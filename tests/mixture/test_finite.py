"""The joint surrogate, against a slow version with plain loops and a written-out Adam."""

import dataclasses
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.adaptation import BayesianHead, meta_gradient
from taskmix.mixture import FiniteMixture
from taskmix.mixture.responsibilities import assessments

KEY = jax.random.key(3)
TEMPERATURES = [2.0, math.inf]


def slow_loss(learner, every_cluster, batch):
    """(1/J) sum_j sum_l gamma_jl loss_jl, gamma from the support sets."""
    model, adaptation = learner.task_model.model, learner.task_model.adaptation
    total = 0.0
    for task in range(batch.support.x.shape[0]):
        fits, losses = [], []
        for params in every_cluster:
            x, y = batch.support.x[task], batch.support.y[task]

            def support_loss(p, x=x, y=y):
                return jnp.mean(jnp.square(model.apply(p, x) - y))

            gradient = jax.grad(support_loss)(params)
            norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(gradient)))
            scale = adaptation.rate * jnp.minimum(1, adaptation.clip / norm)
            adapted = jax.tree.map(lambda p, g, s=scale: p - s * g, params, gradient)
            fits.append(-0.5 * jnp.sum(jnp.square(model.apply(adapted, x) - y)))
            outputs = model.apply(adapted, batch.query.x[task])
            losses.append(jnp.mean(jnp.square(outputs - batch.query.y[task])))
        scores = jnp.exp(jnp.stack(fits) / learner.temperature)
        total += jnp.sum(scores / jnp.sum(scores) * jnp.stack(losses))
    return total / batch.support.x.shape[0]


@pytest.fixture(scope="module", params=TEMPERATURES)
def learner(request, finite):
    return dataclasses.replace(finite, temperature=request.param)


@pytest.fixture(scope="module")
def step(learner):
    return jax.jit(learner.step)


@pytest.fixture(scope="module")
def stepped(step, three_finite, batches):
    return step(three_finite, batches[0], KEY)


def test_step_is_that_of_the_slow_version(learner, stepped, three_finite, batches):
    every_cluster = [jax.tree.map(lambda leaf, i=i: leaf[i], three_finite.params) for i in range(3)]
    slow = jax.jit(jax.value_and_grad(lambda every: slow_loss(learner, every, batches[0])))
    loss, gradients = slow(every_cluster)
    after, info = stepped
    np.testing.assert_allclose(info.loss, loss, rtol=1e-4)
    for index, (params, gradient) in enumerate(zip(every_cluster, gradients, strict=True)):
        found = jax.tree.map(lambda leaf, i=index: leaf[i], after)
        # The first step of Adam has the size of the rate: m and v are unbiased to g and g^2.
        expected = jax.tree.map(
            lambda p, g: p - learner.meta_rate * g / (jnp.abs(g) + 1e-8), params, gradient
        )
        chex.assert_trees_all_close(found.params, expected, rtol=1e-4, atol=1e-6)
        chex.assert_trees_all_close(
            found.optimiser[0].mu, jax.tree.map(lambda g: 0.1 * g, gradient), rtol=1e-3, atol=1e-6
        )


def test_error_is_that_of_the_mixture_mean(learner, stepped, three_finite, batches):
    _, info = stepped
    predict = jax.jit(learner.predict)
    for task in range(4):
        one = jax.tree.map(lambda leaf, t=task: leaf[t], batches[0])
        prediction = predict(three_finite, one.support, one.query.x)
        mean = np.tensordot(prediction.responsibilities, prediction.components, axes=1)
        np.testing.assert_allclose(prediction.mean, mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(
            info.error[task], np.square(mean - one.query.y).mean(), rtol=1e-4
        )


def test_shares_are_equal_if_and_only_if_the_temperature_is_infinite(learner, stepped):
    _, info = stepped
    equal = (np.asarray(info.responsibilities) == np.float32(1 / 3)).all()
    assert equal == math.isinf(learner.temperature)


def test_identical_components_share_every_task_equally(step, three_finite, batches):
    same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), three_finite)
    _, info = step(same, batches[0], KEY)
    np.testing.assert_array_equal(info.responsibilities, np.full((4, 3), np.float32(1 / 3)))


def test_components_start_apart(finite, batches):
    weights = finite.init(KEY, batches[0]).params[0].weight
    assert len(np.unique(weights)) == weights.size


@pytest.fixture(scope="module")
def sampled(finite):
    return dataclasses.replace(finite, sampled=True)


def first_gradient(after):
    """Adam keeps a tenth of the first gradient."""
    return jax.tree.map(lambda mu: 10 * mu, after.optimiser[0].mu)


def gradient_at_fixed_shares(learner, state, batch, shares):
    """Of (1/J) sum_j sum_l gamma_jl loss_jl, gamma given."""

    def surrogate(params):
        found = assessments(learner.task_model, params, batch, state.alive)
        return jnp.mean(jnp.sum(shares * found.loss, axis=1))

    return jax.jit(jax.grad(surrogate))(state.params)


def test_detached_step_takes_the_responsibilities_of_the_joint_one_as_given(
    finite, three_finite, batches
):
    detached = dataclasses.replace(finite, detached=True)
    joint, expected = jax.jit(finite.step)(three_finite, batches[0], KEY)
    after, info = jax.jit(detached.step)(three_finite, batches[0], KEY)
    chex.assert_trees_all_close(info, expected, rtol=1e-5)
    gradient = gradient_at_fixed_shares(finite, three_finite, batches[0], expected.responsibilities)
    chex.assert_trees_all_close(first_gradient(after), gradient, rtol=1e-3, atol=1e-6)
    with pytest.raises(AssertionError):
        chex.assert_trees_all_close(first_gradient(joint), gradient, rtol=1e-3, atol=1e-6)


def test_component_that_diverged_spoils_no_detached_step(finite, three_finite, batches):
    params = jax.tree.map(lambda leaf: leaf.at[1].set(jnp.nan), three_finite.params)
    state = dataclasses.replace(three_finite, params=params)
    after, info = jax.jit(dataclasses.replace(finite, detached=True).step)(state, batches[0], KEY)
    assert not info.responsibilities[:, 1].any()
    for leaf in jax.tree.leaves(first_gradient(after)):
        assert not leaf[1].any()
        assert jnp.isfinite(leaf).all()


def test_mean_sampled_step_is_that_of_the_detached_surrogate(sampled, three_finite, batches):
    keys = jax.random.split(KEY, 2000)
    after, infos = jax.jit(jax.vmap(lambda key: sampled.step(three_finite, batches[0], key)))(keys)
    gradients = first_gradient(after)
    expected = gradient_at_fixed_shares(
        sampled, three_finite, batches[0], infos.responsibilities[0]
    )
    for found, exact in zip(jax.tree.leaves(gradients), jax.tree.leaves(expected), strict=True):
        bound = 5 * np.std(found, axis=0) / np.sqrt(len(keys)) + 1e-4
        assert (np.abs(np.mean(found, axis=0) - exact) < bound).all()


def test_sampling_leaves_the_responsibilities_as_they_are(finite, sampled, three_finite, batches):
    _, expected = jax.jit(finite.step)(three_finite, batches[0], KEY)
    _, found = jax.jit(sampled.step)(three_finite, batches[0], KEY)
    chex.assert_trees_all_close(found.responsibilities, expected.responsibilities, rtol=1e-5)


def test_loss_and_error_of_a_sampled_step_are_those_of_the_components_drawn(
    sampled, three_finite, batches
):
    """A component that alone explains the tasks is drawn for sure."""
    params = jax.tree.map(
        lambda leaf: leaf.at[1:].add(jnp.full(leaf[1:].shape, 30.0)), three_finite.params
    )
    state = dataclasses.replace(three_finite, params=params)
    _, info = jax.jit(sampled.step)(state, batches[0], KEY)
    first = jax.tree.map(lambda leaf: leaf[0], params)
    own = sampled.task_model
    parts = (own.model, own.likelihood, own.adaptation, first, batches[0])
    _, alone = jax.jit(lambda: meta_gradient(*parts))()
    np.testing.assert_allclose(info.loss, np.mean(alone.loss), rtol=1e-5)
    np.testing.assert_allclose(info.error, alone.loss, rtol=1e-5)


def test_sampled_mixture_of_one_is_the_dense_one_bit_for_bit(finite, sampled, batches):
    one, other = (dataclasses.replace(learner, components=1) for learner in (finite, sampled))
    state = one.init(KEY, batches[0])
    chex.assert_trees_all_equal(
        jax.jit(other.step)(state, batches[0], KEY), jax.jit(one.step)(state, batches[0], KEY)
    )


def test_component_without_a_task_gets_no_gradient_when_sampled(sampled, three_finite, batches):
    """One that predicts nonsense has no responsibility for any task."""
    params = jax.tree.map(lambda leaf: leaf.at[1].add(30.0), three_finite.params)
    state = dataclasses.replace(three_finite, params=params)
    after, info = jax.jit(sampled.step)(state, batches[0], KEY)
    assert not info.responsibilities[:, 1].any()
    for leaf in jax.tree.leaves(first_gradient(after)):
        assert not leaf[1].any()
    chex.assert_trees_all_equal(
        *(jax.tree.map(lambda leaf: leaf[1], tree.params) for tree in (after, state))
    )


@pytest.fixture(scope="module")
def parting(finite):
    return dataclasses.replace(finite, together=2, parting_noise=0.5)


def test_components_part_after_their_time_together(parting, batches):
    step = jax.jit(parting.step)
    state = parting.init(KEY, batches[0])
    counts = []
    for batch in batches[:4]:
        state, info = step(state, batch, KEY)
        counts.append(int(info.clusters))
        alone = int(info.clusters) == 1
        assert (info.responsibilities[:, 1:] == 0).all() == alone
        np.testing.assert_allclose(info.responsibilities.sum(axis=1), 1, rtol=1e-5)
    assert counts == [1, 1, 3, 3]
    assert len(np.unique(state.params[0].weight)) == state.params[0].weight.size


def test_first_component_parts_from_noisy_copies_of_itself(parting, three_finite):
    parted = parting._parted(three_finite, KEY)
    assert parted.alive.all()
    for before, after in zip(
        jax.tree.leaves(three_finite.optimiser), jax.tree.leaves(parted.optimiser), strict=True
    ):
        np.testing.assert_array_equal(after, np.broadcast_to(before[:1], before.shape))
    before, after = three_finite.params[0].weight, parted.params[0].weight
    np.testing.assert_array_equal(after[0], before[0])
    size = np.sqrt(np.mean(np.square(before[0])))
    noise = (after[1:] - before[:1]) / size
    assert 0.2 < np.std(noise) < 0.8


def test_step_that_parts_is_the_step_after_parting(finite, parting, batches):
    alone = jax.jit(parting.step)
    state = parting.init(KEY, batches[0])
    for batch in batches[:2]:
        state, _ = alone(state, batch, KEY)
    noise_key, key = jax.random.split(KEY)
    expected = jax.jit(finite.step)(parting._parted(state, noise_key), batches[2], key)
    chex.assert_trees_all_close(alone(state, batches[2], KEY), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "wrong", [{"together": -1}, {"parting_noise": 0.0}, {"parting_noise": math.inf}]
)
def test_parting_that_cannot_be_is_refused(finite, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        dataclasses.replace(finite, **wrong)


@pytest.mark.parametrize("settings", [{}, {"detached": True}, {"sampled": True}])
def test_error_of_a_step_is_that_of_a_prediction_with_any_task_model(batches, settings):
    learner = FiniteMixture(BayesianHead(), meta_clip=1.0, components=2, **settings)
    state = learner.init(KEY, batches[0])
    _, info = jax.jit(learner.step)(state, batches[0], KEY)
    one = jax.tree.map(lambda leaf: leaf[1], batches[0])
    prediction = jax.jit(learner.predict)(state, one.support, one.query.x)
    error = np.square(prediction.mean - one.query.y).mean()
    np.testing.assert_allclose(info.error[1], error, rtol=1e-3)
    assert (prediction.variance > prediction.noise).all()


def test_responsibilities_of_a_bayesian_head_are_its_exact_posterior(batches):
    learner = FiniteMixture(BayesianHead(), components=2)
    state = learner.init(KEY, batches[0])
    _, info = jax.jit(learner.step)(state, batches[0], KEY)
    each = [
        jax.jit(jax.vmap(learner.task_model.evidence, (None, 0)))(
            jax.tree.map(lambda leaf, c=c: leaf[c], state.params), batches[0].support
        )
        for c in range(2)
    ]
    np.testing.assert_allclose(
        info.responsibilities[:, 1], 1 / (1 + np.exp(each[0] - each[1])), rtol=1e-3
    )


def test_gradient_components_say_that_their_variance_is_unknown(finite, three_finite, batches):
    one = jax.tree.map(lambda leaf: leaf[0], batches[0])
    prediction = finite.predict(three_finite, one.support, one.query.x)
    assert prediction.variance is None
    assert prediction.noise is None
    assert prediction.novelty is None
