"""Runs that are killed with SIGKILL, and go on: they end with the bits of a run that was not.

    pytest -m soak tests/soak/test_kills.py -s

prints how many were killed. TASKMIX_SOAK_SHARE=0.25 takes every fourth moment only.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.numpy import load_file

COMMAND = [sys.executable, "-c", "import sys; from taskmix.cli import main; sys.exit(main())"]
OFTEN = ("--checkpoint-minutes", "0", "--quiet")
MAML = (
    *("run", "regression", "--method", "maml", "--families", "linear", "step"),
    *("--lengths", "60", "40", "--tasks", "2", "--hidden", "4", "--adaptation.steps", "1"),
    *("--evaluate-every", "5", "--test-tasks", "3", *OFTEN),
)
SHARE = float(os.environ.get("TASKMIX_SOAK_SHARE", "1"))
REGRESSION = (
    *("run", "regression", "--families", "polynomial", "sinusoid", "--lengths", "300", "200"),
    *("--hidden", "16", "--reservoir", "40", "--reference", "40", "--capacity", "4"),
    *("--evaluate-every", "20", "--test-tasks", "5", *OFTEN),
)
"""The online mixture with Bayesian heads and reservoirs; a cluster is opened after the shift."""
IMAGES = (
    *("run", "evolving-images", "--lengths", "40", "40", "20"),
    *("--size", "16", "--width", "4", "--tasks", "2", "--query", "2", "--adaptation.steps", "1"),
    *("--test-query", "2", "--test-tasks", "3", "--evaluate-every", "5", *OFTEN),
)
TABLE = """
import sys, taskmix as tm
from taskmix.tables.example import heaters
small = {"capacity": 2, "reservoir": 20, "reference": 20}
columns = {"task": "run", "target": "degrees", "time": "run", "split": "random", "support": 5}
often = tm.Keeping(checkpoint_iterations=1)
tm.run_table(heaters(runs=200), sys.argv[1], keeping=often, hidden=(8,), settings=small, **columns)
"""
"""Every wave of tasks ends with a checkpoint."""
LIVE = """
import sys, jax, taskmix as tm
from pathlib import Path
stream = tm.streams.regression(("polynomial", "sinusoid"), (150, 150), tasks=4)
head = tm.BayesianHead(tm.MLP(hidden=(8,), outputs=8, activation="tanh"), width=8)
learner = tm.OnlineMixture(head, capacity=2, reservoir=20, reference=20)
out = Path(sys.argv[1])
live = tm.Live.load(learner, out) if (out / "checkpoints").is_dir() else tm.Live(learner)
while live.batches < 300:
    live.learn(stream.batch(jax.random.key(0), live.batches))
    if live.batches % 5 == 0:
        live.save(out)
(out / "ended").touch()
"""
TIMES = ("seconds", "iterations_per_second")

Moment = Callable[[Path], bool]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """All processes share what is compiled; otherwise they would do little else."""
    return {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("cache")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def command(arguments, out: Path) -> list:
    """A command of taskmix, or a script that is given the folder."""
    if isinstance(arguments, str):
        return [sys.executable, "-c", arguments, out]
    return [*COMMAND, *arguments, "--out", out]


def finished(arguments, out: Path, environment) -> Path:
    subprocess.run(command(arguments, out), env=environment, check=True, capture_output=True)
    return out


def killed(arguments, out: Path, environment, moment: Moment) -> bool:
    """Kill a run at a moment; whether it came to that before the end."""
    process = subprocess.Popen(
        command(arguments, out),
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while process.poll() is None and not moment(out):
        time.sleep(0.0005)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def evaluated(iteration: int) -> Moment:
    """As soon as that iteration stands in ``metrics.jsonl``."""
    word = f'{{"iteration": {iteration},'.encode()
    return lambda out: _exists(out / "metrics.jsonl") and word in _read(out / "metrics.jsonl")


def in_the_middle_of_a_checkpoint(count: int) -> Moment:
    """While a checkpoint is written: the so-manieth folder that has no final name yet."""
    seen: set[str] = set()

    def moment(out: Path) -> bool:
        if (out / "checkpoints").is_dir():
            seen.update(n for n in os.listdir(out / "checkpoints") if n.endswith(".partial"))
        return len(seen) >= count

    return moment


def after(seconds: float) -> Moment:
    """So long after the first evaluation."""
    began: list[float] = []

    def moment(out: Path) -> bool:
        if not began and _exists(out / "metrics.jsonl") and _read(out / "metrics.jsonl"):
            began.append(time.monotonic())
        return bool(began) and time.monotonic() - began[0] > seconds

    return moment


def checkpointed(count: int) -> Moment:
    """As soon as there is a checkpoint of that number, or a later one."""

    def moment(out: Path) -> bool:
        if not (out / "checkpoints").is_dir():
            return False
        return any(n.isdigit() and int(n) >= count for n in os.listdir(out / "checkpoints"))

    return moment


def _exists(path: Path) -> bool:
    return path.exists()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def outcome(out: Path) -> tuple[list, list, dict, dict[str, bytes]]:
    """All that must be the same, without times."""
    metrics, events = (
        [without_times(json.loads(line)) for line in (out / name).read_text().splitlines()]
        for name in ("metrics.jsonl", "events.jsonl")
    )
    summary = without_times(json.loads((out / "summary.json").read_text()))
    newest = max((out / "checkpoints").iterdir())
    arrays = load_file(newest / "checkpoint.safetensors")
    bits = {name: array.tobytes() for name, array in arrays.items()}
    return metrics, events, summary, bits


def without_times(content: dict) -> dict:
    return {name: value for name, value in content.items() if name not in TIMES}


def duration(arguments, out: Path, environment) -> float:
    """Seconds of training once everything is compiled."""
    lines = (finished(arguments, out, environment) / "metrics.jsonl").read_text().splitlines()
    return json.loads(lines[-1])["seconds"] - json.loads(lines[0])["seconds"]


def share_of(cases: list) -> list:
    return cases[:: max(round(1 / SHARE), 1)]


def assert_survives(
    arguments, moments: list[Moment], whole: Path, folder: Path, environment, outcome=outcome
):
    before, times = outcome(whole), 0
    moments = share_of(moments)
    for number, moment in enumerate(moments):
        out = folder / str(number)
        times += killed(arguments, out, environment, moment)
        assert outcome(finished(arguments, out, environment)) == before, f"moment {number}"
    print(f"\n{times} kills at {len(moments)} moments")
    assert times >= 0.8 * len(moments), "too many runs had ended before they could be killed"


def test_run_that_was_killed_ends_as_if_it_had_not_been(tmp_path, environment):
    whole = finished(MAML, tmp_path / "whole", environment)
    assert_survives(MAML, [evaluated(35)], whole, tmp_path, environment)


@pytest.mark.soak
def test_regression_survives_forty_kills(tmp_path, environment):
    whole = finished(REGRESSION, tmp_path / "whole", environment)
    spawns = json.loads((whole / "summary.json").read_text())["spawns"]
    assert spawns, "no cluster was opened, so nothing can be killed around it"
    seconds = duration(REGRESSION, tmp_path / "timed", environment)
    draw = random.Random(0)
    around = [
        evaluated(20 * (spawn // 20) + offset) for spawn in spawns[:2] for offset in (-20, 0, 20)
    ]
    writing = [in_the_middle_of_a_checkpoint(draw.randrange(1, 40)) for _ in range(10)]
    anywhere = [after(draw.random() * 0.8 * seconds) for _ in range(30 - len(around))]
    assert_survives(REGRESSION, around + writing + anywhere, whole, tmp_path, environment)


def damaged(out: Path, kind: str) -> None:
    """The newest checkpoint, as a bad disk would have it."""
    newest = max((out / "checkpoints").iterdir())
    arrays = newest / "checkpoint.safetensors"
    if kind == "gone":
        shutil.rmtree(newest)
    elif kind == "without arrays":
        arrays.unlink()
    elif kind == "without manifest":
        (newest / "manifest.json").unlink()
    elif kind == "cut off":
        os.truncate(arrays, arrays.stat().st_size // 2)
    elif kind == "empty":
        os.truncate(arrays, 0)
    else:
        content = bytearray(arrays.read_bytes())
        content[int(float(kind) * len(content))] ^= 16
        arrays.write_bytes(content)


DAMAGE = ("gone", "without arrays", "without manifest", "cut off", "empty")
FLIPPED = ("0.001", "0.25", "0.5", "0.75", "0.999")
"""Where a bit of the arrays is another one, as a share of their bytes."""


@pytest.mark.soak
def test_images_survive_ten_kills(tmp_path, environment):
    whole = finished(IMAGES, tmp_path / "whole", environment)
    seconds = duration(IMAGES, tmp_path / "timed", environment)
    draw = random.Random(1)
    moments = [after(draw.random() * 0.8 * seconds) for _ in range(7)]
    moments += [in_the_middle_of_a_checkpoint(draw.randrange(1, 15)) for _ in range(3)]
    assert_survives(IMAGES, moments, whole, tmp_path, environment)


def outcome_of_table(out: Path) -> dict[str, bytes]:
    names = ("result.json", "tasks.csv", "predictions.csv", "support.csv")
    return {name: (out / name).read_bytes() for name in names} | {
        path.name: path.read_bytes() for path in (out / "model").iterdir()
    }


def outcome_of_live(out: Path) -> dict[str, bytes]:
    arrays = load_file(max((out / "checkpoints").iterdir()) / "checkpoint.safetensors")
    return {name: array.tobytes() for name, array in arrays.items()}


@pytest.mark.soak
def test_a_table_survives_twenty_kills(tmp_path, environment):
    whole = finished(TABLE, tmp_path / "whole", environment)
    draw = random.Random(2)
    moments = [checkpointed(draw.randrange(1, 36)) for _ in range(12)]
    moments += [in_the_middle_of_a_checkpoint(draw.randrange(1, 36)) for _ in range(8)]
    assert_survives(TABLE, moments, whole, tmp_path, environment, outcome_of_table)


@pytest.mark.soak
def test_a_live_learner_survives_ten_kills(tmp_path, environment):
    whole = finished(LIVE, tmp_path / "whole", environment)
    draw = random.Random(3)
    moments = [checkpointed(draw.randrange(5, 280)) for _ in range(6)]
    moments += [in_the_middle_of_a_checkpoint(draw.randrange(1, 50)) for _ in range(4)]
    assert_survives(LIVE, moments, whole, tmp_path, environment, outcome_of_live)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["regression", "table", "live"])
def test_damaged_checkpoints_cost_the_way_from_the_one_before(tmp_path, environment, name):
    """Of a learner with reservoirs: a run, a table, a live learner; five ways and five bits."""
    arguments, moment, result = {
        "regression": (REGRESSION, evaluated(300), outcome),
        "table": (TABLE, checkpointed(20), outcome_of_table),
        "live": (LIVE, checkpointed(100), outcome_of_live),
    }[name]
    before = result(finished(arguments, tmp_path / "whole", environment))
    assert killed(arguments, tmp_path / "killed", environment, moment)
    for number, kind in enumerate(share_of([*DAMAGE, *FLIPPED])):
        out = tmp_path / str(number)
        shutil.copytree(tmp_path / "killed", out)
        damaged(out, kind)
        assert result(finished(arguments, out, environment)) == before, kind
