"""How the cost of a step of the default learner grows: with clusters, tasks, width and reservoir.

Clusters are copies of one, all of them in use by the recent past. Times are CPU seconds of one
step on one core, the median of several with their range; peak memory is that of the process.

    python benchmarks/growth.py --json-out growth.json
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import statistics
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import tyro

from taskmix.experiments import Regression
from taskmix.experiments.variants import variant
from taskmix.learner import State
from taskmix.streams import regression

CLUSTERS = (1, 2, 4, 8, 16, 32)
TASKS = (10, 40, 160, 640)
WIDTHS = (20, 40, 80)
RESERVOIRS = (50, 200, 800)


def step_times(learner: Any, tasks: int, living: list[int], repeats: int) -> list[list[float]]:
    """CPU seconds of steps from states with so many living clusters; one program for all."""
    batch = regression(tasks=tasks).batch(jax.random.key(0), 0).without_hints()
    state = jax.jit(learner.init)(jax.random.key(1), batch)
    step = jax.jit(learner.step)
    states = [_with(state, count) for count in living]
    for one in states:
        jax.block_until_ready(step(one, batch, jax.random.key(2)))
    found: list[list[float]] = [[] for _ in states]
    for _ in range(repeats):
        for place, one in enumerate(states):
            started = time.process_time()
            jax.block_until_ready(step(one, batch, jax.random.key(2)))
            found[place].append(time.process_time() - started)
    return found


def _with(state: State, clusters: int) -> State:
    """The state with so many living clusters, copies of the first."""
    rows = state.alive.shape[0]

    def copied(leaf: jax.Array) -> jax.Array:
        first = jnp.broadcast_to(leaf[:1], (rows, *leaf.shape[1:]))
        return jnp.concatenate([first, leaf[rows:]])

    alive = jnp.arange(rows) < clusters
    counts = jnp.append(jnp.where(alive, 10.0, 0.0), state.counts[-1])
    members = jax.tree.map(copied, state.members)
    return dataclasses.replace(state, alive=alive, members=members, counts=counts)


def _entry(value: int, times: list[float]) -> dict[str, Any]:
    return {"value": value, "median": statistics.median(times), "times": times}


def main(
    core: int = 0, repeats: int = 9, quick: bool = False, json_out: Path | None = None
) -> None:
    """Time steps.

    Args:
        core: The core to run on.
        repeats: How often each step is timed.
        quick: Only the smallest and one larger size of each kind.
        json_out: File for the results.
    """
    os.sched_setaffinity(0, {core})
    shared = Regression().shared()

    def built(**settings: int) -> Any:
        words = [f"{name}={value}" for name, value in settings.items()]
        return variant(":".join(["nonparametric", *words]), shared)

    def some(values: tuple[int, ...]) -> tuple[int, ...]:
        return values[:2] if quick else values

    default = built()
    found: dict[str, Any] = {}
    wide = built(capacity=34)
    counts = some(CLUSTERS)
    times = step_times(wide, 10, list(counts), repeats)
    found["clusters"] = [_entry(c, t) for c, t in zip(counts, times, strict=True)]
    found["tasks"] = [_entry(n, step_times(default, n, [3], repeats)[0]) for n in some(TASKS)]
    found["width"] = []
    for width in some(WIDTHS):
        model = dataclasses.replace(default.task_model.model, hidden=(width, width))
        task_model = dataclasses.replace(default.task_model, model=model)
        learner = dataclasses.replace(default, task_model=task_model)
        found["width"].append(_entry(width, step_times(learner, 10, [3], repeats)[0]))
    found["reservoir"] = [
        _entry(n, step_times(built(reservoir=n), 10, [3], repeats)[0]) for n in some(RESERVOIRS)
    ]
    found["peak_memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if json_out is not None:
        json_out.write_text(json.dumps(found))
    for kind in ("clusters", "tasks", "width", "reservoir"):
        for entry in found[kind]:
            print(f"{kind:10} {entry['value']:5} {1e3 * entry['median']:9.2f} ms")


if __name__ == "__main__":
    tyro.cli(main)
