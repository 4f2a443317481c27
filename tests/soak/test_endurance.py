"""A run of a million iterations: its memory and its speed stay as they are.

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

import numpy as np
import pytest
from scipy.stats import linregress, t

COMMAND = [sys.executable, "-c", "import sys; from taskmix.cli import main; sys.exit(main())"]
ITERATIONS = int(os.environ.get("TASKMIX_SOAK_ITERATIONS", "1000000"))
SETTLED = 0.2
"""Share of the run after which clusters have been opened and everything is compiled."""
BLOCKS = 20
"""Of which the means are compared, as neighbouring samples of memory are alike."""

UNDISTURBED = 0.1
"""The quantile of the times that is compared: other processes only ever add to them."""


def watched(out: Path, log: Path) -> list[tuple[float, int, int]]:
    """Run; every second the share that is done, kilobytes of own pages, programs compiled."""
    lengths = [ITERATIONS // 20, ITERATIONS // 20, 9 * ITERATIONS // 10]
    flags = ["--tasks", "4", "--hidden", "16", "--adaptation.steps", "1", "--test-tasks", "20"]
    command = ["run", "regression", "--lengths", *map(str, lengths), *flags, "--out", str(out)]
    seen = []
    with log.open("wb") as errors:
        environment = {**os.environ, "JAX_LOG_COMPILES": "1"}
        process = subprocess.Popen([*COMMAND, *command, "--quiet"], env=environment, stderr=errors)
        while process.poll() is None:
            time.sleep(1.0)
            status = Path(f"/proc/{process.pid}/status").read_text()
            if "RssAnon" in status and (out / "metrics.jsonl").exists():
                kilobytes = int(status.split("RssAnon:")[1].split()[0])
                compiled = log.read_bytes().count(b"Finished XLA compilation")
                seen.append((_done(out), kilobytes, compiled))
    assert process.returncode == 0, log.read_text()[-2000:]
    return seen


def _done(out: Path) -> float:
    with (out / "metrics.jsonl").open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - 10_000, 0))
        lines = file.read().splitlines()
    whole = [line for line in lines if line.startswith(b'{"iteration"') and line.endswith(b"}")]
    return json.loads(whole[-1])["iteration"] / ITERATIONS if whole else 0.0


@pytest.mark.soak
def test_memory_and_speed_stay_flat(tmp_path):
    out = tmp_path / "run"
    seen = watched(out, tmp_path / "log")
    done, kilobytes, compiled = np.array([row for row in seen if SETTLED <= row[0] < 1]).T
    assert len(done) >= BLOCKS, "the run was too short to tell"

    x, y = (np.array([b.mean() for b in np.array_split(v, BLOCKS)]) for v in (done, kilobytes))
    line = linregress(x, y)
    bound = line.stderr * t.ppf(0.975, BLOCKS - 2)
    print(f"\nmemory: {y.mean() / 1024:.0f} MB, over the run {line.slope / 1024:+.2f} ", end="")
    print(f"+- {bound / 1024:.2f} MB")

    metrics = [json.loads(row) for row in (out / "metrics.jsonl").read_text().splitlines()]
    late = [row["seconds"] for row in metrics if row["iteration"] >= SETTLED * ITERATIONS]
    early, last = (np.quantile(half, UNDISTURBED) for half in np.array_split(np.diff(late), 2))
    print(
        f"speed: {1000 * early:.1f} ms a chunk in the first half, {1000 * last:.1f} in the second"
    )
    print(f"programs compiled after {SETTLED:.0%}: {compiled[-1] - compiled[0]:.0f}")

    assert compiled[-1] == compiled[0], "something was compiled again"
    assert abs(line.slope) < max(bound, 0.002 * y.mean()), "memory is not flat"
    assert abs(last / early - 1) < 0.05, "speed is not constant"
