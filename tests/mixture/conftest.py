"""States with several clusters, made by hand so that no test depends on a spawn."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from taskmix.adaptation import Adaptation, Gradient
from taskmix.mixture import FiniteMixture, PaperMixture
from taskmix.mixture.clusters import Clusters
from taskmix.mixture.prior import WindowedCounts
from taskmix.models import MLP
from taskmix.streams import FunctionStream, consecutive


def key() -> jax.Array:
    """Made when it is asked for: pytest may read this file before it says how to compile."""
    return jax.random.key(0)


@pytest.fixture(scope="session")
def parts():
    return {"model": MLP(hidden=(8,)), "adaptation": Adaptation(steps=1, rate=0.05)}


@pytest.fixture(scope="session")
def batches():
    """Twenty small batches of one family."""
    stream = FunctionStream(consecutive(("sinusoid",), (20,)), tasks=4, support=5, query=6)
    draw = jax.jit(lambda iteration: stream.batch(key(), iteration).without_hints())
    return [draw(iteration) for iteration in range(20)]


@pytest.fixture(scope="session")
def finite(parts):
    return FiniteMixture(Gradient(**parts), components=3)


@pytest.fixture(scope="session")
def paper(parts):
    """With a threshold that next to no candidate reaches."""
    return PaperMixture(Gradient(**parts), warm_up=5, cool_down=3, concentration=4.0, threshold=3.9)


@pytest.fixture(scope="session")
def three_finite(finite, batches):
    return spread_out(finite.init(key(), batches[0]), 3)


@pytest.fixture(scope="session")
def three_paper(paper, batches):
    """Three of four clusters alive, warm-up and cool-down over, no refreshment due."""
    state = paper.init(key(), batches[0])
    window = jnp.zeros((5, 4)).at[:3, :3].set(jnp.array([[2.0, 1, 1], [1, 3, 0], [0, 1, 3]]))
    return dataclasses.replace(
        state,
        clusters=spread_out(state.clusters, 3),
        counts=WindowedCounts(window),
        global_prior=dataclasses.replace(state.global_prior, due=jnp.asarray(1000.0)),
        newest=jnp.asarray(2),
        iteration=jnp.asarray(100),
    )


def spread_out(clusters: Clusters, alive: int) -> Clusters:
    """Clusters that differ, the first ones alive."""

    def different(leaf: jax.Array) -> jax.Array:
        return leaf + 0.3 * jax.random.normal(jax.random.fold_in(key(), leaf.size), leaf.shape)

    return Clusters(
        jax.tree.map(different, clusters.params),
        clusters.optimiser,
        jnp.arange(clusters.capacity) < alive,
    )
