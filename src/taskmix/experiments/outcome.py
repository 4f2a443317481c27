"""Runs that have ended, read from their folders to be judged."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from taskmix.files import LARGEST_LINES, inside, read_bytes
from taskmix.streams import Phase
from taskmix.training.run_folder import CHECKSUMS, check_results, read_json


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One run that has ended, as its folder tells it."""

    method: str
    seed: int
    phases: tuple[Phase, ...]
    summary: Mapping[str, Any]
    metrics: Sequence[Mapping[str, Any]]
    """Every evaluation, in order."""
    events: Sequence[Mapping[str, Any]]
    seconds: float
    """Its part of the time that the seeds trained side by side took together."""

    @staticmethod
    def read(folder: Path) -> Outcome:
        if (folder / CHECKSUMS).exists():
            check_results(folder)
        config, summary = (read_json(folder / f"{name}.json") for name in ("config", "summary"))
        return Outcome(
            config["method"],
            config["seed"],
            tuple(Phase(p["start"], p["stop"], tuple(p["families"])) for p in config["phases"]),
            summary,
            _lines(folder / "metrics.jsonl"),
            _lines(folder / "events.jsonl"),
            summary["seconds"] / len(config["seeds_side_by_side"]),
        )

    @property
    def families(self) -> tuple[str, ...]:
        """Those that can be learned."""
        return tuple(name for name in self.summary["final"] if name != "noise")

    @property
    def errors(self) -> dict[str, float]:
        """Of each family's test tasks at the end."""
        return {name: number(self.summary["final"][name]["error"]) for name in self.families}

    @property
    def mean_error(self) -> float:
        return float(np.mean(list(self.errors.values())))

    def at(self, iteration: int) -> Mapping[str, Any]:
        """The evaluation after so many iterations."""
        return next(line for line in self.metrics if line["iteration"] == iteration)

    def lasting_births(self) -> list[int]:
        """When the clusters that are alive at the end were born, but for the founders."""
        alive = self.metrics[-1]["cluster_ids"]
        return [
            event["iteration"]
            for event in self.events
            if event["event"] == "spawned" and event["cluster"] in alive
        ]


def read_outcomes(folder: Path) -> list[Outcome]:
    """Every run of a comparison that has ended, by method and seed."""
    ended = sorted(folder.glob("*/seed-*/summary.json"))
    found = [Outcome.read(inside(folder, *path.parent.parts[-2:])) for path in ended]
    return sorted(found, key=lambda outcome: (outcome.method, outcome.seed))


def number(value: float | None) -> float:
    """As JSON has it: None is what was not finite."""
    return math.nan if value is None else float(value)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read_bytes(path, LARGEST_LINES).splitlines()]
