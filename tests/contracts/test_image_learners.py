"""What every learner owes when tasks are about classes of images.

The learners that can do regression as well meet the larger contract there, so with images
only those without it, and one that stands for the rest, are tested every time.
"""

import dataclasses
import functools
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.adaptation import Adaptation
from taskmix.evaluation import evaluate
from taskmix.experiments import METHODS, EvolvingImages
from taskmix.learner import Told
from taskmix.tasks import Examples, Hints, TaskBatch

WAY, SIZE, TASKS = 3, 16, 2
SETTINGS = dataclasses.replace(
    EvolvingImages(size=SIZE, width=4, way=WAY, adaptation=Adaptation(steps=1, rate=0.1)).shared(),
    families=2,
    kept=8,
)
KEY = jax.random.key(0)
STAND_INS = ("maml",)
NAMES = [
    pytest.param(
        name,
        marks=() if method.classes_only or name in STAND_INS else (pytest.mark.slow,),
    )
    for name, method in METHODS.items()
    if not method.numbers_only
]


def images(key: jax.Array, patterns: jax.Array, each: int) -> Examples:
    """Noisy copies of one pattern a class."""
    labels = jnp.tile(jnp.arange(WAY), each)
    noise = 0.1 * jax.random.normal(key, (WAY * each, SIZE, SIZE, 3))
    return Examples.full(patterns[labels] + noise, labels, input_axes=3)


def task(key: jax.Array) -> tuple[Examples, Examples]:
    """Classes that differ by a pattern, the same in support and query."""
    pattern, support, query = jax.random.split(key, 3)
    coarse = jax.random.uniform(pattern, (WAY, 4, 4, 3))
    patterns = jnp.repeat(jnp.repeat(coarse, SIZE // 4, axis=1), SIZE // 4, axis=2)
    return images(support, patterns, 2), images(query, patterns, 3)


@jax.jit
def batch_at(iteration: int) -> TaskBatch:
    keys = jax.random.split(jax.random.fold_in(KEY, iteration), TASKS)
    support, query = jax.vmap(task)(keys)
    return TaskBatch(support, query, Hints(jnp.arange(TASKS) % 2, jnp.asarray(False)))


def first_task(learner, batch):
    support, query = jax.tree.map(lambda leaf: leaf[0], (batch.support, batch.query))
    if learner.told is Told.NOTHING:
        return support, query, None
    return support, query, jax.tree.map(lambda leaf: leaf.reshape(-1)[0], batch.hints)


@dataclasses.dataclass(frozen=True)
class Trained:
    learner: object
    step: object
    predict: object
    state: object
    first_error: float
    last_error: float

    def predict_first(self, batch):
        support, query, hints = first_task(self.learner, batch)
        return self.predict(self.state, support, query.x, hints, query.mask)


@pytest.fixture(scope="module", params=NAMES)
def trained(request) -> Trained:
    learner = METHODS[request.param].recipe.build(SETTINGS, {"meta_rate": 5e-3})
    step = jax.jit(learner.step)
    state = learner.init(KEY, batch_at(0))
    errors = []
    for iteration in range(150):
        key = jax.random.fold_in(KEY, iteration)
        state, info = step(state, batch_at(iteration), key)
        errors.append(np.mean(info.error))
    first, last = np.mean(errors[:10]), np.mean(errors[-20:])
    return Trained(learner, step, jax.jit(learner.predict), state, first, last)


def test_learner_learns_patterns(trained):
    assert trained.last_error < max(0.1, 0.75 * trained.first_error)


def test_prediction_is_a_distribution_over_the_classes(trained):
    prediction = trained.predict_first(batch_at(100))
    chex.assert_shape(prediction.mean, (3 * WAY, WAY))
    np.testing.assert_allclose(prediction.mean.sum(axis=-1), 1, rtol=1e-5)
    assert (prediction.mean >= 0).all()
    assert prediction.variance is None or (prediction.variance >= 0).all()


def test_step_keeps_structure_shapes_and_types_of_the_state(trained):
    after, info = trained.step(trained.state, batch_at(100), KEY)
    chex.assert_trees_all_equal_shapes_and_dtypes(after, trained.state)
    chex.assert_tree_all_finite((after, info))
    chex.assert_shape(info.error, (TASKS,))


def test_parameters_are_counted(trained):
    assert 0 < trained.learner.parameters(trained.state) < 1_000_000


def ragged(fill: float) -> TaskBatch:
    """The last two examples of every set are padding with this content."""
    batch = batch_at(100)

    def padded(examples: Examples) -> Examples:
        real = jnp.arange(examples.mask.shape[1]) < examples.mask.shape[1] - 2
        mask = jnp.broadcast_to(real, examples.mask.shape)
        x = jnp.where(mask[..., None, None, None], examples.x, fill)
        return Examples(x, jnp.where(mask, examples.y, 0), mask)

    return TaskBatch(padded(batch.support), padded(batch.query), batch.hints)


def test_content_of_padding_changes_no_bit(trained):
    expected = trained.step(trained.state, ragged(0.0), KEY)
    chex.assert_trees_all_equal(trained.step(trained.state, ragged(math.nan), KEY), expected)
    chex.assert_tree_all_finite(expected)
    clean, dirty = (trained.predict_first(ragged(fill)) for fill in (0.0, math.nan))
    real = np.asarray(ragged(0.0).query.mask[0])
    np.testing.assert_array_equal(dirty.mean[real], clean.mean[real])


def test_evaluation_of_the_protocol_accepts_the_learner(trained):
    test = jax.tree.map(lambda leaf: leaf[None], batch_at(101))
    evaluated = functools.partial(evaluate, trained.learner)
    assert np.isfinite(jax.jit(evaluated)(trained.state, test).error).all()
