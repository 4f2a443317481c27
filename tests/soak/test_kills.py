"""Runs that are killed with SIGKILL, and go on: they end with the bits of a run that was not.

    pytest -m soak tests/soak/test_kills.py -s

prints how many were killed. What a kill leaves behind is what is on the disk at that moment. So
one run is killed at several moments: at each it is stopped (SIGSTOP), which halts every thread of
it, its folder is copied, and it goes on; at the last it is killed.
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
from typing import NamedTuple

import jax
import pytest
from safetensors.numpy import load_file

COMMAND = [sys.executable, "-c", "import sys; from taskmix.cli import main; sys.exit(main())"]
OFTEN = ("--checkpoint-minutes", "0", "--quiet")
MAML = (
    *("run", "regression", "--method", "maml", "--families", "linear", "step"),
    *("--lengths", "60", "40", "--tasks", "2", "--hidden", "4", "--adaptation.steps", "1"),
    *("--evaluate-every", "5", "--test-tasks", "3", *OFTEN),
)
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
COMMANDS = """
import sys
from taskmix.cli import main
for out in sys.argv[1:]:
    if code := main([*{command!r}, "--out", out]):
        sys.exit(code)
"""
TABLE = """
import sys, taskmix as tm
from taskmix.tables.example import heaters
small = {"capacity": 2, "reservoir": 20, "reference": 20}
columns = {"task": "run", "target": "degrees", "time": "run", "split": "random", "support": 5}
often = tm.Keeping(checkpoint_iterations=1)
for out in sys.argv[1:]:
    tm.run_table(heaters(runs=200), out, keeping=often, hidden=(8,), settings=small, **columns)
"""
"""Every wave of tasks ends with a checkpoint."""
LIVE = """
import sys, jax, taskmix as tm
from pathlib import Path
stream = tm.streams.regression(("polynomial", "sinusoid"), (60, 60), tasks=4)
batch = jax.jit(stream.batch)
head = tm.BayesianHead(tm.MLP(hidden=(8,), outputs=8, activation="tanh"), width=8)
learner = tm.OnlineMixture(head, capacity=2, reservoir=20, reference=20)
for out in map(Path, sys.argv[1:]):
    live = tm.Live.load(learner, out) if (out / "checkpoints").is_dir() else tm.Live(learner)
    while live.batches < 120:
        live.learn(batch(jax.random.key(0), live.batches))
        if live.batches % 5 == 0:
            live.save(out)
    (out / "ended").touch()
"""
TIMES = ("seconds", "iterations_per_second")
EACH = 20
"""Moments of one run."""


class Moment(NamedTuple):
    """When a run has come so far; if asked for, while it writes the checkpoint after that."""

    after: int
    """An iteration in ``metrics.jsonl``, or the number of a checkpoint."""
    seconds: float = 0.0
    """After which it is looked for something to stop."""
    writing: bool = False

    def reached(self, out: Path, come: Callable[[Path, int], bool]) -> bool:
        return come(out, self.after) and (not self.writing or bool(unfinished(out)))


def unfinished(out: Path) -> list[str]:
    """Folders of checkpoints that have no final name yet."""
    return [n for n in _listed(out / "checkpoints") if n.endswith(".partial")]


def shared(tmp_path_factory) -> dict[str, str]:
    """An environment whose processes share what is compiled; they would do little else."""
    kept = jax.config.jax_compilation_cache_dir or tmp_path_factory.mktemp("cache")
    return {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(kept),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    return shared(tmp_path_factory)


def script(arguments, *outs: Path) -> list:
    """A command of taskmix, or a script, for one folder after the other in one process."""
    text = arguments if isinstance(arguments, str) else COMMANDS.format(command=list(arguments))
    return [sys.executable, "-c", text, *outs]


def finished(arguments, *outs: Path, environment) -> Path:
    """The last of the folders; what is traced for the first serves all of them."""
    ended = subprocess.run(script(arguments, *outs), env=environment, capture_output=True)
    assert ended.returncode == 0, ended.stderr.decode()[-2000:]
    return outs[-1]


def killed(arguments, moments: list[Moment], folder: Path, come, environment) -> list[Path]:
    """Folders of a run as a kill leaves them at each of the moments it came to."""
    out, left = folder / "running", []
    process = subprocess.Popen(
        script(arguments, out),
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for number, moment in enumerate(moments):
        while process.poll() is None and not come(out, moment.after):
            time.sleep(0.002)
        time.sleep(moment.seconds)
        while process.poll() is None and not moment.reached(out, come):
            time.sleep(0.0002)
        copy = folder / f"{folder.name}-{number}"
        if number == len(moments) - 1:
            process.kill()
            if process.wait() == -signal.SIGKILL:
                left.append(out.rename(copy))
        elif process.poll() is None:
            process.send_signal(signal.SIGSTOP)
            _, how = os.waitpid(process.pid, os.WUNTRACED)
            if not os.WIFSTOPPED(how):
                break
            left.append(shutil.copytree(out, copy))
            process.send_signal(signal.SIGCONT)
    return left


def evaluated(out: Path, iteration: int) -> bool:
    """Whether that iteration stands in ``metrics.jsonl``."""
    return f'{{"iteration": {iteration},'.encode() in _read(out / "metrics.jsonl")


def checkpointed(out: Path, count: int) -> bool:
    """Whether there is a checkpoint of that number, or a later one."""
    return any(n.isdigit() and int(n) >= count for n in _listed(out / "checkpoints"))


def _listed(path: Path) -> list[str]:
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []


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


def outcome_of_table(out: Path) -> dict[str, bytes]:
    names = ("result.json", "tasks.csv", "predictions.csv", "support.csv")
    return {name: (out / name).read_bytes() for name in names} | {
        path.name: path.read_bytes() for path in (out / "model").iterdir()
    }


def outcome_of_live(out: Path) -> dict[str, bytes]:
    arrays = load_file(max((out / "checkpoints").iterdir()) / "checkpoint.safetensors")
    return {name: array.tobytes() for name, array in arrays.items()}


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


class Suite(NamedTuple):
    """What is run, how far it has come, what it leaves, and the length of its stream."""

    arguments: tuple[str, ...] | str
    come: Callable[[Path, int], bool]
    outcome: Callable[[Path], object]
    step: int
    """Between two evaluations, or two checkpoints."""
    stop: int


SUITES = {
    "maml": Suite(MAML, evaluated, outcome, 5, 95),
    "regression": Suite(REGRESSION, evaluated, outcome, 20, 480),
    "images": Suite(IMAGES, evaluated, outcome, 5, 95),
    "table": Suite(TABLE, checkpointed, outcome_of_table, 1, 36),
    "live": Suite(LIVE, checkpointed, outcome_of_live, 5, 115),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory, environment):
    """Runs that nobody interrupts, each made once."""
    made: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in made:
            out = tmp_path_factory.mktemp("whole") / name
            made[name] = finished(SUITES[name].arguments, out, environment=environment)
        return made[name]

    return of


def drawn(suite: Suite, count: int, writing: int, seed: int) -> list[Moment]:
    """Anywhere in the stream, so many of them while a checkpoint is written."""
    draw = random.Random(seed)
    steps = suite.stop // suite.step
    return [
        Moment(suite.step * draw.randrange(steps), draw.random() * 0.02, number < writing)
        for number in range(count)
    ]


def assert_survives(name: str, moments: list[Moment], whole, folder: Path, environment) -> None:
    suite = SUITES[name]
    before, left = suite.outcome(whole(name)), []
    runs = -(-len(moments) // EACH)
    for number in range(runs):
        # Every run has moments from everywhere, one after the other.
        some = sorted(moments)[number::runs]
        place = folder / f"run-{number}"
        place.mkdir()
        left += killed(suite.arguments, some, place, suite.come, environment)
    torn = sum(bool(unfinished(out)) for out in left)
    finished(suite.arguments, *left, environment=environment)
    for out in left:
        assert suite.outcome(out) == before, out.name
    print(f"\n{name}: {len(left)} of {len(moments)} moments, {torn} with half a checkpoint")
    assert len(left) >= 0.8 * len(moments), "too many moments came after the end"
    assert torn or not any(moment.writing for moment in moments), "no checkpoint was torn"


def test_run_that_was_killed_ends_as_if_it_had_not_been(tmp_path, environment, whole):
    assert_survives("maml", [Moment(35), Moment(60)], whole, tmp_path, environment)


@pytest.mark.soak
def test_regression_survives_forty_kills(tmp_path, environment, whole):
    spawns = json.loads((whole("regression") / "summary.json").read_text())["spawns"]
    assert spawns, "no cluster was opened, so nothing can be killed around it"
    around = [
        Moment(20 * (spawn // 20) + offset) for spawn in spawns[:2] for offset in (-20, 0, 20)
    ]
    anywhere = drawn(SUITES["regression"], 40 - len(around), 10, 0)
    assert_survives("regression", around + anywhere, whole, tmp_path, environment)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "count", "writing"), [("images", 10, 3), ("table", 20, 8), ("live", 10, 4)]
)
def test_everything_else_survives_ten_or_twenty_kills(
    tmp_path, environment, whole, name, count, writing
):
    moments = drawn(SUITES[name], count, writing, count)
    assert_survives(name, moments, whole, tmp_path, environment)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "moment"),
    [("regression", Moment(300)), ("table", Moment(20)), ("live", Moment(60))],
)
def test_damaged_checkpoints_cost_the_way_from_the_one_before(
    tmp_path, environment, whole, name, moment
):
    """Of a learner with reservoirs: a run, a table, a live learner; five ways and five bits."""
    suite = SUITES[name]
    before = suite.outcome(whole(name))
    (left,) = killed(suite.arguments, [moment], tmp_path, suite.come, environment)
    outs = []
    for kind in (*DAMAGE, *FLIPPED):
        outs.append(shutil.copytree(left, tmp_path / kind))
        damaged(outs[-1], kind)
    finished(suite.arguments, *outs, environment=environment)
    for out in outs:
        assert suite.outcome(out) == before, out.name
