"""How the cost of a step of the default learner grows: with clusters, tasks, width and reservoir.

Clusters begin at random, so that they share the tasks of a batch among them; dormant ones have had
no task in the recent past. Times are CPU seconds of one step on one core, the median of several
with their range; sizes of one kind take turns. Peak memory is that of the process.

    python benchmarks/growth.py --json-out growth.json
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import tyro

from taskmix.compiled import quickly
from taskmix.experiments import Regression
from taskmix.experiments.variants import variant
from taskmix.learner import State
from taskmix.streams import regression

CLUSTERS = (1, 2, 4, 8, 16, 32)
DORMANT = (0, 1, 5, 13, 29)
TASKS = (10, 40, 160, 640)
WIDTHS = (20, 40, 80)
RESERVOIRS = (50, 200, 800)
AT_A_TIME = 20
"""Steps that are timed together: one takes a few milliseconds."""

Step = Callable[[], Any]


def steps(learner: Any, tasks: int, states: list[tuple[int, int]]) -> list[Step]:
    """Some steps from each of the states, given as clusters in use and dormant ones."""
    batch = regression(tasks=tasks).batch(jax.random.key(0), 0).without_hints()
    first = jax.jit(learner.init)(jax.random.key(1), batch)

    @partial(jax.jit, compiler_options=quickly())
    def several(state: State) -> State:
        def one(turn: jax.Array, state: State) -> State:
            return learner.step(state, batch, jax.random.key(turn))[0]

        return jax.lax.fori_loop(0, AT_A_TIME, one, state)

    return [partial(several, with_clusters(learner, first, *count)) for count in states]


def with_clusters(learner: Any, state: State, used: int, dormant: int) -> State:
    """The state with so many clusters, each with parameters of its own."""
    rows = state.alive.size
    place = jnp.arange(rows)
    params = jax.vmap(learner.task_model.init)(jax.random.split(jax.random.key(2), rows + 1))
    members = dataclasses.replace(state.members, params=params, averaged=params)
    # The recent past has forgotten a cluster when less than a task in a million is left of it.
    counts = jnp.where(place < used, 500.0 / used, 1e-6) * (place < used + dormant)
    return dataclasses.replace(
        state, members=members, alive=place < used + dormant, counts=jnp.append(counts, 0.0)
    )


def timed(every: dict[int, Step], repeats: int) -> list[dict[str, Any]]:
    """CPU seconds of one step of each size."""
    for run in every.values():
        jax.block_until_ready(run())
    times: dict[int, list[float]] = {value: [] for value in every}
    for _ in range(repeats):
        for value, run in every.items():
            started = time.process_time()
            jax.block_until_ready(run())
            times[value].append((time.process_time() - started) / AT_A_TIME)
    return [{"value": v, "median": statistics.median(t), "times": t} for v, t in times.items()]


def main(
    core: int = 0, repeats: int = 9, quick: bool = False, json_out: Path | None = None
) -> None:
    """Time steps.

    Args:
        core: The core to run on.
        repeats: How often each size is timed.
        quick: Only the smallest and the largest tasks, widths and reservoirs.
        json_out: File for the results.
    """
    os.sched_setaffinity(0, {core})
    shared = Regression().shared()

    def built(**settings: int) -> Any:
        words = [f"{name}={value}" for name, value in settings.items()]
        return variant(":".join(["nonparametric", *words]), shared)

    def some(values: tuple[int, ...]) -> tuple[int, ...]:
        return (values[0], values[-1]) if quick else values

    def one(learner: Any, tasks: int = 10) -> Step:
        return steps(learner, tasks, [(3, 0)])[0]

    def wide(width: int) -> Any:
        task_model = default.task_model
        features = dataclasses.replace(task_model.features, hidden=(width, width))
        task_model = dataclasses.replace(task_model, features=features)
        return dataclasses.replace(default, task_model=task_model)

    default = built()
    states = [(count, 0) for count in CLUSTERS] + [(3, count) for count in DORMANT]
    room = steps(built(capacity=34), 10, states)
    every = {
        "clusters": dict(zip(CLUSTERS, room, strict=False)),
        "dormant": dict(zip(DORMANT, room[len(CLUSTERS) :], strict=True)),
        "tasks": {count: one(default, count) for count in some(TASKS)},
        "width": {width: one(wide(width)) for width in some(WIDTHS)},
        "reservoir": {places: one(built(reservoir=places)) for places in some(RESERVOIRS)},
    }
    found: dict[str, Any] = {}
    for kind, sizes in every.items():
        found[kind] = timed(sizes, repeats)
        for entry in found[kind]:
            print(f"{kind:10} {entry['value']:5} {1e3 * entry['median']:9.2f} ms", flush=True)
    found["peak_memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if json_out is not None:
        json_out.write_text(json.dumps(found))


if __name__ == "__main__":
    tyro.cli(main)
