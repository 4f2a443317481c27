"""`taskmix run table` with default settings on three real tables, over several seeds.

Bike sharing (a task is a day, six random hours are known, `workingday` is withheld), car parks of
Birmingham (a car park's day, its first hours are known) and electricity prices (a day, its first
quarter is known). Nothing but the columns is given; docs/tables.md says how settings were chosen.

    pip install -e '.[table]' -c constraints.txt
    python benchmarks/own_tables.py
"""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from taskmix.estimator import TableLearner
from taskmix.names import unknown

REPOSITORY = Path(__file__).resolve().parents[1]
TABLES: dict[str, tuple[str, dict[str, Any]]] = {
    "bike": (
        "bike-hour.csv.gz",
        {
            "task": "dteday",
            "time": "dteday",
            "target": "log(cnt)",
            "inputs": ["hr", "temp", "hum", "windspeed", "weathersit"],
            "support": 6,
            "split": "random",
        },
    ),
    "parking": (
        "parking-birmingham.csv.gz",
        {
            "task": ["SystemCodeNumber", "LastUpdated:day"],
            "time": "LastUpdated",
            "target": "Occupancy/Capacity",
        },
    ),
    "elec2": ("elec2.csv.gz", {"task": "date", "time": "date", "target": "target"}),
}


@dataclasses.dataclass(frozen=True)
class Flags:
    """Measure tables with default settings."""

    tables: tuple[str, ...] = tuple(TABLES)
    seeds: tuple[int, ...] = (10, 11, 12)
    data: Path = REPOSITORY.parent / "shared" / "data"
    out: Path = REPOSITORY / "results" / "tables"


def measured(path: Path, columns: dict[str, Any], seed: int) -> dict[str, Any]:
    started = time.perf_counter()
    learner = TableLearner(**columns, seed=seed)
    result = learner.fit_online(path).to_dict()
    seconds = round(time.perf_counter() - started, 1)
    alarms = [alarm["tasks"][0] for alarm in result.pop("alarms")]
    return {"seconds": seconds, "alarms": alarms, **result}


def main(flags: Flags) -> None:
    for name in flags.tables:
        if name not in TABLES:
            raise unknown("table", name, TABLES)
        file, columns = TABLES[name]
        if not (flags.data / file).is_file():
            raise SystemExit(f"{flags.data / file} is missing; give its folder with --data.")
        seeds = {}
        for seed in flags.seeds:
            seeds[str(seed)] = measured(flags.data / file, columns, seed)
            record = {"table": file, "columns": columns, "seeds": seeds}
            flags.out.mkdir(parents=True, exist_ok=True)
            (flags.out / f"own-{name}.json").write_text(json.dumps(record, indent=2) + "\n")
        show(name, seeds)


def show(name: str, seeds: dict[str, dict[str, Any]]) -> None:
    runs = list(seeds.values())
    print(f"{name}: {runs[0]['measure']}, mean over seeds (of each seed)", flush=True)
    rows = {"taskmix": [run["error"]["value"] for run in runs]}
    for rival in runs[0]["baselines"]:
        rows[rival] = [run["baselines"][rival]["value"] for run in runs]
    for rival, values in rows.items():
        each = " ".join(f"{value:.4f}" for value in values)
        print(f"  {rival:<18} {np.mean(values):.4f}  ({each})", flush=True)
    for key in ("coverage", "seconds"):
        print(f"  {key}: {[run[key] for run in runs]}", flush=True)
    counts = [(len(run["regimes"]), len(run["alarms"]), len(run["births"])) for run in runs]
    print(f"  regimes, alarms, births: {counts}", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Flags))
