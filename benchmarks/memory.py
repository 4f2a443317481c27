"""How much memory training on an image store takes, beside the store itself.

Runs a few iterations of `few-shot` on the store, its final test included. Says how many bytes of
images were on the device at most, and how much memory the process had at most according to the
operating system: pages of its own (images on the device, intermediate results, compiled code), and
pages of files such as the memory-mapped store, which the system can drop at any time. Linux only.

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

import jax
import tyro
from rich.console import Console
from rich.table import Table

from taskmix.experiments import FewShot, method, run_method
from taskmix.stores import open_store
from taskmix.training import Settings

MEGABYTE = 2**20


def now() -> tuple[int, int, int]:
    """Bytes of images on the device, of pages of the process's own, and of pages of files."""
    images = sum(array.nbytes for array in jax.live_arrays() if array.dtype == "uint8")
    fields = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("RssAnon", "RssFile"):
            fields[name] = int(value.split()[0]) * 1024
    return images, fields["RssAnon"], fields["RssFile"]


class Peak(threading.Thread):
    """Looks every few milliseconds and remembers the most it saw."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = now()

    def run(self) -> None:
        while True:
            self.most = tuple(map(max, self.most, now()))
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
    learner = method("maml").recipe.build(experiment.shared())
    _, start, _ = now()
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
    images, own, files = peak.most
    rows = {
        "the store": total,
        "images on the device, at most": images,
        "own pages before": start,
        "own pages at most": own,
        "pages of files at most": files,
    }
    for name, value in rows.items():
        table.add_row(name, f"{value / MEGABYTE:.0f}", f"{value / total:.2f}")
    Console().print(table)


if __name__ == "__main__":
    tyro.cli(main)
