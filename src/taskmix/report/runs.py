"""Run folders as arrays.

Of ``config.json`` this reads ``method``, ``seed``, ``measure`` and ``phases``, a list of
``{"start": 0, "stop": 4000, "families": ["polynomial"]}``.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from taskmix.likelihood import Measure
from taskmix.streams.stream import Phase


@dataclasses.dataclass(frozen=True)
class Run:
    """One run: what it was told to do, every evaluation, every event, and the summary."""

    config: dict[str, Any]
    method: str
    seed: int
    measure: Measure
    """What is reported: the error, or the accuracy, which is one minus it."""
    phases: tuple[Phase, ...]
    families: tuple[str, ...]
    iterations: Int[np.ndarray, " evaluations"]
    clusters: Int[np.ndarray, " evaluations"]
    error: Float[np.ndarray, "families evaluations"]
    ci95: Float[np.ndarray, "families evaluations"]
    oracle: Float[np.ndarray, "families evaluations"]
    component_error: Float[np.ndarray, "families evaluations clusters"]
    """NaN where a cluster does not exist yet, or has diverged."""
    responsibilities: Float[np.ndarray, "families evaluations clusters"]
    """NaN where a cluster does not exist yet."""
    events: tuple[dict[str, Any], ...]
    summary: dict[str, Any] | None
    """None while the run is not finished."""

    @property
    def reported(self) -> Float[np.ndarray, "families evaluations"]:
        """Test error, or accuracy in per cent."""
        return self.error if self.measure == "error" else 100 * (1 - self.error)

    @property
    def scale(self) -> str | None:
        """The scale of an experiment that has several."""
        return self.config.get("settings", {}).get("scale")

    @property
    def spawns(self) -> tuple[int, ...]:
        """The iterations that opened a cluster; the first of them opened the second cluster."""
        return tuple(e["iteration"] for e in self.events if e["event"] == "spawned")


def read_run(folder: Path | str) -> Run:
    """Read a run folder, finished or not."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; give the folder that a run wrote.")
    config = _read_json(folder / "config.json")
    lines = _read_lines(folder / "metrics.jsonl")
    if not lines:
        raise ValueError(f"{folder / 'metrics.jsonl'} has no evaluation yet; let the run go on.")
    events, summary = folder / "events.jsonl", folder / "summary.json"
    try:
        families = tuple(lines[0]["families"])
        of_family = [[line["families"][family] for line in lines] for family in families]
        return Run(
            config=config,
            method=config["method"],
            seed=config["seed"],
            measure=config.get("measure", "error"),
            phases=tuple(
                Phase(phase["start"], phase["stop"], tuple(phase["families"]))
                for phase in config["phases"]
            ),
            families=families,
            iterations=np.array([line["iteration"] for line in lines]),
            clusters=np.array([line["clusters"] for line in lines]),
            error=_scalars(of_family, "error"),
            ci95=_scalars(of_family, "ci95"),
            oracle=_scalars(of_family, "oracle"),
            component_error=_padded(of_family, "component_error"),
            responsibilities=_padded(of_family, "responsibilities"),
            events=tuple(_read_lines(events)) if events.exists() else (),
            summary=_read_json(summary) if summary.exists() else None,
        )
    except KeyError as missing:
        raise ValueError(
            f"{folder}: config.json or metrics.jsonl has no {missing}; "
            f"the folder is of another version or not of a run. Repeat the run."
        ) from missing
    except (TypeError, AttributeError, IndexError, OverflowError) as error:
        raise ValueError(
            f"{folder}: config.json or metrics.jsonl holds what no run writes ({error}). "
            f"Repeat the run."
        ) from error


def read_runs(folder: Path | str) -> tuple[Run, ...]:
    """Every run below a folder of a comparison, in the order of their paths."""
    folder = Path(folder)
    runs = tuple(read_run(config.parent) for config in sorted(folder.rglob("config.json")))
    if not runs:
        raise ValueError(f"There is no run (no config.json) in {folder}; give the right folder.")
    return runs


def by_method(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Runs of each method, by seed; the runs of a method must have the same evaluations."""
    groups: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        groups.setdefault(run.method, []).append(run)
    for method, group in groups.items():
        for run in group[1:]:
            if not np.array_equal(run.iterations, group[0].iterations):
                raise ValueError(
                    f"Seeds {group[0].seed} and {run.seed} of {method} were evaluated at "
                    f"different iterations; compare runs of the same length and settings."
                )
    return groups


def _scalars(of_family: Sequence[Sequence[dict]], name: str) -> np.ndarray:
    return np.array([[line[name] for line in lines] for lines in of_family], dtype=float)


def _padded(of_family: Sequence[Sequence[dict]], name: str) -> np.ndarray:
    most = max(len(line[name]) for lines in of_family for line in lines)
    padded = np.full((len(of_family), len(of_family[0]), most), np.nan)
    for f, lines in enumerate(of_family):
        for e, line in enumerate(lines):
            padded[f, e, : len(line[name])] = np.array(line[name], dtype=float)
    return padded


def _read_json(path: Path) -> dict[str, Any]:
    return _parse(_read_text(path), str(path))


def _read_lines(path: Path) -> list[dict[str, Any]]:
    return [
        _parse(line, f"{path}, line {number}")
        for number, line in enumerate(_read_text(path).splitlines(), start=1)
        if line.strip()
    ]


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ValueError(
            f"{path} is missing; give a folder that `taskmix run` wrote, or repeat the run."
        ) from None


def _parse(text: str, where: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} is not valid JSON ({error.msg}); repeat the run.") from None
    if not isinstance(parsed, dict):
        raise ValueError(f"{where} holds a {type(parsed).__name__} instead of an object.")
    return parsed
