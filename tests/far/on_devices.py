"""Runs on one device and on eight, compared; prints what was found as JSON.

XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m tests.far.on_devices
"""

from __future__ import annotations

import json
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

import taskmix as tm
from taskmix.experiments.variants import variant
from taskmix.spread import SEEDS, TASKS
from taskmix.streams import Until
from taskmix.training import Settings, Start, train
from taskmix.training.placement import Placement

DEVICES = 8


def maml() -> tuple:
    learner = tm.MAML(tm.MLP(hidden=(8,)), adaptation=tm.Adaptation(steps=2))
    # Ten tasks do not divide evenly by eight.
    return learner, tm.streams.regression(("linear", "step"), (15, 10), tasks=10)


def images() -> tuple:
    """MAML with Conv4, whose tasks are gone through one after the other."""
    experiment = tm.EvolvingImages(
        size=16, width=4, way=3, tasks=3, query=2, test_query=2, lengths=(15, 10, 5)
    )
    learner = tm.MAML(
        experiment.shared().model, tm.Categorical(), adaptation=tm.Adaptation(steps=1, rate=0.05)
    )
    assert learner.one_at_a_time
    return learner, Until(experiment.stream(), 25)


def mixture() -> tuple:
    """The default learner, in which young clusters learn several times per batch."""
    name = "nonparametric:capacity=4:reservoir=8:reference=8"
    learner = variant(name, tm.Regression(hidden=(4, 4)).shared())
    return learner, tm.streams.regression(("linear", "sinusoid"), (15, 10), tasks=6)


def difference(one: object, other: object) -> float:
    """The largest difference of any two numbers, relative to the largest of their array."""
    found = 0.0
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        a, b = (np.asarray(leaf, np.float64) for leaf in (a, b))
        both = np.isfinite(a) & np.isfinite(b)
        if not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return float("inf")
        if both.any():
            scale = max(np.abs(a[both]).max(), 1e-6)
            found = max(found, float(np.abs(a[both] - b[both]).max() / scale))
    return found


def trained(learner, stream, seeds, devices: int) -> tuple:
    chunks: list = []
    settings = Settings(evaluate_every=10, test_tasks=5)
    placement = Placement(devices, len(seeds))
    state = train(learner, stream, seeds, settings, chunks.append, placement=placement)
    return state, [chunk.evaluation.error for chunk in chunks]


def reductions(learner, stream) -> int:
    """How often all devices wait for each other in the program of one step."""
    batch = stream.batch(jax.random.key(0), 0)
    if learner.told is tm.Told.NOTHING:
        batch = batch.without_hints()
    state = learner.init(jax.random.key(1), batch)
    mesh = Mesh(np.array(jax.devices()[:DEVICES]).reshape(1, DEVICES), (SEEDS, TASKS))
    step = jax.shard_map(
        lambda state, batch: learner.step(state, batch, jax.random.key(2)),
        mesh=mesh,
        in_specs=PartitionSpec(),
        out_specs=PartitionSpec(),
        check_vma=False,
    )
    program = jax.jit(step).lower(state, batch).compile().as_text()
    kinds = "all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute"
    return len(re.findall(rf"= \S+ (?:{kinds})(?:-start)?\(", program))


def goes_on(learner, stream, throughout) -> float:
    """Begun on one device, ended on eight, against one device ``throughout``."""
    settings, seeds = Settings(evaluate_every=10, test_tasks=5), [0]
    half: list = []
    first = Until(stream, 10)
    train(learner, first, seeds, settings, half.append, placement=Placement(1))
    start = Start(10, half[-1].state, 0.0, (0,), alive=half[-1].info.alive[:, -1])
    placement = Placement(DEVICES)
    ended = train(learner, stream, seeds, settings, lambda _: None, start, placement=placement)
    return difference(throughout, ended)


def main() -> None:
    assert jax.device_count() == DEVICES, "ask for them with XLA_FLAGS"
    found = {}
    for case in sys.argv[1:] or ("maml", "images", "mixture"):
        learner, stream = globals()[case]()
        one, eight = (trained(learner, stream, [0], devices) for devices in (1, DEVICES))
        found[case] = {"difference": difference(one, eight)}
        found[case]["reductions"] = reductions(learner, stream)
        if case == "maml":
            several = (trained(learner, stream, [0, 1, 2, 3], devices) for devices in (1, DEVICES))
            found[case]["seeds"] = difference(*several)
            found[case]["goes on"] = goes_on(learner, stream, one[0])
        print(case, found[case], file=sys.stderr, flush=True)
        assert all(jnp.all(jnp.isfinite(jnp.asarray(error))) for error in eight[1])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
