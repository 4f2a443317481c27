"""Write docs/benchmarks.md: ours beside others, measured in one run on one core.

Installs the others, as far as that works, into an environment of its own; what cannot be had is
named with the reason. Takes about a quarter of an hour on an idle core.

    python benchmarks/page.py
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

import tyro

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
PEERS = ("torch==2.13.0", "torchopt", "higher", "learn2learn")
"""One at a time, so that one that does not build leaves the others."""
PATIENCE = 600
"""Seconds for the installation of one."""

GEMM = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
import jax, jax.numpy as jnp
a = jnp.ones((1024, 1024))
product = jax.jit(lambda a: a @ a)
product(a).block_until_ready()
best = 1e9
for _ in range(20):
    started = time.process_time()
    product(a).block_until_ready()
    best = min(best, time.process_time() - started)
print(2 * 1024**3 / best)
"""


def environment(folder: Path) -> tuple[Path, dict[str, str]]:
    """A Python with taskmix and the others, and why some of them are missing."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    missing: dict[str, str] = {}
    pinned = ["-c", str(ROOT / "constraints.txt")]
    installed(python, ["-e", str(ROOT), *pinned], "taskmix", {})
    for peer in PEERS:
        installed(python, [peer], peer.partition("==")[0], missing)
    return python, missing


def installed(python: Path, what: list[str], name: str, missing: dict[str, str]) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        missing[name] = f"its installation took more than {PATIENCE} seconds"
        return
    if ran.returncode:
        errors = [line for line in ran.stderr.splitlines() if "error" in line.lower()]
        missing[name] = (errors or ["pip failed"])[-1].strip()[:200]


def measured(python: Path, script: str, out: Path, *arguments: str) -> dict[str, Any]:
    """What a benchmark wrote, or why it did not."""
    command = [str(python), str(ROOT / "benchmarks" / script), "--json-out", str(out), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if ran.returncode:
        return {"failed": (ran.stderr.strip().splitlines() or ["no reason given"])[-1][:300]}
    return json.loads(out.read_text())


def spread(times: list[float], scale: float = 1e3) -> str:
    """Median and range."""
    low, middle, high = (scale * f(times) for f in (min, statistics.median, max))
    return f"{middle:.3g} ({low:.3g} to {high:.3g})"


def of_peers(found: dict[str, Any], missing: dict[str, str]) -> list[str]:
    lines = [
        "## A second-order meta-gradient of the regression network",
        "",
        "Ten tasks of 5 support and 10 query points, 1-40-40-1, five inner steps, Adam "
        "(`benchmarks/peers.py`). All reach the same loss.",
        "",
    ]
    if "failed" in found:
        return [*lines, f"Not measured: {found['failed']}", ""]
    lines += ["| | ms per iteration, median (range) | times taskmix |", "|---|---|---|"]
    ours = statistics.median(found["seconds"]["taskmix"])
    for name, times in found["seconds"].items():
        lines.append(f"| {name} | {spread(times)} | {statistics.median(times) / ours:.1f} |")
    # What pip said explains more than that it cannot be imported.
    for name, why in {**found["missing"], **missing}.items():
        lines.append(f"| {name} | missing: {why} | |")
    return [*lines, ""]


def of_images(found: dict[str, Any], peak: float) -> list[str]:
    lines = [
        "## A second-order meta-gradient of Conv4",
        "",
        "Four tasks, 5 classes, 1 support and 15 query images per class, Adam "
        "(`benchmarks/images.py`). The share of the peak is the operations that XLA counts in our "
        "program, per second, of those of a product of two 1024 x 1024 matrices on the same core "
        f"({peak / 1e9:.0f} GFLOP/s).",
        "",
    ]
    if "failed" in found:
        return [*lines, f"Not measured: {found['failed']}", ""]
    lines += [
        "| size | inner steps | | ms per iteration, median (range) | times taskmix | share of the "
        "GEMM peak |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        ours = statistics.median(row["seconds"]["taskmix"])
        for name, times in row["seconds"].items():
            middle = statistics.median(times)
            share = f"{row['flops'] / ours / peak:.0%}" if name == "taskmix" else ""
            cells = [
                str(row["size"]),
                str(row["steps"]),
                name,
                spread(times),
                f"{middle / ours:.2f}",
            ]
            lines.append(f"| {' | '.join([*cells, share])} |")
    memory = found["peak_memory"] / 2**20
    return [*lines, "", f"Peak memory of the process, PyTorch included: {memory:.0f} MB.", ""]


def of_growth(found: dict[str, Any]) -> list[str]:
    lines = [
        "## How a step of the default learner grows",
        "",
        "`nonparametric` on the paper's regression, 10 tasks per batch and three clusters unless "
        "said otherwise (`benchmarks/growth.py`). Clusters are in use by the recent past, but for "
        "the dormant ones.",
        "",
    ]
    if "failed" in found:
        return [*lines, f"Not measured: {found['failed']}", ""]
    titles = {
        "clusters": "clusters in use",
        "dormant": "dormant clusters beside three in use",
        "tasks": "tasks per batch",
        "width": "width of both hidden layers",
        "reservoir": "places of a reservoir",
    }
    for kind, title in titles.items():
        lines += [
            f"| {title} | ms per step, median (range) | times the first | |",
            "|---|---|---|---|",
        ]
        first = found[kind][0]
        for entry in found[kind]:
            ratio = entry["median"] / first["median"]
            size = f"{entry['value'] / first['value']:g} x the size" if first["value"] else ""
            cells = (str(entry["value"]), spread(entry["times"]), f"{ratio:.2f}", size)
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return [*lines, f"Peak memory of the process: {found['peak_memory'] / 2**20:.0f} MB.", ""]


def machine() -> str:
    model = platform.processor() or platform.machine()
    cpu = Path("/proc/cpuinfo")
    if cpu.exists():
        names = [line for line in cpu.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def main(core: int = 0, quick: bool = False, env: Path = ROOT / "build" / "bench") -> None:
    """Measure and write the page.

    Args:
        core: The core to run on.
        quick: Fewer sizes and repeats, to see that it works; the page says so.
        env: Folder for the environment with the others.
    """
    started = time.monotonic()
    python, missing = environment(env)
    fewer = ("--core", str(core), *(("--repeats", "3") if quick else ()))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.json")
        ran = subprocess.run(
            [str(python), "-c", GEMM, str(core)], capture_output=True, text=True, check=True
        )
        peak = float(ran.stdout)
        peers = measured(python, "peers.py", out, *fewer)
        sizes = ("--sizes", "32") if quick else ("--sizes", "32", "84")
        repeats = ("--repeats", "3" if quick else "5")
        images = measured(python, "images.py", out, "--cores", str(core), *sizes, *repeats)
        growth = measured(python, "growth.py", out, *fewer, *(("--quick",) if quick else ()))
    versions = subprocess.run(
        [str(python), "-m", "pip", "list", "--format=freeze"], capture_output=True, text=True
    ).stdout.splitlines()
    told = [
        v
        for v in versions
        if v.split("==")[0] in ("jax", "jaxlib", "torch", "higher", "torchopt", "learn2learn")
    ]
    lines = [
        "# Benchmarks",
        "",
        "`make bench` wrote this page. Candidates take turns in one process on one core, and times "
        "are processor time, so that other programs matter less; ratios matter, milliseconds are "
        "those of this machine:",
        "",
        f"{machine()}; {', '.join(told)}; {(time.monotonic() - started) / 60:.0f} minutes"
        f"{'; a quick run with few repeats' if quick else ''}.",
        "",
        *of_peers(peers, missing),
        *of_images(images, peak),
        *of_growth(growth),
    ]
    PAGE.write_text("\n".join(lines).rstrip() + "\n")
    print(f"wrote {PAGE.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    tyro.cli(main)
