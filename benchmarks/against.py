"""This version beside another one: whole runs, evaluations included, taking turns.

Each version runs in a process of its own, from its own sources; after every evaluation it waits
until the other one has come as far. Times are processor time on one core. The first stretch, and
one in which a state has grown, are left out of the ratio: they compile.

    git archive SOME_COMMIT | tar x -C /tmp/other
    python benchmarks/against.py --other /tmp/other/src --method nonparametric
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import tyro

OURS = Path(__file__).parents[1] / "src"


def run(method: str, lengths: tuple[int, ...], seed: int, core: int) -> None:
    """In a process of its own: train, and say after each evaluation what it took since the last."""
    os.sched_setaffinity(0, {core})
    # Only what both versions have.
    from taskmix.experiments import METHODS, Regression
    from taskmix.training import Settings, train

    experiment = Regression(lengths=lengths)
    try:
        learner = METHODS[method].recipe.build(experiment.shared())
    except AttributeError:
        from taskmix.experiments import build_learner

        learner = build_learner(METHODS[method].build, experiment.learner_settings(), {})
    since = time.process_time()

    def observe(chunk: Any) -> None:
        nonlocal since
        took = time.process_time() - since
        clusters = 0 if chunk.info is None else living(chunk.info)
        told = {"iteration": chunk.iteration, "seconds": took, "clusters": clusters}
        print(json.dumps({**told, "grown": bool(chunk.grown)}), flush=True)
        sys.stdin.readline()
        since = time.process_time()

    train(learner, experiment.stream(), [seed], Settings(), observe)


def living(info: Any) -> int:
    """Clusters of the last iteration; the first version counted them."""
    alive = getattr(info, "alive", None)
    return int(info.clusters[0, -1] if alive is None else alive[0, -1].sum())


def begun(sources: Path, *arguments: str) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(sources)}
    command = [sys.executable, __file__, "--other", str(sources), *arguments, "--alone"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)


def main(
    other: Path,
    method: str = "nonparametric",
    lengths: tuple[int, ...] = (4000, 3000, 2500),
    seed: int = 0,
    core: int = 0,
    json_out: Path | None = None,
    alone: bool = False,
) -> None:
    """Run both.

    Args:
        other: The `src` folder of the other version.
        method: The learner, with its default settings in either version.
        lengths: Iterations of the phases of the paper's stream.
        seed: Of both.
        core: The core that they share.
        json_out: File for every stretch of both.
        alone: Run the one that this process imports; for processes that this one starts.
    """
    if alone:
        run(method, lengths, seed, core)
        return
    told = ("--method", method, "--seed", str(seed), "--core", str(core))
    told = (*told, "--lengths", *map(str, lengths))
    both = {"this": begun(OURS, *told), "other": begun(other, *told)}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in both}
    for name, process in both.items():
        found[name].append(json.loads(process.stdout.readline()))
    # One goes on while the other waits.
    while going := {name: one for name, one in both.items() if one.poll() is None}:
        for name, process in going.items():
            print("go", file=process.stdin, flush=True)
            if line := process.stdout.readline():
                found[name].append(json.loads(line))
            else:
                process.wait()
    if failed := [name for name, one in both.items() if one.returncode]:
        raise SystemExit(f"{' and '.join(failed)} ended with an error, which stands above.")
    if json_out is not None:
        json_out.write_text(json.dumps(found))
    shown(found)


def shown(found: dict[str, list[dict[str, Any]]]) -> None:
    """Iterations per second by how many clusters there are, and how many times the other's."""
    lasted = {
        name: [(before["iteration"], after) for before, after in pairwise(every)]
        for name, every in found.items()
    }
    rates: dict[int, dict[str, list[float]]] = defaultdict(lambda: {name: [] for name in found})
    for name, stretches in lasted.items():
        for start, one in stretches[1:]:
            if not one["grown"]:
                rates[one["clusters"]][name].append((one["iteration"] - start) / one["seconds"])
    for clusters, each in sorted(rates.items()):
        for name, rate in each.items():
            if rate:
                middle = statistics.median(rate)
                spread = f"{min(rate):.0f} to {max(rate):.0f}"
                print(f"{clusters} clusters, {name}: {middle:.0f} iterations/s ({spread})")
    spent = {
        name: sum(one["seconds"] for _, one in stretches[1:] if not one["grown"])
        for name, stretches in lasted.items()
    }
    for name, seconds in spent.items():
        first = found[name][0]["seconds"] + lasted[name][0][1]["seconds"]
        print(f"{name}: {first:.1f} s until the first stretch ended, {seconds:.1f} s for the rest")
    print(f"times the other: {spent['other'] / spent['this']:.2f}")


if __name__ == "__main__":
    tyro.cli(main)
