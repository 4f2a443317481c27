"""What comparing learners share: statistics of a batch in training, running ones otherwise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.baselines import Matching, Prototypical
from taskmix.likelihood import Gaussian
from taskmix.models import MLP, Conv4, ResNet12
from taskmix.tasks import Examples, TaskBatch

MODEL = Conv4(channels=1, size=16, filters=2, outputs=2)
LEARNER = Prototypical(model=MODEL, memory=0.75)
KEY = jax.random.key(0)


def examples(seed, labels):
    x = jax.random.uniform(jax.random.key(seed), (2, len(labels), 16, 16, 1))
    return Examples.full(x, jnp.tile(jnp.array(labels), (2, 1)), input_axes=3)


@pytest.fixture(scope="module")
def batch():
    return TaskBatch(examples(1, [0, 1, 0, 1]), examples(2, [1, 0, 1]))


@pytest.fixture(scope="module")
def state(batch):
    return jax.jit(LEARNER.init)(KEY, batch)


@pytest.fixture(scope="module")
def stepped(state, batch):
    return jax.jit(LEARNER.step)(state, batch, KEY)


@pytest.fixture(scope="module")
def predict():
    return jax.jit(LEARNER.predict)


def task(batch, number):
    return jax.tree.map(lambda leaf: leaf[number], (batch.support, batch.query))


def test_running_statistics_move_to_those_of_all_images_of_the_batch(state, stepped, batch):
    x = jnp.concatenate([batch.support.x, batch.query.x], axis=1).reshape(-1, 16, 16, 1)
    _, seen = jax.jit(LEARNER.encoder.apply)(state.params.encoder, x)
    expected = jax.tree.map(lambda old, new: 0.75 * old + 0.25 * new, state.statistics, seen)
    found = stepped[0].statistics
    for one, another in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, another, rtol=1e-4, atol=1e-6)


def test_error_of_a_step_is_that_of_the_prediction_before_it(state, stepped, predict, batch):
    for number in range(2):
        support, query = task(batch, number)
        predicted = predict(state, support, query.x).mean
        wrong = np.argmax(predicted, axis=-1) != query.y
        np.testing.assert_allclose(stepped[1].error[number], np.mean(wrong), rtol=1e-6)


def test_prediction_of_a_query_does_not_depend_on_the_others(stepped, predict, batch):
    support, query = task(batch, 0)
    expected = predict(stepped[0], support, query.x).mean
    others = query.x.at[1:].set(0.5)
    np.testing.assert_allclose(predict(stepped[0], support, others).mean[0], expected[0], rtol=1e-5)


def test_step_learns_kernels_scales_and_shifts(state, stepped):
    before, after = state.params.encoder, stepped[0].params.encoder
    for old, new in zip(before, after, strict=True):
        assert (old.kernel != new.kernel).any()
        assert (old.scale != new.scale).any()
        assert (old.shift != new.shift).any()


def test_statistics_are_not_counted_as_parameters(state):
    # Four blocks of two filters: a kernel, a bias, a scale and a shift each.
    assert LEARNER.parameters(state) == 9 * 2 + 3 * 9 * 2 * 2 + 4 * 3 * 2


@pytest.mark.parametrize("build", [Prototypical, Matching])
def test_targets_that_are_not_classes_are_refused(build):
    with pytest.raises(ValueError, match=r"^likelihood is Gaussian.*must be Categorical"):
        build(likelihood=Gaussian())


@pytest.mark.parametrize("model", [MLP(), ResNet12()])
def test_other_networks_than_conv4_are_refused(model):
    with pytest.raises(ValueError, match=r"^model is .*must be a Conv4"):
        Prototypical(model=model)


@pytest.mark.parametrize(
    ("build", "field", "value"),
    [
        (Prototypical, "meta_rate", 0.0),
        (Prototypical, "memory", 1.0),
        (Prototypical, "memory", -0.1),
        (Prototypical, "halve_every", 0),
        (Matching, "scale", 0.0),
        (Matching, "reads", 0),
    ],
)
def test_bad_hyperparameter_is_refused_by_name_and_value(build, field, value):
    with pytest.raises(ValueError, match=rf"^{field} is {value};"):
        build(**{field: value})
