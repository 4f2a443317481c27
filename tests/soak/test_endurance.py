"""A run of millions of iterations: its memory and its speed stay as they are.

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

COMMAND = [sys.executable, "-c", "import sys; from taskmix.cli import main; sys.exit(main())"]
ITERATIONS = int(os.environ.get("TASKMIX_SOAK_ITERATIONS", "4000000"))
OPENED = 150_000
"""Iterations after which a run has opened its clusters and compiled everything."""
SETTLED = 0.5
"""Share of the run after which its memory is looked at.

Until then two things fill up which have bounds: the samples of half a minute that a progress bar
estimates from, and the heaps that the C library gives to each thread of XLA.

By then a second run begins, whose speed the first one is compared with: how fast a machine is
changes from minute to minute, but for two runs at a time it changes alike.
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


class Sample(NamedTuple):
    """What is seen of the run at a moment, and how far the second one is by then."""

    iteration: int
    kilobytes: int
    """Own pages in memory."""
    compiled: int
    """Programs compiled so far."""
    young: int


def begun(out: Path) -> subprocess.Popen:
    lengths = [OPENED // 3, OPENED // 3, ITERATIONS - 2 * (OPENED // 3)]
    flags = ["--tasks", "4", "--hidden", "16", "--adaptation.steps", "1", "--test-tasks", "20"]
    command = ["run", "regression", "--lengths", *map(str, lengths), *flags, "--out", str(out)]
    with out.with_suffix(".log").open("wb") as errors:
        return subprocess.Popen(
            [*COMMAND, *command, "--quiet"],
            env={**os.environ, "JAX_LOG_COMPILES": "1"},
            stderr=errors,
        )


def watched(old: Path, young: Path) -> list[Sample]:
    """Run to the end; what was seen every second."""
    log, samples = old.with_suffix(".log"), []
    process, second = begun(old), None
    while process.poll() is None:
        time.sleep(1.0)
        iteration = iterations_of(old)
        if second is None and iteration >= SETTLED * ITERATIONS:
            second = begun(young)
        status = Path(f"/proc/{process.pid}/status").read_text()
        if "RssAnon" in status:
            kilobytes = int(status.split("RssAnon:")[1].split()[0])
            compiled = log.read_bytes().count(b"Finished XLA compilation")
            samples.append(Sample(iteration, kilobytes, compiled, iterations_of(young)))
    if second is not None:
        second.kill()
        second.wait()
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


@pytest.mark.soak
def test_memory_and_speed_stay_flat(tmp_path):
    samples = watched(tmp_path / "old", tmp_path / "young")
    settled = [s for s in samples if SETTLED * ITERATIONS <= s.iteration < ITERATIONS]
    both = [s for s in settled if s.young >= OPENED]
    assert len(both) >= BLOCKS, "the run was too short to tell"

    blocks = np.array_split(np.array([s.kilobytes for s in settled], float), BLOCKS)
    means = np.array([block.mean() for block in blocks])
    growth, bound = trend(means)
    print(f"\nmemory: {', '.join(f'{mean:.0f}' for mean in means)} kB")
    print(f"over the run {growth:+.0f} +- {bound:.0f} kB")

    ratio = (both[-1].iteration - both[0].iteration) / (both[-1].young - both[0].young)
    print(f"speed: {ratio:.3f} of that of a run begun later, over {len(both)} s")
    opened = [s.compiled for s in samples if s.iteration >= OPENED]
    again = opened[-1] - opened[0]
    print(f"programs compiled after {OPENED} iterations: {again}")

    assert again == 0, "something was compiled again"
    assert abs(growth) <= bound, "memory has a trend"
    assert abs(growth) < MOST * means.mean(), "memory is not flat"
    assert abs(ratio - 1) < 0.05, "speed is not constant"
