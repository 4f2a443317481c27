"""States with several clusters, made by hand so that no test depends on a spawn."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from taskmix.adaptation import Adaptation
from taskmix.mixture import FiniteMixture, OnlineMixture, PaperMixture
from taskmix.mixture.calibration import Typical
from taskmix.mixture.clusters import Clusters
from taskmix.mixture.prior import WindowedCounts
from taskmix.models import MLP
from taskmix.streams import FunctionStream, consecutive

KEY = jax.random.key(0)


@pytest.fixture(scope="session")
def parts():
    return {"model": MLP(hidden=(8,)), "adaptation": Adaptation(steps=1, rate=0.05)}


@pytest.fixture(scope="session")
def batches():
    """Twenty small batches of one family."""
    stream = FunctionStream(consecutive(("sinusoid",), (20,)), tasks=4, support=5, query=6)
    draw = jax.jit(lambda iteration: stream.batch(KEY, iteration).without_hints())
    return [draw(iteration) for iteration in range(20)]


@pytest.fixture(scope="session")
def finite(parts):
    return FiniteMixture(**parts, components=3)


@pytest.fixture(scope="session")
def paper(parts):
    """With a threshold that next to no candidate reaches."""
    return PaperMixture(**parts, warm_up=5, cool_down=3, concentration=4.0, threshold=3.9)


@pytest.fixture(scope="session")
def online(parts):
    return OnlineMixture(**parts, cool_down=10)


@pytest.fixture(scope="session")
def three_finite(finite, batches):
    return spread_out(finite.init(KEY, batches[0]), 3)


@pytest.fixture(scope="session")
def three_paper(paper, batches):
    """Three of four clusters alive, warm-up and cool-down over, no refreshment due."""
    state = paper.init(KEY, batches[0])
    window = jnp.zeros((5, 4)).at[:3, :3].set(jnp.array([[2.0, 1, 1], [1, 3, 0], [0, 1, 3]]))
    return dataclasses.replace(
        state,
        clusters=spread_out(state.clusters, 3),
        counts=WindowedCounts(window),
        newest=jnp.asarray(2),
        iteration=jnp.asarray(100),
    )


@pytest.fixture(scope="session")
def three_online(online, batches):
    """Three of four clusters alive, with different calibrations, spawning allowed."""
    state = online.init(KEY, batches[0])
    levels = jnp.array([0.5, 1.0, 1.5, 0.0])
    regimes = eqx.tree_at(
        lambda r: (r.belief, r.entered),
        state.regimes,
        (jnp.array([0.2, 0.5, 0.3, 0.0]), jnp.array([3.0, 2.0, 1.0, 0.0])),
    )
    clusters = spread_out(state.clusters, 3)
    return dataclasses.replace(
        state,
        clusters=clusters,
        averaged=jax.tree.map(lambda leaf: 0.9 * leaf, clusters.params),
        regimes=regimes,
        query=typical(levels, jnp.array([0.8, 0.6, 0.7, 1.0])),
        support=typical(levels - 1, jnp.array([0.9, 0.7, 0.5, 1.0])),
        tasks=jnp.array([40.0, 30.0, 20.0, 0.0]),
        newest=jnp.asarray(2),
        cooling=jnp.asarray(0),
    )


def typical(levels: jax.Array, variances: jax.Array) -> Typical:
    """Of log losses only, seen for a while."""
    return Typical(levels[:, None], variances[:, None], 30 + levels)


def spread_out(clusters: Clusters, alive: int) -> Clusters:
    """Clusters that differ, the first ones alive."""

    def different(leaf: jax.Array) -> jax.Array:
        return leaf + 0.3 * jax.random.normal(jax.random.fold_in(KEY, leaf.size), leaf.shape)

    return Clusters(
        jax.tree.map(different, clusters.params),
        clusters.optimiser,
        jnp.arange(clusters.capacity) < alive,
    )
