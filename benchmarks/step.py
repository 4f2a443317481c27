"""What a training step costs, as a multiple of MAML's in the same run.

Times are CPU seconds of one seed inside a compiled loop, the best of several repeats.

    python benchmarks/step.py
"""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

from taskmix.experiments import METHODS, Regression, methods_for
from taskmix.learner import Learner, Told

STEPS, REPEATS = 200, 5


def seconds_per_step(learner: Learner, experiment: Regression) -> float:
    stream, key = experiment.stream(), jax.random.key(0)

    def batch(iteration):
        whole = stream.batch(key, iteration)
        return whole.without_hints() if learner.told is Told.NOTHING else whole

    def iterate(state, iteration):
        state, info = learner.step(state, batch(iteration), key)
        return state, info.loss

    run = jax.jit(lambda state: jax.lax.scan(iterate, state, jnp.arange(STEPS)))
    state = learner.init(key, batch(0))
    jax.block_until_ready(run(state))
    times = []
    for _ in range(REPEATS):
        started = time.process_time()
        jax.block_until_ready(run(state))
        times.append(time.process_time() - started)
    return min(times) / STEPS


def main() -> None:
    experiment = Regression()
    settings = experiment.shared()
    learners = {
        name: METHODS[name].recipe.build(settings) for name in methods_for(settings.likelihood)
    }
    seconds = {name: seconds_per_step(learner, experiment) for name, learner in learners.items()}
    table = Table(title="CPU time of a training step, paper's regression settings")
    for heading in ("method", "microseconds", "times maml"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for name, cost in seconds.items():
        table.add_row(name, f"{cost * 1e6:.0f}", f"{cost / seconds['maml']:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
