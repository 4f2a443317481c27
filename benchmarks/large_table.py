"""Time and memory of a table by its number of rows: both must not run away with it.

A made-up CSV file (tasks of 20 rows; two numbers, an hour, a text, times in order) is read,
prepared and learned from with default settings, each size in a process of its own, whose largest
memory the system reports. The time per row must stay within a constant factor from one size to
the next, and the memory below 2 GB. Compilation is counted; it is what small tables pay for. Time
is that of the processor, as other programs may run beside it.

    python benchmarks/large_table.py --rows 100000 1000000 10000000
"""

from __future__ import annotations

import dataclasses
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
import tyro
from rich.console import Console
from rich.table import Table

REPOSITORY = Path(__file__).resolve().parents[1]
ROWS_PER_TASK = 20
PIECE = 200_000
LIMIT = 2048
"""MB that a process may have at any time."""
FACTOR = 3.0
"""How much longer per row a table may take than the one before it."""


@dataclasses.dataclass(frozen=True)
class Flags:
    """Learn from made-up tables of several sizes."""

    rows: tuple[int, ...] = (100_000, 1_000_000)
    out: Path = REPOSITORY / "results" / "tables" / "large.json"
    rivals: bool = False
    """Measure the rivals as well."""
    one: Path | None = None
    """Learn from this file and print what it took; how the processes are started."""


def write(path: Path, rows: int) -> None:
    """Piece by piece: the file must not cost the memory that is measured."""
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        for start in range(0, rows, PIECE):
            count = min(PIECE, rows - start)
            number = np.arange(start, start + count)
            task, hour = number // ROWS_PER_TASK, number % 24
            a, b = rng.normal(size=(2, count))
            level = np.sin(task) + (task > rows // ROWS_PER_TASK // 2) * a * b
            frame = pl.DataFrame(
                {
                    "task": task,
                    "when": number,
                    "a": a.round(4),
                    "b": b.round(4),
                    "hour": hour,
                    "colour": np.array(["red", "green", "blue"])[rng.integers(0, 3, count)],
                    "y": (level + 2 * a - np.cos(hour / 24 * 6.28) + 0.1 * b).round(4),
                }
            )
            frame.write_csv(file, include_header=start == 0)


def learn(path: Path, rivals: bool) -> dict[str, float]:
    """In this process: seconds, error and the largest memory it ever had, in MB."""
    from taskmix.estimator import TableLearner

    started = time.perf_counter()
    learner = TableLearner("task", "y", time="when", inputs=["a", "b", "hour", "colour"])
    result = learner.fit_online(path, rivals=rivals)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    now = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(time.process_time(), 1),
        "peak_mb": round(peak),
        "end_mb": round(now),
        "error": result.error.value,
        "batch": learner.chosen_["batch"],
        "updates": learner.chosen_["updates"],
    }


def main(flags: Flags) -> None:
    if flags.one is not None:
        print(json.dumps(learn(flags.one, flags.rivals)))
        return
    found = []
    for rows in flags.rows:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "table.csv"
            write(path, rows)
            command = [sys.executable, __file__, "--one", str(path)]
            command += ["--rivals"] if flags.rivals else ["--no-rivals"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        measured = json.loads(done.stdout.splitlines()[-1])
        found.append({"rows": rows, **measured})
        flags.out.parent.mkdir(parents=True, exist_ok=True)
        flags.out.write_text(json.dumps({"rivals": flags.rivals, "sizes": found}, indent=2) + "\n")
    show(found)


def show(found: list[dict[str, float]]) -> None:
    table = Table(title=f"Tables of tasks of {ROWS_PER_TASK} rows")
    for heading in ("rows", "seconds", "CPU us per row", "peak MB", "MB at the end", "error"):
        table.add_column(heading, justify="right")
    before = None
    for one in found:
        each = 1e6 * one["cpu_seconds"] / one["rows"]
        slow = before is not None and each > FACTOR * before
        marks = " too slow" if slow else "", " too much" if one["peak_mb"] > LIMIT else ""
        table.add_row(
            f"{one['rows']:,}",
            f"{one['seconds']:.0f}",
            f"{each:.0f}{marks[0]}",
            f"{one['peak_mb']:.0f}{marks[1]}",
            f"{one['end_mb']:.0f}",
            f"{one['error']:.4f}",
        )
        before = each
    Console().print(table)


if __name__ == "__main__":
    main(tyro.cli(Flags))
