"""A run of a million iterations in which clusters come and go: memory and speed stay as they are.

    pytest -m soak tests/soak/test_endurance.py -s

prints what was measured. TASKMIX_SOAK_ITERATIONS makes it shorter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import t

ITERATIONS = int(os.environ.get("TASKMIX_SOAK_ITERATIONS", "1000000"))
RUN = """
import sys, taskmix as tm
from taskmix.compiled import keep_programs
keep_programs()
iterations = int(sys.argv[1])
stream = tm.streams.regression(("polynomial",), (iterations,), tasks=2, support=4, query=4)
head = tm.BayesianHead(tm.MLP(hidden=(4,), outputs=4, activation="tanh"), width=4)
small = {"capacity": 4, "reservoir": 10, "reference": 10, "rehearsed": 2}
births = {"certainty": 1e-3, "worth": 0.01, "split_worth": 0.01, "settled": 1e6, "maturity": 5}
removals = {"keep_worth": 100.0, "review": 20, "probation": 20, "parting": 2, "youth": 1}
learner = tm.OnlineMixture(head, scouting=1, **small, **births, **removals)
settings = tm.Settings(evaluate_every=max(iterations // 400, 1), test_tasks=4)
tm.fit(learner, stream, seeds=[0], out=sys.argv[2], settings=settings)
"""
"""The online mixture, to which every candidate is worth opening and no cluster worth keeping."""
OPENED = 0.1
"""Share of the run after which everything is compiled."""
SETTLED = 0.5
"""Share of the run after which its memory is looked at.

Until then the heaps fill up that the C library gives to each thread of XLA.
"""
BLOCKS = 20
"""Of which the means are compared, as neighbouring samples of memory are alike.

What a process holds moves in steps and stays where it is, like a random walk. A line through
such blocks has residuals that are not independent, and finds a trend in a single step. So the
trend is the mean of their increments, of which each is a new observation.
"""
MOST = 0.01
"""Share of its memory by which the run may grow, whatever can be told from noise.

A thread of XLA that makes the largest buffer for the first time adds 2 MB to its heap.
"""
SLOWER = 0.1
"""Share by which an iteration may take more computing in the last quarter than in the third.

Other programs on the machine take from the caches of a processor, so it is not the same twice.
"""


class Sample(NamedTuple):
    """What is seen of the run at a moment."""

    iteration: int
    kilobytes: int
    """Own pages in memory."""
    compiled: int
    """Programs compiled so far."""
    seconds: float
    """Of computing, so that it does not matter who else has the processor."""


def watched(out: Path) -> list[Sample]:
    """Run to the end; what was seen every second."""
    log, samples = out.with_suffix(".log"), []
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(ITERATIONS), out],
            env={**os.environ, "JAX_LOG_COMPILES": "1"},
            stderr=errors,
        )
    while process.poll() is None:
        time.sleep(1.0)
        iteration = iterations_of(out)
        status = Path(f"/proc/{process.pid}/status").read_text()
        ticks = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        if "RssAnon" in status:
            kilobytes = int(status.split("RssAnon:")[1].split()[0])
            compiled = log.read_bytes().count(b"Finished XLA compilation")
            seconds = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
            samples.append(Sample(iteration, kilobytes, compiled, seconds))
    assert process.returncode == 0, log.read_text()[-2000:]
    return samples


def iterations_of(out: Path) -> int:
    if not (out / "metrics.jsonl").exists():
        return 0
    with (out / "metrics.jsonl").open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - 10_000, 0))
        lines = file.read().splitlines()
    whole = [line for line in lines if line.startswith(b'{"iteration"') and line.endswith(b"}")]
    return json.loads(whole[-1])["iteration"] if whole else 0


def trend(means: np.ndarray) -> tuple[float, float]:
    """What a series grows by from end to end, and the half width of its 95 % interval."""
    steps = np.diff(means)
    half = t.ppf(0.975, len(steps) - 1) * steps.std(ddof=1) / np.sqrt(len(steps))
    return steps.sum(), half * len(steps)


@pytest.mark.parametrize(
    ("series", "grows"),
    [
        (np.full(20, 9.0), False),
        (np.repeat([9.0, 10.0], 10), False),
        (np.linspace(9.0, 10.0, 20) + np.tile([0.0, 0.02], 10), True),
    ],
    ids=["still", "a step", "a leak"],
)
def test_trend_tells_a_leak_from_a_step(series, grows):
    growth, bound = trend(series)
    assert (abs(growth) > bound) == grows


def lives(out: Path) -> tuple[int, int]:
    """Births and removals in the part of the run whose memory is looked at."""
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    settled = [e["event"] for e in events if e["iteration"] >= SETTLED * ITERATIONS]
    return settled.count("spawned"), settled.count("removed")


def a_second_s(samples: list[Sample]) -> float:
    """Iterations per second of computing."""
    return (samples[-1].iteration - samples[0].iteration) / (
        samples[-1].seconds - samples[0].seconds
    )


@pytest.mark.soak
def test_memory_and_speed_stay_flat(tmp_path):
    samples = watched(tmp_path / "run")
    settled = [s for s in samples if SETTLED * ITERATIONS <= s.iteration < ITERATIONS]
    assert len(settled) >= 2 * BLOCKS, "the run was too short to tell"
    born, removed = lives(tmp_path / "run")

    blocks = np.array_split(np.array([s.kilobytes for s in settled], float), BLOCKS)
    means = np.array([block.mean() for block in blocks])
    growth, bound = trend(means)
    print(f"\n{born} births and {removed} removals in the last {len(settled)} s of {ITERATIONS}")
    print(f"memory: {', '.join(f'{mean:.0f}' for mean in means)} kB")
    print(f"over that time {growth:+.0f} +- {bound:.0f} kB")

    half = len(settled) // 2
    before, after = (a_second_s(part) for part in (settled[:half], settled[half:]))
    print(f"speed: {before:.0f}, then {after:.0f} iterations per second of computing")
    opened = [s.compiled for s in samples if s.iteration >= OPENED * ITERATIONS]
    again = opened[-1] - opened[0]
    print(f"programs compiled after {OPENED:.0%} of the iterations: {again}")

    assert min(born, removed) >= ITERATIONS // 1000, "hardly any cluster came or went"
    assert again == 0, "something was compiled again"
    assert abs(growth) <= bound, "memory has a trend"
    assert abs(growth) < MOST * means.mean(), "memory is not flat"
    assert after > (1 - SLOWER) * before, "it becomes slower"
