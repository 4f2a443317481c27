"""The warm-up: what it changes of a first state, and what it leaves alone."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.experiments import FewShot
from taskmix.experiments import warm_up as module
from taskmix.experiments.variants import variant

EXPERIMENT = FewShot(size=16, width=4, tasks=2, query=1, warm_up=1)


@pytest.fixture(scope="module")
def warm():
    """First states of a mixture of two, before and after a short warm-up, and what was said."""
    stream, learner = EXPERIMENT.stream(), variant("mixture:2:ridge-head", EXPERIMENT.shared())
    batch = stream.batch(jax.random.key(0), 0)
    keys = jax.random.split(jax.random.key(1), 2)
    before = jax.vmap(lambda key: learner.init(key, batch))(keys)
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PART", 40)
        patch.setattr(module, "BATCH", 32)
        patch.setattr(module.WarmUp, "steps", 80)
        after = EXPERIMENT.warmed(stream, learner, before, [0, 1], said.append)
    return before, after, said


def test_clusters_of_a_seed_begin_with_the_same_encoder_and_seeds_with_their_own(warm):
    _, after, _ = warm
    kernel = after.params.features[0].kernel
    np.testing.assert_array_equal(kernel[:, 0], kernel[:, 1])
    assert np.abs(kernel[0] - kernel[1]).max() > 0.01


def test_head_and_optimiser_begin_as_they_would(warm):
    before, after, _ = warm
    chex.assert_trees_all_equal(after.optimiser, before.optimiser)
    np.testing.assert_array_equal(after.params.log_scale, before.params.log_scale)
    chex.assert_trees_all_equal_shapes_and_dtypes(after, before)


def test_encoder_learns_to_tell_the_training_classes_apart(warm):
    *_, said = warm
    shares = [float(line.split(", ")[1].split("%")[0]) for line in said]
    assert len(shares) == 4
    assert shares[1] > shares[0]
    assert shares[3] > shares[2]


def test_method_without_a_ridge_head_is_refused():
    stream, learner = EXPERIMENT.stream(), variant("maml", EXPERIMENT.shared())
    with pytest.raises(ValueError, match="no ridge head"):
        EXPERIMENT.warmed(stream, learner, None, [0], print)


def test_labelled_images_are_of_the_class_that_they_are_given(warm):
    stream = EXPERIMENT.stream()
    x, y = jax.jit(lambda key: stream.labelled_images(key, 20))(jax.random.key(0))
    training = stream.training
    for image, label in zip(np.asarray(x), np.asarray(y), strict=True):
        first, count = int(training.first[label]), int(training.count[label])
        own = np.asarray(training.images[first : first + count]) / 255
        assert np.abs(own - image).max(axis=(1, 2, 3)).min() < 1e-6
    assert jnp.unique(y).size > 5
