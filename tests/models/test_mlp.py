import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.mixture import FiniteMixture
from taskmix.models import MLP, parameter_count
from taskmix.streams import paper_stream

KEY = jax.random.key(0)


def test_network_of_the_paper_has_1761_parameters():
    assert parameter_count(MLP()) == 1761


def test_mixture_of_three_has_three_times_as_many():
    batch = jax.eval_shape(lambda: paper_stream().batch(KEY, 0))
    state = jax.eval_shape(lambda: FiniteMixture(components=3).init(KEY, batch))
    assert sum(leaf.size for leaf in jax.tree.leaves(state.params)) == 5283


def test_output_is_that_of_affine_maps_with_rectifiers_between():
    model = MLP(inputs=2, hidden=(3, 4), outputs=2)
    params = jax.tree.map(lambda leaf: leaf + 0.1, model.init(KEY))
    x = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    first, second, last = params
    hidden = np.maximum(x @ first.weight + first.bias, 0)
    hidden = np.maximum(hidden @ second.weight + second.bias, 0)
    np.testing.assert_allclose(
        model.apply(params, jnp.asarray(x)), hidden @ last.weight + last.bias, rtol=1e-5
    )


def test_weights_start_with_the_scale_asked_for_and_biases_at_zero():
    layers = MLP(hidden=(200, 200), init_scale=0.3).init(KEY)
    assert not any(layer.bias.any() for layer in layers)
    np.testing.assert_allclose(np.std(layers[1].weight), 0.3, rtol=0.02)


def test_output_with_tanh_is_that_of_affine_maps_each_followed_by_it():
    model = MLP(inputs=2, hidden=(3, 4), outputs=2, activation="tanh", input_scale=2.5)
    params = jax.tree.map(lambda leaf: leaf + 0.1, model.init(KEY))
    x = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    expected = x / 2.5
    for layer in params:
        expected = np.tanh(expected @ np.asarray(layer.weight) + np.asarray(layer.bias))
    np.testing.assert_allclose(model.apply(params, jnp.asarray(x)), expected, rtol=1e-5, atol=1e-6)


def test_without_a_scale_weights_start_by_the_inputs_of_their_layer_and_first_biases_spread():
    layers = MLP(hidden=(400, 200), init_scale=0.0).init(KEY)
    np.testing.assert_allclose(np.std(layers[0].weight), 2**0.5, rtol=0.1)
    np.testing.assert_allclose(np.std(layers[1].weight), (2 / 400) ** 0.5, rtol=0.02)
    np.testing.assert_allclose(np.std(layers[0].bias), 1, rtol=0.1)
    assert not any(layer.bias.any() for layer in layers[1:])


@pytest.mark.parametrize("sizes", [{"inputs": 0}, {"hidden": (40, 0)}, {"outputs": -1}])
def test_size_below_one_is_refused(sizes):
    with pytest.raises(ValueError, match="all must be at least 1"):
        MLP(**sizes)
