"""What ``taskmix run table`` wrote, read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from taskmix.files import inside, open_plain
from taskmix.tables.faults import GZIP
from taskmix.tables.reading import OTHERS
from taskmix.tables.result import Estimate, Regime, TableAlarm, TableResult
from taskmix.training.run_folder import read_json

RESULT = "result.json"
LARGEST = 1 << 30
"""Bytes of a file with predictions that is read to be shown."""
COLUMNS = {
    "tasks.csv": ("task", "error", "regime", "novelty", "alarm"),
    "predictions.csv": ("row", "task", "target"),
    "support.csv": ("row", "task", "target"),
}


def is_table_folder(folder: Path) -> bool:
    """Whether a folder holds the result of a table."""
    return (folder / RESULT).is_file() and (folder / "predictions.csv").is_file()


def read_table(folder: Path) -> TableResult:
    """The result as it was, but for the plot; a ``ValueError`` if it is not what taskmix wrote."""
    told = read_json(inside(folder, RESULT))
    labels = told.get("labels")
    texts = bool(labels)
    frames = {name: _frame(folder, name, texts) for name in COLUMNS}
    try:
        return TableResult(
            kind=str(told["kind"]),
            measure=str(told["measure"]),
            error=_estimate(told["error"]),
            baselines={str(name): _estimate(one) for name, one in told["baselines"].items()},
            coverage=None if told["coverage"] is None else float(told["coverage"]),
            regimes=tuple(
                Regime(
                    int(one["number"]),
                    int(one["tasks"]),
                    float(one["error"]),
                    str(one["first"]),
                    str(one["last"]),
                )
                for one in told["regimes"]
            ),
            alarms=tuple(
                TableAlarm(tuple(map(str, one["tasks"])), tuple(map(int, one["rows"])))
                for one in told["alarms"]
            ),
            births=tuple(map(str, told["births"])),
            tasks=frames["tasks.csv"],
            predictions=frames["predictions.csv"],
            left_out={str(name): int(count) for name, count in told["left_out"].items()},
            chosen=dict(told["chosen"]),
            support=frames["support.csv"],
            target=str(told.get("target", "")),
            labels=None if labels is None else tuple(map(str, labels)),
            full=None if told.get("full") is None else str(told["full"]),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{folder / RESULT} is not what taskmix run table writes ({error}); repeat the run."
        ) from None


def _estimate(told: Any) -> Estimate:
    return Estimate(*(float(told[name]) for name in ("value", "low", "high")))


def _frame(folder: Path, name: str, texts: bool) -> pl.DataFrame:
    """A table with the columns that it must have."""
    path = inside(folder, name)
    if name == "support.csv" and not path.exists():
        # Older versions wrote none.
        return pl.DataFrame({"row": [], "task": [], "target": []}, schema_overrides=_types(texts))
    try:
        with open_plain(path) as file:
            if path.stat().st_size > LARGEST:
                raise ValueError(f"it has more than {LARGEST >> 20} MiB")
            content = file.read()
        if content.startswith((GZIP, *OTHERS)):
            # Polars would unpack it, however much it is.
            raise ValueError(f"{path} is packed; repeat the run.")
        frame = pl.read_csv(content, schema_overrides=_types(texts))
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path} cannot be read ({reason}); repeat the run.") from None
    missing = [column for column in COLUMNS[name] if column not in frame.columns]
    if missing:
        raise ValueError(f"{path} has no column {missing[0]!r}; repeat the run.")
    return frame


def _types(texts: bool) -> dict[str, Any]:
    """Names of tasks are texts, also where they look like numbers or dates."""
    return {
        "task": pl.String,
        "row": pl.Int64,
        "target": pl.String if texts else pl.Float64,
        "label": pl.String,
    }
