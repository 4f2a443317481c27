"""MMAML: modulated networks against explicit ones, the embedding, and MAML as its beginning."""

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.adaptation import Adaptation
from taskmix.baselines import MAML, MMAML
from taskmix.baselines.maml import MAMLState
from taskmix.baselines.mmaml import Modulated, ModulatedParams, describe, effective
from taskmix.models import MLP, Conv4, ResNet12
from taskmix.models.convolution import convolve
from taskmix.models.pooling import max_pool
from taskmix.tasks import Examples, TaskBatch

KEY = jax.random.key(0)
MODEL = MLP(hidden=(6,), init_scale=0.5)
ADAPTATION = Adaptation(steps=2, rate=0.05)
LEARNER = MMAML(MODEL, adaptation=ADAPTATION, embedding=4)


@pytest.fixture(scope="module")
def batch():
    x = jax.random.normal(KEY, (3, 8, 1))
    y = jnp.array([1.0, -2.0, 3.0])[:, None, None] * x + 0.5
    return TaskBatch(Examples.full(x[:, :4], y[:, :4]), Examples.full(x[:, 4:], y[:, 4:]))


@pytest.fixture(scope="module")
def step():
    return jax.jit(LEARNER.step)


@pytest.fixture(scope="module")
def state(batch):
    return LEARNER.init(KEY, batch)


@pytest.fixture(scope="module")
def modulating(state):
    """A state whose generator no longer ends in zeros."""
    last = jax.tree.map(lambda leaf: leaf + 0.3, state.params.generator[-1])
    return eqx.tree_at(lambda s: s.params.generator[-1], state, last)


def random_like(tree, key):
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    drawn = [jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, drawn)


def test_hidden_units_are_shifted_rectified_and_scaled_and_outputs_scaled_and_shifted():
    network = Modulated(MODEL)
    params = random_like(network.init(KEY), KEY)
    x = jax.random.normal(KEY, (5, 1))
    (first, last), (one, two) = params.network, params.modulations
    hidden = np.maximum(x @ first.weight + first.bias + one.shift, 0) * one.scale
    expected = (hidden @ last.weight + last.bias) * two.scale + two.shift
    np.testing.assert_allclose(network.apply(params, x), expected, rtol=1e-4, atol=1e-4)


def test_maps_are_modulated_where_normalisation_does_not_cancel_it():
    network = Modulated(Conv4(channels=1, size=32, filters=3, outputs=2))

    @jax.jit
    def both(x):
        params = random_like(network.init(KEY), KEY)
        maps = x
        for block, own in zip(params.network.blocks, params.modulations[:-1], strict=True):
            maps = convolve(maps, block.kernel)
            spread = jnp.sqrt(jnp.var(maps, axis=(0, 1, 2)) + 1e-3)
            maps = (maps - jnp.mean(maps, axis=(0, 1, 2))) / spread + block.shift
            maps = max_pool(jax.nn.relu(maps + own.shift)) * own.scale
        head, last = params.network.head, params.modulations[-1]
        outputs = maps.reshape(len(x), -1) @ head.weight + head.bias
        return network.apply(params, x), outputs * last.scale + last.shift

    found, expected = both(jax.random.normal(KEY, (4, 32, 32, 1)))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_scale_and_shift_of_a_residual_unit_are_its_own():
    network = Modulated(ResNet12(channels=1, size=16, outputs=2, widths=(2, 2)))
    params = random_like(network.init(KEY), KEY)
    unit, own = params.network.blocks[0].units[0], params.modulations[0]
    found = effective(params).blocks[0].units[0]
    np.testing.assert_array_equal(found.kernel, unit.kernel)
    np.testing.assert_array_equal(found.scale, unit.scale * own.scale)
    np.testing.assert_array_equal(found.shift, unit.shift + own.shift)


def test_layer_of_an_unknown_kind_is_refused():
    class Other(eqx.Module):
        weight: jax.Array

    modulations = Modulated(MLP(hidden=())).init(KEY).modulations
    with pytest.raises(ValueError, match="layer 1 is a Other; only those of MLP, Conv4"):
        effective(ModulatedParams((Other(jnp.ones((1, 1))),), modulations))


def test_only_the_network_is_adapted_and_the_modulation_stays(batch):
    network = Modulated(MODEL)
    flags = network.adaptable(network.init(KEY))
    assert all(jax.tree.leaves(flags.network))
    assert not any(jax.tree.leaves(flags.modulations))


def test_order_of_the_support_set_does_not_matter_and_its_targets_do(modulating, batch):
    modulations = jax.jit(LEARNER._modulations)
    support = jax.tree.map(lambda leaf: leaf[0], batch.support)
    expected = modulations(modulating.params, support)
    turned = jax.tree.map(lambda leaf: leaf[::-1], support)
    chex.assert_trees_all_close(modulations(modulating.params, turned), expected, rtol=1e-5)
    other = modulations(modulating.params, Examples.full(support.x, -support.y))
    assert not np.allclose(other[0].scale, expected[0].scale, rtol=1e-3)


def test_image_is_described_by_mean_and_deviation_of_its_cells():
    # The cells are of 2x2 pixels; the last row and column belong to none.
    x = jnp.zeros((1, 9, 9, 1)).at[0, :2, :2, 0].set(jnp.array([[1.0, 3.0], [3.0, 1.0]]))
    described = describe(Examples.full(x.at[0, 8].set(7.0), jnp.zeros(1, int), input_axes=3))
    assert described.shape == (1, 32)
    np.testing.assert_allclose(described[0, :2], [2.0, 1.0])
    assert not described[0, 2:].any()


def test_step_learns_encoder_generator_and_network(step, modulating, batch):
    after, _ = step(modulating, batch, KEY)
    for old, new in zip(
        jax.tree.leaves(modulating.params), jax.tree.leaves(after.params), strict=True
    ):
        assert (old != new).any()


def test_without_modulation_it_is_maml(step, state, batch):
    maml = MAML(MODEL, adaptation=ADAPTATION)
    maml_step, params = jax.jit(maml.step), state.params.network
    maml_state = MAMLState(params, maml._begin(params))
    silent = state.params.generator
    for _ in range(3):
        state, info = step(state, batch, KEY)
        maml_state, maml_info = maml_step(maml_state, batch, KEY)
        chex.assert_trees_all_close(info, maml_info, rtol=1e-4)
        # Learning begins without a modulation; it is held there.
        state = eqx.tree_at(lambda s: s.params.generator, state, silent)
    chex.assert_trees_all_close(state.params.network, maml_state.params, rtol=1e-4, atol=1e-6)
