"""How strongly should a learner hold on to what it knows?

Trains each method with several values of the one setting that decides it (for platipus: how
closely the posterior of a task keeps to its prior), on seeds that nothing is reported on.
docs/baselines.md shows the result.

    python benchmarks/strengths.py regression
    python benchmarks/strengths.py evolving-images --experiment.data stores/mini32 \
        --experiment.test-split val --experiment.lengths 300 300 180
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.console import Console

from taskmix.experiments import Experiment, Regression, method, run_method
from taskmix.experiments.images import EvolvingImages
from taskmix.names import unknown
from taskmix.training import Settings

TENS = (0.1, 1.0, 10.0, 100.0, 1e3, 1e4)
GRID: Mapping[str, tuple[str, Sequence[float]]] = {
    "ewc": ("strength", TENS),
    "online-ewc": ("strength", TENS),
    "si": ("strength", (0.01, *TENS[:-1])),
    "laplace": ("strength", TENS),
    "vcl": ("phase_tasks", (20, 200, 2000, 20_000, 200_000)),
    "c-maml": ("fast_rate", (0.003, 0.01, 0.03, 0.1)),
    "platipus": ("kl_weight", (0.0025, 0.025, 0.25, 1.0, 10.0)),
}
"""The setting of each method, and the values to try. 200,000 is the bound for `vcl` in the first
phase of the regression: 40,000 tasks with 10 queries, a nat being 2 of the loss."""


@dataclasses.dataclass(frozen=True)
class Flags:
    """Compare strengths of learners."""

    seeds: tuple[int, ...] = (0, 1)
    methods: tuple[str, ...] = tuple(GRID)
    values: tuple[float, ...] = ()
    """What to try instead of the values of the grid."""
    test_tasks: int = 100


@dataclasses.dataclass(frozen=True)
class RegressionFlags(Flags):
    experiment: Regression = Regression()


@dataclasses.dataclass(frozen=True)
class ImageFlags(Flags):
    experiment: EvolvingImages = EvolvingImages()


def tried(experiment: Experiment, flags: Flags, name: str, own: dict[str, Any]) -> list[float]:
    """Means over seeds: of the measure at the end, before learning, and of forgetting."""
    learner = method(name).recipe.build(experiment.shared(), own)
    settings = Settings(evaluate_every=10**9, test_tasks=flags.test_tasks)
    with tempfile.TemporaryDirectory() as folder:
        summaries = run_method(
            experiment,
            {"experiment": "strengths", "method": name},
            learner,
            flags.seeds,
            lambda seed: Path(folder, str(seed)),
            settings,
            Console(quiet=True),
        )
    measure = summaries[0]["measure"]
    end = [one[measure] for summary in summaries for one in summary["final"].values()]
    before = [one for summary in summaries for one in summary["prequential"].values()]
    forgetting = [summary["mean_forgetting"] for summary in summaries]
    return [float(np.mean(values)) for values in (end, before, forgetting)]


def main(flags: RegressionFlags | ImageFlags) -> None:
    for name in flags.methods:
        if name not in GRID:
            raise unknown("method", name, GRID)
    print("| method | setting | value | at the end | before learning | forgetting |")
    print("|---|---|---|---|---|---|")
    for name in flags.methods:
        setting, values = GRID[name]
        for value in flags.values or values:
            found = tried(flags.experiment, flags, name, {setting: value})
            row = (name, setting, f"{value:g}", *(f"{one:.4f}" for one in found))
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main(
        tyro.cli(
            Annotated[RegressionFlags, tyro.conf.subcommand("regression")]
            | Annotated[ImageFlags, tyro.conf.subcommand("evolving-images")],
            default=RegressionFlags(),
        )
    )
