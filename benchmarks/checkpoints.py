"""What checkpoints cost: the time to write one, beside the interval between two.

Trains each experiment for a few iterations, then writes the checkpoint of its state again and
again, as a run does it: arrays and lines to disk, with checksums, waiting for the disk.

    python benchmarks/checkpoints.py
"""

from __future__ import annotations

import dataclasses
import statistics
import tempfile
import time
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from taskmix.experiments import EXPERIMENTS, method
from taskmix.experiments.group import Group, Keeping
from taskmix.training import Chunk, RunFolder, Settings, train

SMALL = {"regression": {"lengths": (4, 2, 2)}, "evolving-images": {"lengths": (2, 2, 2)}}


def seconds_to_save(experiment: str, repeats: int, lines: int) -> tuple[float, int]:
    """Median seconds of one checkpoint, and its bytes, after as many ``lines`` of metrics."""
    chosen = dataclasses.replace(EXPERIMENTS[experiment]("cpu"), **SMALL[experiment])
    learner = method("nonparametric").recipe.build(chosen.shared())
    stream = chosen.stream()
    chunks: list[Chunk] = []
    train(learner, stream, [0], Settings(evaluate_every=2, test_tasks=100), chunks.append)
    with tempfile.TemporaryDirectory() as name:
        folder = RunFolder.open(Path(name) / "run", {})
        group = Group(learner, stream, [folder], Keeping(keep=2), stops_early=False)
        folder.begin({})
        for chunk in chunks:
            group.add(chunk)
        line = (folder.path / "metrics.jsonl").read_bytes().splitlines()[-1]
        for _ in range(lines):
            folder.metrics.add({"line": line.decode()})
        taken = []
        for number in range(repeats):
            started = time.perf_counter()
            group.save(dataclasses.replace(chunks[-1], iteration=1000 + number))
            taken.append(time.perf_counter() - started)
        newest = max((folder.path / "checkpoints").iterdir())
        size = sum(file.stat().st_size for file in newest.iterdir())
    return statistics.median(taken), size


def main(repeats: int = 20, lines: int = 400) -> None:
    interval = 60 * Keeping().checkpoint_minutes
    table = Table("experiment", "bytes", "ms", f"of {interval:.0f} s")
    for experiment in SMALL:
        seconds, size = seconds_to_save(experiment, repeats, lines)
        share = f"{seconds / interval:.4%}"
        table.add_row(experiment, f"{size:,}", f"{1000 * seconds:.1f}", share)
    Console().print(table)


if __name__ == "__main__":
    tyro.cli(main)
