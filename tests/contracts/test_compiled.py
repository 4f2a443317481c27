"""Compiled steps compute what the same steps compute operation by operation, for every method.

Sizes lie on both sides of 16,384 and 32,768 elements, beyond which a faulty library went wrong.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.adaptation import Adaptation
from taskmix.experiments import METHODS, EvolvingImages, Regression
from taskmix.learner import visible
from taskmix.streams import regression

TOLERANCE = {"float32": 1e-4, "float64": 1e-9}
SIZES = {
    "below 16,384": 20,
    "between": 38,
    "above 32,768": 42,
}
"""Queries of each of 20 tasks, by the elements of a hidden layer of 40 units."""
STAND_INS = ("maml",)
"""Those that are tested every time."""


def marked(name: str) -> object:
    return pytest.param(name, marks=() if name in STAND_INS else (pytest.mark.slow,))


REGRESSION = [marked(name) for name, one in METHODS.items() if not one.classes_only]
IMAGES = [
    pytest.param(name, marks=pytest.mark.slow)
    for name, one in METHODS.items()
    if one.classes_only or name in ("nonparametric", "maml", "mixture")
]


def as_type(tree, dtype: str):
    """Numbers of a tree in one precision."""

    def cast(leaf):
        return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(cast, tree)


def assert_same(one, other, tolerance: float) -> None:
    """Relative to the largest number of each array."""
    leaves = zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(other), strict=True)
    for (path, a), b in leaves:
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            continue
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        known = np.isfinite(a) & np.isfinite(b)
        if known.any():
            scale = max(float(np.abs(b[known]).max()), 1.0)
            worst = float(np.abs(a[known] - b[known]).max()) / scale
            assert worst <= tolerance, f"{jax.tree_util.keystr(path)} is off by {worst:.1e}"


def check(learner, batch, dtype: str) -> None:
    """Two steps: the first one leaves a state that is not the initial one."""
    with jax.enable_x64(dtype == "float64"):
        batch = as_type(visible(learner, batch), dtype)
        state = as_type(jax.jit(learner.init)(jax.random.key(1), batch), dtype)
        step = jax.jit(learner.step)
        state, _ = step(state, batch, jax.random.key(2))
        compiled = step(state, batch, jax.random.key(3))
        with jax.disable_jit():
            plain = learner.step(state, batch, jax.random.key(3))
        assert_same(compiled, plain, TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("queries", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("name", REGRESSION)
def test_compiled_step_is_the_plain_one(name, queries, dtype):
    shared = dataclasses.replace(Regression().shared(), families=2)
    learner = METHODS[name].recipe.build(shared)
    stream = regression(("polynomial", "sinusoid"), (5, 5), tasks=20, query=queries)
    check(learner, stream.batch(jax.random.key(0), 6), dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("size", [16, 84])
@pytest.mark.parametrize("name", IMAGES)
def test_compiled_step_on_images_is_the_plain_one(name, size, dtype):
    experiment = EvolvingImages(
        size=size, width=8, way=3, tasks=2, query=3, adaptation=Adaptation(steps=2, rate=0.05)
    )
    learner = METHODS[name].recipe.build(experiment.shared())
    check(learner, experiment.stream().batch(jax.random.key(0), 0), dtype)
