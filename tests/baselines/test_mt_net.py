"""MT-nets against explicit transforms, masks by their definition, and MAML as a special case."""

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.adaptation import Adaptation
from taskmix.baselines import MAML, MTNet
from taskmix.baselines.mt_net import MTNetParams, Transformed, draw_masks
from taskmix.likelihood import Categorical
from taskmix.models import MLP, Conv4
from taskmix.models.convolution import convolve
from taskmix.models.pooling import max_pool
from taskmix.tasks import Examples, TaskBatch

KEY = jax.random.key(0)
MODEL = MLP(hidden=(6,), init_scale=0.5)
ADAPTATION = Adaptation(steps=2, rate=0.05)
LEARNER = MTNet(MODEL, adaptation=ADAPTATION)


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


@pytest.mark.parametrize(("masked", "count"), [(True, 37_027), (False, 36_894)])
def test_network_for_small_images_learns_so_many_numbers(masked, count, batch):
    # 32,773 of the network, 4 * 32^2 + 5^2 of the transforms and 4 * 32 + 5 of the masks.
    learner = MTNet(Conv4(), Categorical(), masked=masked)
    state = jax.eval_shape(lambda key: learner.init(key, batch), KEY)
    assert learner.parameters(state) == count


def random_like(tree, key):
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    drawn = [jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, drawn)


def test_transform_is_between_a_layer_and_its_rectifier():
    network = Transformed(MODEL, masked=False)
    params = random_like(network.init(KEY), KEY)
    x = jax.random.normal(KEY, (5, 1))
    first, last = params.network
    hidden = np.maximum((x @ first.weight + first.bias) @ params.transforms[0], 0)
    expected = (hidden @ last.weight + last.bias) @ params.transforms[1]
    np.testing.assert_allclose(network.apply(params, x), expected, rtol=1e-4, atol=1e-4)


def test_transform_is_between_a_convolution_with_its_bias_and_the_normalisation():
    network = Transformed(Conv4(channels=1, size=16, filters=3, outputs=2), masked=False)

    @jax.jit
    def both(x):
        params = random_like(network.init(KEY), KEY)
        maps = x
        for block, transform in zip(params.network.blocks, params.transforms[:-1], strict=True):
            maps = (convolve(maps, block.kernel) + block.bias) @ transform
            spread = jnp.sqrt(jnp.var(maps, axis=(0, 1, 2)) + 1e-3)
            maps = (maps - jnp.mean(maps, axis=(0, 1, 2))) / spread + block.shift
            maps = max_pool(jax.nn.relu(maps))
        head = params.network.head
        outputs = (maps.reshape(len(x), -1) @ head.weight + head.bias) @ params.transforms[-1]
        return network.apply(params, x), outputs

    found, expected = both(jax.random.normal(KEY, (4, 16, 16, 1)))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_masks_are_zeros_and_ones_as_often_as_the_logit_says():
    logits = (jnp.full(20_000, 1.0), jnp.full(20_000, -2.0))
    for mask, logit in zip(draw_masks(logits, KEY), (1.0, -2.0), strict=True):
        assert set(np.unique(mask)) == {0.0, 1.0}
        # Three standard deviations of the mean of so many draws are at most 0.011.
        np.testing.assert_allclose(mask.mean(), 1 / (1 + np.exp(-logit)), atol=0.011)


def test_derivative_of_a_mask_is_that_of_its_soft_version():
    logits = (jnp.linspace(-3, 3, 7),)
    slope = jax.grad(lambda logits: draw_masks(logits, KEY)[0].sum())(logits)[0]
    # The mask turns at the logit where s = 1/2: bisect for it to know the noise.
    low, high = jnp.full(7, -30.0), jnp.full(7, 30.0)
    for _ in range(40):
        middle = (low + high) / 2
        on = draw_masks((middle,), KEY)[0] > 0.5
        low, high = jnp.where(on, low, middle), jnp.where(on, middle, high)
    soft = 1 / (1 + np.exp(np.asarray(high, np.float64) - np.asarray(logits[0])))
    np.testing.assert_allclose(slope, soft * (1 - soft), rtol=1e-3)


def test_masked_units_stay_bit_for_bit_in_all_inner_steps_and_the_others_move(state, batch):
    support = jax.tree.map(lambda leaf: leaf[0], batch.support)
    adapted = jax.jit(LEARNER._adapt_masked)(state.params, support, KEY)
    masks = draw_masks(state.params.logits, KEY)
    assert 0 < sum(mask.sum() for mask in masks) < 7
    for before, after, mask in zip(state.params.network, adapted, masks, strict=True):
        on = np.asarray(mask) > 0
        np.testing.assert_array_equal(after.weight[:, ~on], before.weight[:, ~on])
        np.testing.assert_array_equal(after.bias[~on], before.bias[~on])
        assert (after.bias[on] != before.bias[on]).all()


def test_each_task_of_a_step_has_a_mask_of_its_own_and_the_loss_is_under_it(step, state, batch):
    _, info = step(state, batch, KEY)
    losses = []
    for task, key in enumerate(jax.random.split(KEY, 3)):
        support, query = jax.tree.map(lambda leaf, t=task: leaf[t], (batch.support, batch.query))
        adapted = LEARNER._adapt_masked(state.params, support, key)
        losses.append(np.square(MODEL.apply(adapted, query.x) - query.y).mean())
    np.testing.assert_allclose(info.loss, np.mean(losses), rtol=1e-4)


def test_error_of_a_step_is_that_of_a_prediction(step, state, batch):
    _, info = step(state, batch, KEY)
    one = jax.tree.map(lambda leaf: leaf[0], batch)
    predicted = LEARNER.predict(state, one.support, one.query.x).mean
    np.testing.assert_allclose(info.error[0], np.square(predicted - one.query.y).mean(), rtol=1e-4)


def test_step_learns_transforms_and_masks_too(step, state, batch):
    after, _ = step(state, batch, KEY)
    for old, new in zip(jax.tree.leaves(state.params), jax.tree.leaves(after.params), strict=True):
        assert (old != new).any()


def test_identity_transforms_and_masks_that_are_on_make_it_maml(step, state, batch):
    maml = MAML(MODEL, adaptation=ADAPTATION)
    maml_state, maml_step = maml.init(KEY, batch), jax.jit(maml.step)
    identity = tuple(jnp.eye(n) for n in (6, 1))
    on = (jnp.full(6, 50.0), jnp.full(1, 50.0))
    for _ in range(3):
        params = MTNetParams(state.params.network, identity, on)
        state = eqx.tree_at(lambda s: s.params, state, params)
        state, info = step(state, batch, KEY)
        maml_state, maml_info = maml_step(maml_state, batch, KEY)
        chex.assert_trees_all_close(info, maml_info, rtol=1e-4)
    chex.assert_trees_all_close(state.params.network, maml_state.params, rtol=1e-4, atol=1e-6)


def test_prediction_is_the_mean_over_masks_from_a_fixed_key(state, batch):
    one = jax.tree.map(lambda leaf: leaf[0], batch)
    adapt = jax.jit(LEARNER._adapt_masked)
    each = [
        LEARNER.model.apply(adapt(state.params, one.support, key), one.query.x)
        for key in jax.random.split(jax.random.key(0), LEARNER.samples)
    ]
    found = LEARNER.predict(state, one.support, one.query.x)
    np.testing.assert_allclose(found.mean, np.mean(each, axis=0), rtol=1e-4, atol=1e-5)
    assert np.std(each, axis=0).max() > 1e-4
