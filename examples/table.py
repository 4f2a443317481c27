"""Learn from a table of your own: predictions with intervals, regimes, alarms, and what is usual.

A heater is switched on again and again; a row of the table is a reading, a task is a run. After
200 runs the heater is replaced by one that behaves differently, and nobody tells the learner.

    python examples/table.py
"""

import tempfile
from pathlib import Path

import polars as pl

import taskmix as tm
from taskmix.tables.example import heaters


def main() -> None:
    frame = heaters(runs=310, replaced=200)
    learner = tm.TableLearner(
        task="run", target="degrees", inputs=["minute", "load"], support=5, split="random"
    )
    known, new = frame.filter(frame["run"] < 300), frame.filter(frame["run"] >= 300)
    result = learner.fit_online(known, progress=print)
    print(result)

    with tempfile.TemporaryDirectory() as folder:
        result.save(Path(folder) / "result")
        learner.save(Path(folder) / "model")
        learner = tm.load(Path(folder) / "model")

    # Five readings of each new run are known; the others are asked for.
    support = new.filter(pl.col("minute").rank("random", seed=0).over("run") <= 5)
    query = new.join(support, on=["run", "minute"], how="anti")
    found = learner.predict(support=support, query=query)
    low, high = found.interval(0.9)
    inside = (low <= query["degrees"].to_numpy()) & (query["degrees"].to_numpy() <= high)
    print(
        f"new runs: {inside.mean():.0%} inside 90 % intervals, regimes {sorted(set(found.regime))}"
    )

    learner.partial_fit(new)
    print(f"after them: error {learner.result_.error}")


if __name__ == "__main__":
    main()
