"""VERSA against weights that are drawn one by one, and by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.baselines import Versa
from taskmix.baselines.versa import Layer
from taskmix.likelihood import Categorical, Gaussian
from taskmix.models import MLP, Conv4, ResNet12, repeated
from taskmix.tasks import Examples, TaskBatch

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
DRAWS = 20_000
REGRESSION = Versa(model=MLP(2, (5, 4), 2), likelihood=Gaussian(0.5), hidden=6)
CLASSES = Versa(model=MLP(2, (5, 4), 3), likelihood=Categorical(), hidden=6, samples=7)
LABELS = jnp.array([[2, 0, 1, 1, 0, 2]])


def batch_of(y_support, y_query):
    x = jnp.asarray(RNG.normal(size=(1, 10, 2)), jnp.float32)
    return TaskBatch(Examples.full(x[:, :6], y_support), Examples.full(x[:, 6:], y_query))


REAL = batch_of(*(jnp.asarray(RNG.normal(size=(1, n, 2)), jnp.float32) for n in (6, 4)))
LABELLED = batch_of(LABELS, jnp.array([[0, 1, 2, 0]]))


def first(batch):
    return jax.tree.map(lambda leaf: leaf[0], (batch.support, batch.query))


@dataclasses.dataclass(frozen=True)
class Case:
    """A learner, its state, and the distribution of the last layer of one task."""

    learner: Versa
    state: object
    batch: TaskBatch

    def inferred(self, support):
        return jax.jit(self.learner.infer)(self.state.params, support)

    def drawn_outputs(self):
        """Outputs of the queries by layers drawn weight by weight."""
        support, query = first(self.batch)
        layer = self.inferred(support)
        features = np.asarray(self.learner.features(self.state.params, query.x, None))
        assert features.any()

        def draw(mean, variance):
            return mean + np.sqrt(variance) * RNG.normal(size=(DRAWS, *mean.shape))

        weight = draw(np.asarray(layer.weight_mean), np.asarray(layer.weight_variance))
        bias = draw(np.asarray(layer.bias_mean), np.asarray(layer.bias_variance))
        return np.einsum("qf,sof->sqo", features, weight) + bias[:, :, 0][:, None]


@pytest.fixture(scope="module")
def regression():
    return Case(REGRESSION, jax.jit(REGRESSION.init)(KEY, REAL), REAL)


@pytest.fixture(scope="module")
def classes():
    return Case(CLASSES, jax.jit(CLASSES.init)(KEY, LABELLED), LABELLED)


def softmax(x):
    return np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)


def slow_network(network, x):
    for layer in network[:-1]:
        x = x @ np.asarray(layer.weight) + np.asarray(layer.bias)
        x = np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1)
    return x @ np.asarray(network[-1].weight) + np.asarray(network[-1].bias)


def slow_features(params, x):
    x = np.asarray(x)
    for layer in params.features:
        x = np.maximum(x @ np.asarray(layer.weight) + np.asarray(layer.bias), 0)
    return x


def assert_inferred_from(pooled, params, layer):
    np.testing.assert_allclose(
        layer.weight_mean, slow_network(params.weight_mean, pooled), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(
        np.log(layer.weight_variance),
        slow_network(params.weight_log_variance, pooled),
        rtol=1e-4,
        atol=1e-6,
    )
    np.testing.assert_allclose(
        layer.bias_mean, slow_network(params.bias_mean, pooled), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(
        np.log(layer.bias_variance),
        slow_network(params.bias_log_variance, pooled),
        rtol=1e-4,
        atol=1e-6,
    )


def test_outputs_of_a_layer_by_hand():
    one = jnp.ones((1, 1))
    layer = Layer(2 * one, one, one, 0.5 * one, jnp.array([True]))
    mean, variance = layer.outputs(3 * one)
    assert mean.item() == 7
    assert variance.item() == 9.5


def test_layer_of_classes_is_inferred_from_the_mean_features_of_each(classes):
    support, _ = first(classes.batch)
    features, labels = slow_features(classes.state.params, support.x), np.asarray(support.y)
    pooled = np.stack([features[labels == k].mean(axis=0) for k in range(3)])
    assert_inferred_from(pooled, classes.state.params, classes.inferred(support))


def test_layer_of_regression_is_inferred_from_the_mean_of_embedded_pairs(regression):
    support, _ = first(regression.batch)
    params = regression.state.params
    features = slow_features(params, support.x)
    pooled = np.stack(
        [
            np.mean(
                [
                    slow_network(params.pairs, np.append(h, y))
                    for h, y in zip(features, np.asarray(support.y)[:, output], strict=True)
                ],
                axis=0,
            )
            for output in range(2)
        ]
    )
    assert_inferred_from(pooled, params, regression.inferred(support))


def test_class_is_inferred_from_its_own_examples_only(classes):
    support, _ = first(classes.batch)
    moved = dataclasses.replace(support, x=support.x.at[:1].add(1.0))
    before, after = classes.inferred(support), classes.inferred(moved)
    np.testing.assert_array_equal(before.weight_mean[:2], after.weight_mean[:2])
    assert (before.weight_mean[2] != after.weight_mean[2]).all()


def test_relabelling_classes_permutes_the_layer(classes):
    support, _ = first(classes.batch)
    new = jnp.array([1, 2, 0])
    found = classes.inferred(dataclasses.replace(support, y=new[support.y]))
    expected = classes.inferred(support)
    for field in ("weight_mean", "weight_variance", "bias_mean", "bias_variance"):
        one, another = getattr(found, field)[new], getattr(expected, field)
        np.testing.assert_allclose(one, another, rtol=1e-5)


def test_regression_is_predicted_as_by_layers_drawn_weight_by_weight(regression):
    support, query = first(regression.batch)
    prediction = jax.jit(REGRESSION.predict)(regression.state, support, query.x)
    outputs = regression.drawn_outputs()
    spread = np.sqrt(outputs.var(axis=0) / DRAWS)
    assert (np.abs(prediction.mean - outputs.mean(axis=0)) < 5 * spread).all()
    np.testing.assert_allclose(prediction.variance, outputs.var(axis=0) + 0.5, rtol=0.06)


def test_classes_are_predicted_as_by_layers_drawn_weight_by_weight(classes, monkeypatch):
    monkeypatch.setattr(repeated, "MOST", DRAWS)
    support, query = first(classes.batch)
    many = dataclasses.replace(CLASSES, samples=DRAWS)
    prediction = jax.jit(many.predict)(classes.state, support, query.x)
    probabilities = softmax(classes.drawn_outputs())
    spread = np.sqrt(2 * probabilities.var(axis=0) / DRAWS)
    assert (np.abs(prediction.mean - probabilities.mean(axis=0)) < 5 * spread).all()
    np.testing.assert_allclose(prediction.variance, probabilities.var(axis=0), rtol=0.1)


def test_loss_of_classes_is_that_of_the_averaged_probability(classes):
    support, query = first(classes.batch)
    _, info = jax.jit(CLASSES.step)(classes.state, classes.batch, KEY)
    layer = classes.inferred(support)
    mean, variance = layer.outputs(CLASSES.features(classes.state.params, query.x, None))
    noise = np.asarray(jax.random.normal(jax.random.split(KEY, 1)[0], (7, 4, 3)))
    average = softmax(np.asarray(mean) + np.sqrt(variance) * noise).mean(axis=0)
    expected = -np.log(average[np.arange(4), np.asarray(query.y)]).mean()
    np.testing.assert_allclose(info.loss, expected, rtol=1e-4)
    predicted = jax.jit(CLASSES.predict)(classes.state, support, query.x).mean
    wrong = np.argmax(predicted, axis=-1) != query.y
    np.testing.assert_allclose(info.error[0], np.mean(wrong), rtol=1e-6)


def test_loss_of_regression_is_that_of_its_prediction(regression):
    support, query = first(regression.batch)
    _, info = jax.jit(REGRESSION.step)(regression.state, regression.batch, KEY)
    prediction = jax.jit(REGRESSION.predict)(regression.state, support, query.x)
    mean, variance = np.asarray(prediction.mean), np.asarray(prediction.variance)
    each = np.square(np.asarray(query.y) - mean) / variance + np.log(variance)
    np.testing.assert_allclose(info.loss, 0.5 * each.sum(axis=1).mean(), rtol=1e-4)


def test_class_without_an_example_is_improbable(classes):
    support, query = first(classes.batch)
    without = dataclasses.replace(support, mask=support.y != 1)
    predicted = jax.jit(CLASSES.predict)(classes.state, without, query.x).mean
    assert (predicted[:, 1] < 1e-12).all()
    np.testing.assert_allclose(predicted.sum(axis=1), 1, rtol=1e-5)


def parameters(learner):
    x, y = jnp.zeros((1, 1, 84, 84, 3)), jnp.zeros((1, 1), dtype=int)
    example = TaskBatch(*[Examples.full(x, y, input_axes=3)] * 2)
    return learner.parameters(jax.eval_shape(learner.init, KEY, example))


def test_network_of_the_papers_code_has_807938_parameters():
    learner = Versa(model=Conv4(), likelihood=Categorical(), blocks=5, width=64)
    assert parameters(learner) == 807_938


def test_network_that_compares_has_the_convolutions_of_conv4():
    """Features of 800 numbers; the networks that infer have 256 hidden units."""
    convolutions = 3 * 9 * 32 + 3 * 9 * 32 * 32 + 4 * 32
    hidden = 800 * 256 + 256 + 256 * 256 + 256
    expected = convolutions + 4 * hidden + 2 * (256 * 800 + 800) + 2 * 257
    assert parameters(Versa(model=Conv4(), likelihood=Categorical())) == expected


@pytest.mark.parametrize(("field", "value"), [("meta_rate", 0.0), ("samples", 0), ("hidden", 0)])
def test_bad_hyperparameter_is_refused_by_name_and_value(field, value):
    with pytest.raises(ValueError, match=rf"^{field} is {value};"):
        Versa(**{field: value})


@pytest.mark.parametrize("model", [ResNet12(), MLP(hidden=())])
def test_network_without_features_is_refused(model):
    with pytest.raises(ValueError, match=r"^model is "):
        Versa(model=model, likelihood=Categorical())
