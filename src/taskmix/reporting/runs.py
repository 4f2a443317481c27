"""Run folders as arrays.

Of ``config.json`` this reads ``method``, ``seed``, ``measure`` and ``phases``, a list of
``{"start": 0, "stop": 4000, "families": ["polynomial"]}``.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from taskmix.files import LARGEST_LINES, inside, read_bytes
from taskmix.likelihood import Reported
from taskmix.streams.stream import Phase
from taskmix.training.run_folder import CHECKSUMS, DIVERGED, JOURNAL, check_results

MOST_CLUSTERS = 100_000
MOST_FAMILIES = 100
MOST_PHASES = 10_000
LONGEST = 10**12
"""Iterations."""
MOST_NUMBERS = 20_000_000
"""Of one measure: families, evaluations and clusters. A folder that speaks of more of any of
these is not one that a run wrote, or one that no figure can show."""


Combined = Literal["mixture", "weighted", "likeliest"]
"""How clusters are judged together: by the prediction of the mixture, by the mean of their own
errors, weighted by responsibilities, or by the likeliest alone."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One run: what it was told to do, every evaluation, every event, and the summary."""

    config: dict[str, Any]
    method: str
    seed: int
    measure: Reported
    """What is reported: the error, or the accuracy, which is one minus it."""
    phases: tuple[Phase, ...]
    families: tuple[str, ...]
    iterations: Int[np.ndarray, " evaluations"]
    clusters: Int[np.ndarray, " evaluations"]
    error: Float[np.ndarray, "families evaluations"]
    ci95: Float[np.ndarray, "families evaluations"]
    oracle: Float[np.ndarray, "families evaluations"]
    weighted: Float[np.ndarray, "families evaluations"]
    """Errors of clusters by their responsibilities, the paper's measure; NaN if not known."""
    likeliest: Float[np.ndarray, "families evaluations"]
    """Error of each task's cluster with the largest responsibility; NaN if not known."""
    component_error: Float[np.ndarray, "families evaluations clusters"]
    """Of clusters in the order of birth; NaN where one does not exist, or has diverged."""
    responsibilities: Float[np.ndarray, "families evaluations clusters"]
    """Of clusters in the order of birth; NaN where one does not exist."""
    background: Float[np.ndarray, "families evaluations"]
    """Share of the test tasks that no cluster explains."""
    coverage: Float[np.ndarray, "families evaluations"]
    """Share of the targets within their 90 % intervals; NaN if there are none."""
    prequential: Float[np.ndarray, "families evaluations"]
    """Error on the batches since the last evaluation, before they were learned from; NaN for a
    family that had no task among them."""
    events: tuple[dict[str, Any], ...]
    summary: dict[str, Any] | None
    """None while the run is not finished."""
    why: str | None = None
    """Why it could not go on, if it has diverged."""

    @property
    def reported(self) -> Float[np.ndarray, "families evaluations"]:
        """Test error, or accuracy in per cent."""
        return self.shown("mixture")

    def shown(self, how: Combined) -> Float[np.ndarray, "families evaluations"]:
        """Test error, or accuracy in per cent, of what clusters say together in one way."""
        error = {"mixture": self.error, "weighted": self.weighted, "likeliest": self.likeliest}[how]
        return error if self.measure == "error" else 100 * (1 - error)

    @property
    def scale(self) -> str | None:
        """The scale of an experiment that has several."""
        return self.config.get("settings", {}).get("scale")

    @property
    def spawns(self) -> tuple[int, ...]:
        """The iterations that opened a cluster."""
        return self._iterations_of("spawned")

    @property
    def births(self) -> tuple[tuple[int, int], ...]:
        """Iteration and number of each cluster that was opened."""
        # Older versions wrote no numbers: the first birth was that of the second cluster.
        return tuple(
            (event["iteration"], place if event.get("cluster") is None else event["cluster"])
            for place, event in enumerate(self._events_of("spawned"), start=1)
        )

    @property
    def removals(self) -> tuple[tuple[int, int], ...]:
        """Iteration and number of each cluster that was removed."""
        return tuple(
            (event["iteration"], event["cluster"])
            for event in self._events_of("removed")
            if event.get("cluster") is not None
        )

    @property
    def alarms(self) -> tuple[int, ...]:
        """The iterations at which an alarm was raised."""
        return self._iterations_of("alarm")

    def _events_of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]

    def _iterations_of(self, kind: str) -> tuple[int, ...]:
        return tuple(event["iteration"] for event in self._events_of(kind))


def read_run(folder: Path | str) -> Run:
    """Read a run folder, finished or not."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; give the folder that a run wrote.")
    config = read_json(folder / "config.json")
    # Runs that have not ended, and those of older versions, have none.
    if (folder / CHECKSUMS).exists():
        check_results(folder)
    lines = _read_lines(folder / "metrics.jsonl")
    if not lines:
        raise ValueError(f"{folder / 'metrics.jsonl'} has no evaluation yet; let the run go on.")
    events, summary = folder / "events.jsonl", folder / "summary.json"
    try:
        families = tuple(lines[0]["families"])
        _check_extent(len(families), len(config["phases"]))
        of_family = [[line["families"][family] for line in lines] for family in families]
        ids = [_ids(line, families[0]) for line in lines]
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
            component_error=_by_cluster(of_family, ids, "component_error"),
            responsibilities=_by_cluster(of_family, ids, "responsibilities"),
            # Of these, older versions knew nothing.
            weighted=_scalars(of_family, "weighted", np.nan),
            likeliest=_scalars(of_family, "likeliest", np.nan),
            background=_scalars(of_family, "background", 0.0),
            coverage=_scalars(of_family, "coverage", np.nan),
            prequential=_prequential(lines, families),
            events=tuple(map(_event, _read_lines(events))) if events.exists() else (),
            summary=read_json(summary) if summary.exists() else None,
            why=why_diverged(folder),
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
    found = []
    for place, folders, files in os.walk(folder):
        for name in folders:
            inside(Path(place), name)
        if "config.json" in files:
            found.append(Path(place))
    runs = tuple(map(read_run, sorted(found)))
    if not runs:
        raise ValueError(f"There is no run (no config.json) in {folder}; give the right folder.")
    return runs


def why_diverged(folder: Path) -> str | None:
    """What a run that could not go on wrote last; None for all others."""
    if (folder / CHECKSUMS).exists() or not (folder / JOURNAL).exists():
        return None
    try:
        last = (_read_lines(folder / JOURNAL) or [{}])[-1]
    except ValueError:
        # No measure depends on it, and a line may be half written.
        return None
    return str(last.get("why", "")) if last.get("note") == DIVERGED else None


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


def _scalars(
    of_family: Sequence[Sequence[dict[str, Any]]], name: str, default: float | None = None
) -> np.ndarray:
    """Without a default, what is missing is an error."""
    return np.array(
        [
            [line[name] if default is None else line.get(name, default) for line in lines]
            for lines in of_family
        ],
        dtype=float,
    )


def _prequential(lines: Sequence[dict[str, Any]], families: Sequence[str]) -> np.ndarray:
    """Older versions wrote none."""
    found = [[line.get("prequential", {}).get(family) for line in lines] for family in families]
    return np.array(found, dtype=float)


def _event(event: dict[str, Any]) -> dict[str, Any]:
    cluster = event.get("cluster")
    if (
        not isinstance(event["event"], str)
        or type(event["iteration"]) is not int
        or not 0 <= event["iteration"] < LONGEST
        or (cluster is not None and (type(cluster) is not int or cluster < 0))
    ):
        raise TypeError(f"{str(event)[:60]} is no event")
    return event


def _ids(line: dict[str, Any], family: str) -> list[int]:
    """Numbers of the clusters that an evaluation lists."""
    # Older versions wrote none: no cluster was ever removed.
    ids = line.get("cluster_ids", list(range(len(line["families"][family]["responsibilities"]))))
    for one in ids:
        if type(one) is not int or not 0 <= one < MOST_CLUSTERS:
            raise TypeError(f"{str(one)[:40]} is no number of a cluster")
    return ids


def _by_cluster(
    of_family: Sequence[Sequence[dict[str, Any]]], ids: Sequence[Sequence[int]], name: str
) -> np.ndarray:
    """Lists with an entry per living cluster, as an array with a place for every one."""
    most = 1 + max((one for some in ids for one in some), default=-1)
    if most * len(of_family) * len(of_family[0]) > MOST_NUMBERS:
        raise TypeError(f"{most} clusters in {len(of_family[0])} evaluations")
    found = np.full((len(of_family), len(of_family[0]), most), np.nan)
    for f, lines in enumerate(of_family):
        for e, line in enumerate(lines):
            if len(line[name]) != len(ids[e]):
                raise TypeError(f"{name} has {len(line[name])} entries for {len(ids[e])} clusters")
            found[f, e, ids[e]] = np.array(line[name], dtype=float)
    return found


def _check_extent(families: int, phases: int) -> None:
    """A figure has a panel per family, and marks every phase in each."""
    if not 0 < families <= MOST_FAMILIES or not 0 < phases <= MOST_PHASES // families:
        raise TypeError(f"{families} families and {phases} phases")


def read_json(path: Path) -> dict[str, Any]:
    return _parse(_read_text(path), str(path))


def _read_lines(path: Path) -> list[dict[str, Any]]:
    return [
        _parse(line, f"{path}, line {number}")
        for number, line in enumerate(_read_text(path).splitlines(), start=1)
        if line.strip()
    ]


def _read_text(path: Path) -> str:
    try:
        return read_bytes(path, LARGEST_LINES).decode()
    except FileNotFoundError:
        raise ValueError(
            f"{path} is missing; give a folder that `taskmix run` wrote, or repeat the run."
        ) from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text ({error.reason}); repeat the run.") from None


def _parse(text: str, where: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not valid JSON ({error}); repeat the run.") from None
    if not isinstance(parsed, dict):
        raise ValueError(f"{where} holds a {type(parsed).__name__} instead of an object.")
    return parsed
