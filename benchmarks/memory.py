"""How much memory training on an image store takes, beside the store itself.

Runs a few iterations of `few-shot` on the store, its final test included, and reads from the
operating system how much memory the process had at most: pages of its own, and pages of files
such as the memory-mapped store, which the system can drop at any time. Linux only.

    taskmix data prepare mini-imagenet.zip --out stores/mini84 --size 84
    python benchmarks/memory.py stores/mini84 --test-split val
"""

from __future__ import annotations

import dataclasses
import tempfile
import threading
import time
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from taskmix.experiments import FewShot, build_learner, method, run_method
from taskmix.stores import open_store
from taskmix.training import Settings

MEGABYTE = 2**20


def now() -> tuple[int, int]:
    """Bytes of the process: pages of its own, and pages of files."""
    fields = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("RssAnon", "RssFile"):
            fields[name] = int(value.split()[0]) * 1024
    return fields["RssAnon"], fields["RssFile"]


class Peak(threading.Thread):
    """Looks every few milliseconds and remembers the most it saw."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.own, self.files = now()

    def run(self) -> None:
        while True:
            own, files = now()
            self.own, self.files = max(self.own, own), max(self.files, files)
            time.sleep(0.01)


def main(
    store: Annotated[str, tyro.conf.Positional], test_split: str = "test", iterations: int = 20
) -> None:
    opened = open_store(store)
    size = opened.size
    total = sum(file.stat().st_size for file in Path(store).glob("*.npy"))
    experiment = dataclasses.replace(
        FewShot(), data=store, size=size, test_split=test_split, iterations=iterations
    )
    learner = build_learner(method("maml").build, experiment.learner_settings(), {})
    start = now()[0]
    peak = Peak()
    peak.start()
    with tempfile.TemporaryDirectory() as folder:
        run_method(
            experiment,
            {"experiment": "few-shot", "method": "maml"},
            learner,
            [0],
            lambda seed: Path(folder, "run"),
            Settings(evaluate_every=iterations, test_tasks=20),
            Console(quiet=True),
        )
    table = Table(title=f"few-shot on {store}")
    for column in ("", "MB", "of the store"):
        table.add_column(column, justify="right" if column else "left")
    rows = {
        "the store": total,
        "own pages before": start,
        "own pages at most": peak.own,
        "pages of files at most": peak.files,
    }
    for name, value in rows.items():
        table.add_row(name, f"{value / MEGABYTE:.0f}", f"{value / total:.2f}")
    Console().print(table)


if __name__ == "__main__":
    tyro.cli(main)
