"""The optimiser is an argument of every learner."""

import dataclasses
import json

import jax
import numpy as np
import optax
import pytest

import taskmix as tm
from taskmix.experiments import METHODS, FewShot, Regression
from taskmix.experiments.settings_json import PARTS, learner_from_json
from taskmix.training.run_folder import as_json

SHARED = {"regression": Regression(hidden=(4,)).shared(), "images": FewShot(size=16).shared()}
LEARNERS = {
    name: one.recipe.build(SHARED["images" if one.classes_only else "regression"])
    for name, one in METHODS.items()
}


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_keeps_the_state_of_the_optimiser_it_was_given(name):
    """Of gradient descent there is nothing to remember, of Adam two numbers per parameter."""
    plain = dataclasses.replace(LEARNERS[name], meta_optimiser=optax.sgd)
    stream = tm.streams.regression(("linear",), (3,), tasks=2)
    if METHODS[name].classes_only:
        stream = FewShot(size=16, tasks=2).stream()
    key = jax.random.key(0)

    def numbers(learner: tm.Learner) -> int:
        def begin() -> object:
            return learner.init(key, stream.batch(key, 0))

        return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(begin)))

    assert numbers(plain) < numbers(LEARNERS[name])


def test_step_of_gradient_descent_is_the_gradient_times_the_rate():
    learner = tm.MAML(
        tm.MLP(hidden=(4,)), adaptation=tm.Adaptation(1), meta_rate=0.5, meta_optimiser=optax.sgd
    )
    batch = tm.streams.regression(("linear",), (3,), tasks=2).batch(jax.random.key(0), 0)
    state = learner.init(jax.random.key(1), batch)
    gradient, _ = jax.jit(learner._gradient)(state.params, batch, jax.random.key(2))
    after, _ = jax.jit(learner.step)(state, batch, jax.random.key(2))
    for old, slope, new in zip(
        *map(jax.tree.leaves, (state.params, gradient, after.params)), strict=True
    ):
        np.testing.assert_allclose(new, old - 0.5 * slope, rtol=1e-5, atol=1e-7)


def test_learner_with_an_optimiser_of_optax_comes_back_from_its_json():
    learner = tm.SingleModel(meta_optimiser=optax.lion)
    told = json.loads(json.dumps(as_json(learner)))
    assert told["meta_optimiser"] == "optax:lion"
    assert learner_from_json(told) == learner


def my_optimiser(rate: object) -> optax.GradientTransformation:
    return optax.chain(optax.clip(0.1), optax.sgd(rate))


def test_optimiser_of_ones_own_is_exported_once_it_is_registered():
    told = json.loads(json.dumps(as_json(tm.SingleModel(meta_optimiser=my_optimiser))))
    with pytest.raises(ValueError, match=r"my_optimiser.*register it as a part"):
        learner_from_json(told)
    tm.register("part", "my_optimiser", my_optimiser)
    try:
        assert learner_from_json(told).meta_optimiser is my_optimiser
    finally:
        PARTS.remove("my_optimiser")
