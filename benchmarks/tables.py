"""What is learned from a real table, beside what a user would pick instead.

Bike sharing in Washington (UCI, Fanaee-T and Gama 2013): a task is a day of hourly counts. Six
random hours of a day are known (drawn per seed), the others are predicted from them, then the day
is learned from; days come in order of time, in batches of five. `workingday` and `holiday` are
withheld from all methods; how well clusters agree with `workingday` is measured afterwards.

Inputs are the hour as sine and cosine, once and twice as fast, temperature, humidity and wind
as they stand in the table (from 0 to 1) and the weather as one column per kind. The target is
log(count), less its mean and divided by its standard deviation over the whole table: no more
than a unit of measurement, and the same for all, but not known on the first day.

    pip install -e '.[bench]' -c constraints.txt
    python benchmarks/tables.py
"""

from __future__ import annotations

import csv
import dataclasses
import datetime
import gzip
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro
from day_rivals import (
    OF_RESIDUALS,
    SUPPORT,
    process,
    process_around_the_mean,
    ridge,
    support_mean,
    train,
    with_statistics,
)
from rich.console import Console
from rich.table import Table
from scipy.special import ndtri

from taskmix.adaptation import BayesianHead
from taskmix.evaluation.clustering import normalised_mutual_information
from taskmix.learner import Growing, Info, Learner
from taskmix.models import MLP
from taskmix.names import unknown
from taskmix.tasks import Examples, TaskBatch, check_batch

REPOSITORY = Path(__file__).resolve().parents[1]
HOURS, LEAST_HOURS = 24, 9
INTERVAL = float(ndtri(0.95))
"""Half the width of a normal 90 % interval, in standard deviations."""


@dataclasses.dataclass(frozen=True)
class Flags:
    """Compare methods on a table, predicted before it is learned from."""

    data: Path = REPOSITORY.parent / "shared" / "data" / "bike-hour.csv.gz"
    out: Path = REPOSITORY / "results" / "tables" / "bike.json"
    methods: tuple[str, ...] = ()
    """Names of the table's rows; all if none is given."""
    seeds: tuple[int, ...] = (10, 11, 12)
    """Of the known hours and of what is random in a method."""
    batch: int = 5
    """Days that are predicted together, then learned from."""
    retrain: int = 5
    """LightGBM is trained anew after so many batches."""
    days: int | None = None
    """Only the first days of the table, for a quick look."""


@dataclasses.dataclass(frozen=True)
class Days:
    """The table, a row per day; hours that are not in it are masked."""

    x: np.ndarray
    """(days, hours, inputs)"""
    y: np.ndarray
    """(days, hours), standardised."""
    mask: np.ndarray
    dates: list[datetime.date]
    workingday: np.ndarray


@dataclasses.dataclass
class Forecast:
    """What a method said of all query hours before it learned from them."""

    mean: np.ndarray
    """(days, query)"""
    half: np.ndarray | None = None
    """Half the 90 % interval; None where a method has none."""
    infos: list[Info] = dataclasses.field(default_factory=list)
    """What a learner said of every batch."""


Method = Callable[[TaskBatch, int, Flags], Forecast]
"""From all tasks in order of time, and a seed, to what was said of them beforehand."""


def read(path: Path, most: int | None = None) -> Days:
    """The first ``most`` days of at least ``LEAST_HOURS`` hours (729 of 731), in order of time."""
    with gzip.open(path, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    counts = np.log([float(row["cnt"]) for row in rows])
    targets = ((counts - counts.mean()) / counts.std()).astype(np.float32)
    by_date: dict[datetime.date, list[int]] = {}
    for number, row in enumerate(rows):
        date = datetime.datetime.strptime(row["dteday"], "%m/%d/%y").date()
        by_date.setdefault(date, []).append(number)
    long = [(date, own) for date, own in sorted(by_date.items()) if len(own) >= LEAST_HOURS]
    chosen = dict(long[:most])
    inputs = np.array([inputs_of(row) for row in rows], np.float32)
    x = np.zeros((len(chosen), HOURS, inputs.shape[1]), np.float32)
    y, mask = np.zeros(x.shape[:2], np.float32), np.zeros(x.shape[:2], bool)
    for day, own in enumerate(chosen.values()):
        x[day, : len(own)], y[day, : len(own)], mask[day, : len(own)] = inputs[own], targets[own], 1
    working = np.array([int(rows[own[0]]["workingday"]) for own in chosen.values()])
    return Days(x, y, mask, list(chosen), working)


def inputs_of(row: Mapping[str, str]) -> list[float]:
    angle = 2 * np.pi * int(row["hr"]) / 24
    hour = [np.sin(angle), np.cos(angle), np.sin(2 * angle), np.cos(2 * angle)]
    weather = [float(row["weathersit"] == kind) for kind in "1234"]
    return [*hour, *(float(row[name]) for name in ("temp", "hum", "windspeed")), *weather]


def split(days: Days, seed: int) -> TaskBatch:
    """All days as tasks: six random hours of each are its support set, the rest its query."""
    rng = np.random.default_rng(seed)
    drawn = np.where(days.mask, rng.uniform(size=days.mask.shape), 2.0)
    order = np.argsort(drawn, axis=1)
    x, y, mask = (
        np.take_along_axis(values, order.reshape(*order.shape, *(1,) * (values.ndim - 2)), axis=1)
        for values in (days.x, days.y, days.mask)
    )
    sets = [
        Examples(x[:, part], y[:, part, None], mask[:, part])
        for part in (slice(SUPPORT), slice(SUPPORT, None))
    ]
    return check_batch(TaskBatch(*sets))


def batches(tasks: TaskBatch, size: int) -> Iterator[tuple[slice, TaskBatch]]:
    """Days in order of time; the last batch is filled up with tasks that are padding."""
    for start in range(0, len(tasks.query.mask), size):
        days = slice(start, start + size)
        yield days, jax.tree.map(lambda leaf, days=days: leaf[days], tasks).padded(size)


def alone(predict: Callable[..., tuple[np.ndarray, np.ndarray | None]]) -> Method:
    """A method that looks at nothing but the day's own known hours."""

    def method(tasks: TaskBatch, seed: int, flags: Flags) -> Forecast:
        support, query = tasks.support, tasks.query
        means, deviations = zip(
            *(
                predict(x, y[:, 0], ahead)
                for x, y, ahead in zip(support.x, support.y, query.x, strict=True)
            ),
            strict=True,
        )
        known = deviations[0] is not None
        return Forecast(np.stack(means), INTERVAL * np.stack(deviations) if known else None)

    return method


def boosted(residuals: bool) -> Method:
    """LightGBM over the query hours of all past days; a process on the day's residuals, or none."""

    def method(tasks: TaskBatch, seed: int, flags: Flags) -> Forecast:
        support, query = tasks.support, tasks.query
        ahead = with_statistics(support, query.x)
        behind = with_statistics(support, support.x, left_out=True)
        mean = np.broadcast_to(support.y.mean(axis=1), query.mask.shape).copy()
        half = np.zeros(query.mask.shape)
        model = None
        for number, (days, _) in enumerate(batches(tasks, flags.batch)):
            if number == 1 or (number and number % flags.retrain == 0):
                real = query.mask[: days.start]
                model = train(ahead[: days.start][real], query.y[: days.start, :, 0][real], seed)
            for day in range(len(mean))[days]:
                if model is not None:
                    mean[day] = model.predict(ahead[day])
                if residuals:
                    known = support.y[day].mean() if model is None else model.predict(behind[day])
                    own = support.y[day, :, 0] - known
                    rest, deviation = process(support.x[day], own, query.x[day], OF_RESIDUALS)
                    mean[day], half[day] = mean[day] + rest, INTERVAL * deviation
        return Forecast(mean, half if residuals else None)

    return method


def learned(build: Callable[[int], Learner]) -> Method:
    """A learner of ours, by the contract that all of them meet."""

    def method(tasks: TaskBatch, seed: int, flags: Flags) -> Forecast:
        learner = build(tasks.query.x.shape[-1])

        @jax.jit
        def ahead(state: Any, batch: TaskBatch) -> tuple[jax.Array, jax.Array]:
            def one(support: Examples, query: Examples) -> tuple[jax.Array, jax.Array]:
                found = learner.predict(state, support, query.x, None, query.mask)
                low, high = found.interval(0.9)
                return found.mean[:, 0], (high - low)[:, 0] / 2

            return jax.vmap(one)(batch.support, batch.query)

        step, key = jax.jit(learner.step), jax.random.key(seed)
        mean = np.zeros(tasks.query.mask.shape)
        half, infos = np.zeros_like(mean), []
        state = learner.init(key, next(batches(tasks, flags.batch))[1])
        for number, (days, batch) in enumerate(batches(tasks, flags.batch)):
            if isinstance(learner, Growing) and not learner.has_room(state, 1):
                state = learner.grow(state)
            count = len(mean[days])
            mean[days], half[days] = (leaf[:count] for leaf in ahead(state, batch))
            state, info = step(state, batch, jax.random.fold_in(key, number))
            infos.append(jax.device_get(info))
        return Forecast(mean, half, infos)

    return method


def head(inputs: int) -> BayesianHead:
    features = MLP(inputs, hidden=(64, 64), outputs=32, activation="tanh", init_scale=0.0)
    return BayesianHead(features, inputs=inputs)


REHEARSAL = {"reservoir": 1000, "rehearsed": 16, "updates": 10}
"""A reservoir with room for every day, and ten updates per batch (findings 8)."""


def single(inputs: int, **settings: int) -> Learner:
    from taskmix.baselines import SingleModel

    return SingleModel(head(inputs), **settings)


def mixture(inputs: int) -> Learner:
    from taskmix.mixture import OnlineMixture

    return OnlineMixture(task_model=head(inputs), **REHEARSAL)


METHODS: Mapping[str, Method] = {
    "mean of the known hours": alone(support_mean),
    "ridge per day": alone(ridge),
    "Gaussian process per day": alone(process_around_the_mean),
    "LightGBM": boosted(residuals=False),
    "LightGBM + Gaussian process": boosted(residuals=True),
    "one head, one update": learned(single),
    "one head, reservoir": learned(partial(single, **REHEARSAL)),
    "mixture of heads": learned(mixture),
}


def measures(forecast: Forecast, tasks: TaskBatch, days: Days, size: int) -> dict[str, Any]:
    """Of one seed: over all query hours, and for a mixture what it made of the days."""
    real = tasks.query.mask
    error = np.abs(forecast.mean - tasks.query.y[..., 0])[real]
    found: dict[str, Any] = {"error": float(np.mean(error**2)), "coverage": None}
    if forecast.half is not None:
        found["coverage"] = float(np.mean(error <= forecast.half[real]))
    if forecast.infos and forecast.infos[-1].alive.size > 1:
        found |= regimes(forecast.infos, days, size)
    return found


def regimes(infos: Sequence[Info], days: Days, size: int) -> dict[str, Any]:
    """Clusters at the end, how the days fell to them (background: -1), births and alarms."""
    assigned: list[int] = []
    for info in infos:
        background = 1 - info.responsibilities.sum(axis=-1)
        best = info.responsibilities.argmax(axis=-1)
        assigned += np.where(background > info.responsibilities.max(-1), -1, best).tolist()
    assigned = assigned[: len(days.dates)]

    def dates(which: str) -> list[str]:
        happened = [number for number, info in enumerate(infos) if getattr(info, which)]
        return [days.dates[number * size].isoformat() for number in happened]

    return {
        "clusters": int(infos[-1].clusters),
        "nmi_workingday": normalised_mutual_information(days.workingday, assigned),
        "births": dates("spawned"),
        "alarms": dates("alarm"),
    }


def measured(name: str, days: Days, flags: Flags) -> dict[str, Any]:
    """All seeds of one method, and the means over them."""
    started, seeds = time.perf_counter(), {}
    for seed in flags.seeds:
        tasks = split(days, seed)
        forecast = METHODS[name](tasks, seed, flags)
        seeds[str(seed)] = measures(forecast, tasks, days, flags.batch)
    seconds = (time.perf_counter() - started) / len(flags.seeds)
    means = {
        key: float(np.mean([one[key] for one in seeds.values()]))
        for key in ("error", "coverage", "clusters", "nmi_workingday")
        if all(one.get(key) is not None for one in seeds.values())
    }
    return {**means, "seconds_per_seed": round(seconds, 1), "seeds": seeds}


def show(results: Mapping[str, dict[str, Any]], console: Console) -> None:
    table = Table(title="Bike sharing: squared error of the standardised log count")
    for heading in ("method", "error", "of seeds", "in 90 %", "clusters", "NMI", "alarms", "s"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for name, found in results.items():
        seeds = found["seeds"].values()
        shown = [f"{found[key]:.3f}" if key in found else "" for key in ("error", "coverage")]
        shown.insert(1, " ".join(f"{one['error']:.3f}" for one in seeds))
        shown += [
            f"{found[key]:.2f}" if key in found else "" for key in ("clusters", "nmi_workingday")
        ]
        alarms = " ".join(str(len(one["alarms"])) for one in seeds if "alarms" in one)
        table.add_row(name, *shown, alarms, f"{found['seconds_per_seed']:.0f}")
    console.print(table)


def main(flags: Flags) -> None:
    for name in flags.methods:
        if name not in METHODS:
            raise unknown("method", name, METHODS)
    if not flags.data.is_file():
        raise SystemExit(f"{flags.data} is missing; give the file of the table with --data.")
    days, results = read(flags.data, flags.days), {}
    settings = {key: getattr(flags, key) for key in ("seeds", "batch", "retrain")}
    for name in flags.methods or METHODS:
        results[name] = measured(name, days, flags)
        record = {"table": flags.data.name, "days": len(days.dates), **settings, "methods": results}
        flags.out.parent.mkdir(parents=True, exist_ok=True)
        flags.out.write_text(json.dumps(record, indent=2) + "\n")
    show(results, Console())


if __name__ == "__main__":
    main(tyro.cli(Flags))
