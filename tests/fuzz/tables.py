"""Targets of tables: the files that ``run table``, ``predict`` and ``load`` are given.

What learns is one small Bayesian head: a spoiled table may ask for any number of inputs, and the
mixture takes longer to compile than a case may take at all.
"""

import contextlib
import gzip
import hashlib
import io
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
from tests.fuzz.files import Files, Target, as_json, files_in, other_header, resigned
from tests.fuzz.mutations import spoiled, spoiled_json
from tests.hostile.limits import command
from tests.tables.conftest import small_learner

import taskmix
from taskmix.tables import flow, saving
from taskmix.tables.defaults import learner_for

COLUMNS = ("--task", "shop", "--target", "sold", "--time", "when", "--support", 2)
CELLS = (
    *("", " ", "nan", "inf", "-inf", "1e400", "-1e308", "1e30", "1e-320", "9" * 400, "0x10"),
    *("NULL", "2024-02-30", "9999-12-31 23:59:59", "0000-00-00", "-1", "true", "=cmd()", '"'),
    *("[/red]", "\x1b[2J", "$\\frac{$", "<b>", "💥", "\u202e", "a" * 70_000, "a,b", "1;2", "1\n2"),
)


def frame_of(tasks: int = 9, each: int = 5) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    count = tasks * each
    days = pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 12, 31), eager=True)[:count]
    return pl.DataFrame(
        {
            "shop": np.repeat([f"s{number}" for number in range(tasks)], each),
            "when": days,
            "kind": rng.choice(["red", "green"], count),
            "hour": np.arange(count) % 7,
            "size": rng.normal(size=count),
            "sold": rng.normal(size=count),
        }
    )


def _text(frame: pl.DataFrame) -> bytes:
    return frame.write_csv().encode()


def _parquet(frame: pl.DataFrame) -> bytes:
    file = io.BytesIO()
    frame.write_parquet(file)
    return file.getvalue()


def _good_csv() -> Files:
    return {"table.csv": _text(frame_of())}


def _good_packed() -> Files:
    return {"table.csv.gz": gzip.compress(_text(frame_of()), mtime=0)}


def _good_parquet() -> Files:
    return {"table.parquet": _parquet(frame_of())}


def _other_cells(content: bytes, draw: random.Random) -> bytes:
    """Another value, row or name of a column, in a CSV file that is still one."""
    rows = [line.split(",") for line in content.decode().splitlines()]
    for _ in range(draw.choice((1, 1, 2, 5))):
        kind, row = draw.randrange(6), draw.choice(rows)
        at = draw.randrange(len(rows[0]))
        if kind == 0 and len(row) > 1:
            del row[draw.randrange(len(row))]
        elif kind == 1:
            rows.insert(draw.randrange(len(rows)), list(row))
        elif kind == 2:
            hostile = draw.choice(CELLS)
            for other in rows[1:]:
                other[at:] = [hostile, *other[at + 1 :]]
        else:
            row[at:] = [draw.choice(CELLS), *row[at + 1 :]]
    return "\n".join(map(",".join, rows)).encode("utf-8", "surrogatepass")


def _signed_table(good: Files, name: str, draw: random.Random) -> Files:
    if name.endswith(".gz"):
        return {**good, name: gzip.compress(_other_cells(gzip.decompress(good[name]), draw))}
    if name.endswith(".parquet"):
        return {**good, name: _parquet(_other_types(frame_of(), draw))}
    return {**good, name: _other_cells(good[name], draw)}


TYPES = (pl.Int8, pl.UInt64, pl.Float32, pl.Boolean, pl.String, pl.Binary, pl.Duration, pl.Time)


def _other_types(frame: pl.DataFrame, draw: random.Random) -> pl.DataFrame:
    """Columns of types that Parquet has and CSV has not, or of nulls, lists and records."""
    name = draw.choice(frame.columns)
    kind = draw.randrange(5)
    if kind == 0:
        return frame.with_columns(pl.lit(None).alias(name))
    if kind == 1:
        return frame.with_columns(pl.concat_list(name, name).alias(name))
    if kind == 2:
        return frame.with_columns(pl.struct("size", "hour").alias(name))
    if kind == 3:
        return frame.clear() if draw.random() < 0.5 else frame.drop(name)
    values = [draw.choice((-(2**40), -1, 0, 1, 2**40)) for _ in range(frame.height)]
    return frame.with_columns(pl.Series(name, values).cast(draw.choice(TYPES), strict=False))


@contextlib.contextmanager
def small() -> Iterator[None]:
    """The mixture is described, so that settings are checked, and a head learns in its place."""

    def described(*arguments: Any) -> Any:
        learner_for(*arguments)
        return small_learner(*arguments)

    with (
        mock.patch.object(flow, "learner_for", described),
        mock.patch.object(saving, "learner_for", described),
    ):
        yield


def _learn(folder: Path) -> None:
    (source,) = folder.iterdir()
    with small(), tempfile.TemporaryDirectory() as out:
        command("run", "table", source, *COLUMNS, "--out", Path(out) / "out", "--quiet")


def _good_learner() -> Files:
    with small(), tempfile.TemporaryDirectory() as name:
        learner = taskmix.TableLearner(task="shop", target="sold", time="when", support=2)
        learner.fit(frame_of()).save(name)
        return files_in(Path(name))


def _good_prediction() -> Files:
    """A model with the two tables that are asked about."""
    frame = frame_of(3)
    model = {f"model/{name}": content for name, content in _good_learner().items()}
    query = _text(frame.drop("sold", "when"))
    return {**model, "support.csv": _text(frame), "query.csv": query}


def _predict(folder: Path) -> None:
    tables = ("--support", folder / "support.csv", "--query", folder / "query.csv")
    with small():
        command("predict", folder / "model", *tables, "--out", folder / "predicted.csv")


def _signed_prediction(good: Files, name: str, draw: random.Random) -> Files:
    """Mostly a table: what is wrong with a model has a target of its own."""
    name = draw.choice(("support.csv", "query.csv"))
    return {**good, name: _other_cells(good[name], draw)}


def _load_learner(folder: Path) -> None:
    """All that a learner can do: predict, learn on, and be saved again."""
    frame = frame_of(2)
    with small(), tempfile.TemporaryDirectory() as out:
        learner = taskmix.load(folder)
        if not isinstance(learner, taskmix.TableLearner):
            raise AssertionError("it is loaded as something else")
        learner.predict(frame, frame).frame()
        learner.partial_fit(frame)
        learner.save(out)


def _signed_learner(good: Files, name: str, draw: random.Random) -> Files:
    files = dict(good)
    if draw.random() < 0.8:
        files["model.json"] = as_json(spoiled_json(json.loads(good["model.json"]), draw))
    elif draw.random() < 0.5:
        files["model.safetensors"] = other_header(good["model.safetensors"], draw)
    else:
        files["model.safetensors"] = spoiled(good["model.safetensors"], draw)
    sums = {
        name: hashlib.sha256(files[name]).hexdigest() for name in files if name != "checksums.json"
    }
    if draw.random() < 0.1:
        return {**files, "checksums.json": as_json(spoiled_json(sums, draw))}
    return {**files, "checksums.json": as_json(sums)}


def _good_table_run() -> Files:
    """A run of a table that was interrupted, with its table beside it."""
    with small(), tempfile.TemporaryDirectory() as name:
        table = Path(name) / "table.csv"
        table.write_bytes(_text(frame_of()))
        often = ("--checkpoint-iterations", 1, "--quiet")
        command("run", "table", table, *COLUMNS, *often, "--out", Path(name) / "run")
        files = files_in(Path(name))
    # The newest goes, so that there is something left to learn.
    newest = max(file for file in files if "/checkpoints/" in file).rpartition("/")[0]
    return {n: content for n, content in files.items() if not n.startswith(newest)}


def _go_on(folder: Path) -> None:
    """As the one who was given the folder: in their own place, with the table in it."""
    given = None
    with contextlib.suppress(ValueError, RecursionError):
        given = json.loads((folder / "run" / "command.json").read_bytes())
    if isinstance(given, dict) and isinstance(given.get("command"), list):
        here = [
            str(folder / "table.csv") if str(word).endswith("table.csv") else word
            for word in given["command"]
        ]
        (folder / "run" / "command.json").write_bytes(as_json({**given, "command": here}))
    with small():
        command("resume", folder / "run", "--quiet")


def _signed_table_run(good: Files, name: str, draw: random.Random) -> Files:
    """Settings as they are not; or a checkpoint with a checksum that fits."""
    if name.endswith(".json") and "/checkpoints/" not in name:
        return {**good, name: as_json(spoiled_json(json.loads(good[name]), draw))}
    name = max(file for file in good if file.endswith("checkpoint.safetensors"))
    return resigned(good, name, other_header(good[name], draw))


TABLE_TARGETS = {
    "csv": Target(_good_csv, _learn, _signed_table),
    "gz": Target(_good_packed, _learn, _signed_table),
    "parquet": Target(_good_parquet, _learn, _signed_table),
    "predict": Target(_good_prediction, _predict, _signed_prediction),
    "learner": Target(_good_learner, _load_learner, _signed_learner),
    "table-run": Target(_good_table_run, _go_on, _signed_table_run),
}
