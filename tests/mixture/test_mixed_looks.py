"""Kinds of tasks that differ in their inputs only, mixed within every batch from the first on."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.adaptation.task_model import Judgement, Predictive, TaskResult
from taskmix.compiled import quickly
from taskmix.likelihood import Categorical
from taskmix.mixture import OnlineMixture
from taskmix.tasks import Examples, TaskBatch

WIDTH, CLASSES, BATCHES = 6, 5, 800


@dataclasses.dataclass(frozen=True)
class Indifferent:
    """A task model to which every task is alike, and which costs nothing."""

    likelihood: Categorical = Categorical(inputs=lambda x: x)
    exact = False
    one_at_a_time = False

    def init(self, key):
        return jnp.zeros(())

    def loss(self, params, support, query):
        return params**2, TaskResult(params**2, self.predict(params, query.x).mean, params)

    def evidence(self, params, examples):
        return -jnp.log(CLASSES) * examples.count() + 0 * params

    def adapt(self, params, support):
        return params

    def predict(self, posterior, query_x, query_mask=None):
        return Predictive(jnp.full((query_x.shape[0], CLASSES), 1 / CLASSES) + 0 * posterior)

    def judge(self, params, support, query):
        known = self.evidence(params, support)
        # A little better than the background, which guesses.
        return Judgement(known, known - 1.4 * query.count(), self.predict(params, query.x))


LEARNER = OnlineMixture(
    task_model=Indifferent(),
    reservoir=40,
    reference=40,
    scouting=0,
    inherits=True,
    probation=100,
    parting=6,
    parting_updates=1,
    worth=4.0,
    split_worth=4.0,
    capacity=4,
)


def batch(key, gap):
    """Four tasks of three images of each class; kinds are ``gap`` apart."""
    kind_key, class_key, image_key = jax.random.split(key, 3)
    kind = jax.random.bernoulli(kind_key, shape=(4, 1, 1, 1))
    of_class = jax.random.normal(class_key, (4, CLASSES, 1, WIDTH))
    x = of_class + 0.5 * jax.random.normal(image_key, (4, CLASSES, 3, WIDTH)) + gap * kind
    y = jnp.broadcast_to(jnp.arange(CLASSES)[:, None], x.shape[:3])

    def part(images):
        chosen, labels = x[:, :, images], y[:, :, images]
        return Examples.full(chosen.reshape(4, -1, WIDTH), labels.reshape(4, -1))

    return TaskBatch(part(slice(1)), part(slice(1, None))), kind.ravel()


@pytest.fixture(scope="module")
def follow():
    def run(seed, gap):
        key = jax.random.key(seed)

        def step(state, iteration):
            tasks, kind = batch(jax.random.fold_in(key, iteration), gap)
            state, info = LEARNER.step(state, tasks, jax.random.fold_in(key, -1 - iteration))
            return state, (info.alive, info.responsibilities, kind)

        first = LEARNER.init(key, batch(key, gap)[0])
        return jax.lax.scan(step, first, jnp.arange(BATCHES))[1]

    return jax.jit(run, compiler_options=quickly())


def test_each_kind_gets_a_cluster_of_its_own(follow):
    alive, shares, kind = map(np.asarray, follow(0, 8.0))
    best = shares[-50:].argmax(axis=-1)
    homes = [np.bincount(best[kind[-50:] == one], minlength=alive.shape[1]) for one in (0, 1)]
    assert [home.max() / home.sum() > 0.95 for home in homes] == [True, True]
    assert homes[0].argmax() != homes[1].argmax()


def test_a_single_kind_keeps_its_cluster(follow):
    alive, _, _ = follow(0, 0.0)
    assert np.asarray(alive).sum(axis=1).max() == 1
