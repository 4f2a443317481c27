"""Networks of other libraries do what ours do."""

import json

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import taskmix as tm
from taskmix.experiments.settings_json import PARTS, learner_from_json
from taskmix.training.run_folder import as_json

KEY = jax.random.key(0)
OURS = tm.MLP(inputs=1, hidden=(4,), outputs=1)
X = jnp.linspace(-1, 1, 5)[:, None]


def begin(key):
    (first, second) = OURS.init(key)
    return {"first": (first.weight, first.bias), "second": (second.weight, second.bias)}


def run(params, x):
    (a, b), (c, d) = params["first"], params["second"]
    return jax.nn.relu(x @ a + b) @ c + d


def build(key):
    return eqx.nn.MLP(1, 1, width_size=4, depth=1, key=key)


class Perceptron(nn.Module):
    """A module of Flax as its users write them."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(1, name="last")(nn.relu(nn.Dense(4, name="first")(x)))


class Normalised(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(nn.BatchNorm(use_running_average=False)(x))


NETWORKS = {
    "pair": tm.Pair(begin, run),
    "equinox": tm.EquinoxModel(build),
    "flax": tm.FlaxModel(Perceptron(), (1,)),
}


def test_pair_computes_what_our_network_does():
    network = NETWORKS["pair"]
    found = network.apply(network.init(KEY), X)
    np.testing.assert_allclose(found, OURS.apply(OURS.init(KEY), X), rtol=1e-6)


def test_flax_module_computes_what_flax_does():
    network = NETWORKS["flax"]
    params = network.init(KEY)
    layers = params["first"], params["last"]
    hidden = jax.nn.relu(X @ layers[0]["kernel"] + layers[0]["bias"])
    expected = hidden @ layers[1]["kernel"] + layers[1]["bias"]
    np.testing.assert_allclose(network.apply(params, X), expected, rtol=1e-6)


def test_equinox_module_is_called_example_by_example():
    network = NETWORKS["equinox"]
    expected = [build(KEY)(one) for one in X]
    np.testing.assert_allclose(network.apply(network.init(KEY), X), expected, rtol=1e-6)


def test_equinox_module_learns_its_floating_arrays_only():
    learned = jax.tree.leaves(NETWORKS["equinox"].init(KEY))
    assert sum(leaf.size for leaf in learned) == 4 + 4 + 4 + 1


def test_flax_module_with_running_statistics_is_refused():
    with pytest.raises(ValueError, match="variables batch_stats beside its parameters"):
        tm.FlaxModel(Normalised(), (1,)).init(KEY)


@pytest.mark.parametrize("name", ["equinox", "flax"])
def test_learner_of_a_foreign_module_keeps_its_contract(name):
    tm.testing.check_learner(tm.MAML(NETWORKS[name], adaptation=tm.Adaptation(steps=1)))


def test_bayesian_head_upon_a_pair_predicts_with_intervals():
    def wide(key):
        return jax.random.normal(key, (1, 3))

    head = tm.BayesianHead(tm.Pair(wide, lambda weight, x: jnp.tanh(x @ weight)), width=3)
    params = head.init(KEY)
    predictive = head.predict(head.adapt(params, tm.Examples.full(X, 2 * X)), X, None)
    assert predictive.mean.shape == (5, 1)
    assert (predictive.variance > 0).all()


def test_foreign_network_comes_back_from_json_once_its_functions_are_registered():
    learner = tm.MAML(NETWORKS["pair"])
    told = json.loads(json.dumps(as_json(learner)))
    with pytest.raises(ValueError, match=r"begin. is nothing that this version knows .register"):
        learner_from_json(told)
    for part in (begin, run):
        tm.register("part", part.__name__, part)
    try:
        assert learner_from_json(told) == learner
    finally:
        for part in (begin, run):
            PARTS.remove(part.__name__)


def test_flax_module_comes_back_from_json_once_its_class_is_registered():
    learner = tm.MAML(NETWORKS["flax"])
    told = json.loads(json.dumps(as_json(learner)))
    tm.register("part", "Perceptron", Perceptron)
    try:
        assert learner_from_json(told) == learner
    finally:
        PARTS.remove("Perceptron")


def test_part_that_is_no_dataclass_stands_in_json_by_its_name():
    """Not as a crash of the JSON library when a run of hours begins to be written."""

    class Plain:
        """Neither a dataclass nor a function."""

    told = as_json(tm.MAML(tm.FlaxModel(Plain(), (1,))))
    assert json.loads(json.dumps(told))["model"]["module"] == "tests:Plain"
