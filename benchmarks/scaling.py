"""How much faster one run is on two cores: strong and weak scaling of two processes.

Each process has a core of its own and one device; they talk through gloo on the loopback. Strong
scaling shares the same batch, weak scaling gives each core the same number of tasks. Wall time per
iteration, without compilation, and processor time of all processes; needs two idle cores.

    python benchmarks/scaling.py
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

ITERATIONS = {"regression": 60, "images": 6}
TASKS = {"regression": 320, "images": 4}


def timed(workload: str, tasks: int, core: int, processes: int, process: int, port: int) -> None:
    """In a process of its own: print wall and processor seconds of one iteration."""
    os.sched_setaffinity(0, {core})
    import taskmix as tm
    from taskmix.training import Settings, train
    from taskmix.training.placement import Placement

    if processes > 1:
        tm.join(f"127.0.0.1:{port}", processes, process)
    iterations = ITERATIONS[workload]
    if workload == "regression":
        learner: tm.Learner = tm.MAML()
        lengths = (2 * iterations,)
        stream: tm.Stream = tm.streams.regression(("sinusoid",), lengths, tasks=tasks)
    else:
        experiment = tm.EvolvingImages(size=32, tasks=tasks, query=15, lengths=(iterations,) * 3)
        learner = tm.MAML(experiment.shared().model, tm.Categorical(), tm.Adaptation(5, 0.05))
        stream = experiment.stream()
    moments: list[tuple[float, float]] = []

    def observe(_: object) -> None:
        moments.append((time.perf_counter(), time.process_time()))

    # The first stretch compiles; evaluations are of a single task.
    settings = Settings(evaluate_every=iterations, test_tasks=1)
    train(learner, stream, [0], settings, observe, placement=Placement(processes))
    (wall, spent), (after, spent_after) = moments[1:3]
    print(json.dumps([(after - wall) / iterations, (spent_after - spent) / iterations]))


def measured(workload: str, tasks: int, cores: tuple[int, ...]) -> tuple[float, float]:
    """Wall seconds of the slowest process, processor seconds of all."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    running = [
        subprocess.Popen(
            [
                *(sys.executable, str(Path(__file__)), "--workload", workload),
                *("--tasks", str(tasks), "--cores", str(core), "--port", str(port)),
                *("--processes", str(len(cores)), "--process", str(process)),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for process, core in enumerate(cores)
    ]
    every = [json.loads(one.communicate()[0].splitlines()[-1]) for one in running]
    return max(wall for wall, _ in every), sum(spent for _, spent in every)


def main(
    cores: tuple[int, ...] = (0, 1),
    workload: str = "",
    tasks: int = 0,
    processes: int = 0,
    process: int = 0,
    port: int = 0,
) -> None:
    """Measure one and two cores.

    Args:
        cores: The cores to run on.
        workload: Of a process of its own, as the rest: regression or images.
        tasks: Tasks of a batch.
        processes: How many processes there are.
        process: Which one this is.
        port: Where they meet.
    """
    if processes:
        timed(workload, tasks, cores[0], processes, process, port)
        return
    table = Table(title="One run on one and two cores, ms per iteration")
    for heading in ("", "tasks", "cores", "wall", "processor", "speed"):
        table.add_column(heading, justify="right")
    for name, count in TASKS.items():
        alone = measured(name, count, cores[:1])
        for kind, many in (("strong", count), ("weak", 2 * count)):
            wall, spent = measured(name, many, cores[:2])
            speed = many / count * alone[0] / wall
            for row in (
                (f"{name}, {kind}", count, 1, *alone, 1.0),
                ("", many, 2, wall, spent, speed),
            ):
                label, size, number, *times, ratio = row
                shown = [f"{1e3 * one:.1f}" for one in times]
                table.add_row(label, str(size), str(number), *shown, f"{ratio:.2f}")
    Console().print(table)


if __name__ == "__main__":
    tyro.cli(main)
