"""Records of comparisons: a folder of runs as one file, and the table and figures from that file.

    python results/records.py pack runs/regression results/regression/runs.jsonl.gz
    python results/records.py table results/regression/runs.jsonl.gz
    python results/records.py figures results/regression/runs.jsonl.gz --out figures

A line of such a file is one run: its path, and what its run folder has in ``config.json``,
``summary.json``, ``events.jsonl`` and ``metrics.jsonl``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from taskmix.evaluation import over_seeds
from taskmix.reporting import loss_figure, read_runs

OBJECTS, LINES = ("config", "summary"), ("events", "metrics")
Record = Mapping[str, Any]


def pack(folder: Path, out: Path) -> int:
    """Write every ended run below a folder as one file; the same runs give the same bytes."""
    lines = []
    for config in sorted(folder.rglob("config.json")):
        run = config.parent
        record: dict[str, Any] = {"run": run.relative_to(folder).as_posix()}
        for name in OBJECTS:
            record[name] = json.loads((run / f"{name}.json").read_text())
        for name in LINES:
            text = (run / f"{name}.jsonl").read_text()
            record[name] = [json.loads(line) for line in text.splitlines()]
        lines.append(json.dumps(record, separators=(",", ":")))
    if not lines:
        raise SystemExit(f"There is no run (no config.json) in {folder}; name the right folder.")
    with (
        open(out, "wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as file,
    ):
        file.write(("\n".join(lines) + "\n").encode())
    return len(lines)


def unpack(path: Path) -> list[Record]:
    """The runs of a file, in the order of their paths."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def restore(records: Iterable[Record], folder: Path) -> None:
    """Write the run folders again, as far as they were recorded."""
    for record in records:
        run = folder / record["run"]
        run.mkdir(parents=True)
        for name in OBJECTS:
            (run / f"{name}.json").write_text(json.dumps(record[name], indent=2))
        for name in LINES:
            text = "".join(json.dumps(line) + "\n" for line in record[name])
            (run / f"{name}.jsonl").write_text(text)


def table(records: Sequence[Record]) -> str:
    """One row per method as Markdown: what it knew at the end, or its final test."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record["run"].rpartition("/")[0] or ".", []).append(record)
    tested = all("test" in record["summary"] for record in records)
    rows = [_tested(group) if tested else _streamed(group) for group in groups.values()]
    lines = [list(rows[0]), ["---"] * len(rows[0])]
    lines += [
        [f"`{name}`", *list(row.values())[1:]] for name, row in zip(groups, rows, strict=True)
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _streamed(group: Sequence[Record]) -> dict[str, str]:
    """Errors, or accuracies in per cent, after the whole stream."""
    summaries = [record["summary"] for record in group]
    measure = summaries[0]["measure"]
    families = summaries[0]["final"]
    final = np.array([[s["final"][family][measure] for family in families] for s in summaries])
    forgotten = np.array([summary["mean_forgetting"] for summary in summaries])
    by = 100 if measure == "accuracy" else 1
    cells = {family: by * final[:, place] for place, family in enumerate(families)}
    cells |= {f"mean {measure}": by * final.mean(axis=1), "mean forgetting": by * forgotten}
    return {
        "method": "",
        "seeds": _seeds(group),
        "told": group[0]["config"]["told"],
        **{name: _cell(values) for name, values in cells.items()},
    }


def _tested(group: Sequence[Record]) -> dict[str, str]:
    """Accuracy in per cent on the tasks of the final test, over the seeds' tasks together."""
    tests = [record["summary"]["test"] for record in group]
    every = 100 * np.concatenate([test["by_episode"] for test in tests])
    return {
        "method": "",
        "seeds": _seeds(group),
        "parameters": f"{tests[0]['parameters']:,}",
        "stopped at": " ".join(str(test["iteration"]) for test in tests),
        "tasks": str(every.size),
        "accuracy": f"{every.mean():.2f} ± {1.96 * every.std() / np.sqrt(every.size):.2f}",
    }


def _seeds(group: Sequence[Record]) -> str:
    return " ".join(str(record["config"]["seed"]) for record in group)


def _cell(values: np.ndarray) -> str:
    width = over_seeds(values)
    return f"{values.mean():.2f}" + ("" if width is None else f" ± {width:.2f}")


def figures(records: Sequence[Record], out: Path) -> list[Path]:
    """Every method over the stream."""
    with tempfile.TemporaryDirectory() as name:
        restore(records, Path(name))
        runs = read_runs(name)
        return list(loss_figure(runs, out / runs[0].measure))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Records of comparisons as one file each.")
    commands = parser.add_subparsers(required=True)
    packing = commands.add_parser("pack", help="write the runs below a folder as one file")
    packing.add_argument("folder", type=Path)
    packing.add_argument("out", type=Path)
    packing.set_defaults(do=lambda given: f"{pack(given.folder, given.out)} runs in {given.out}")
    showing = commands.add_parser("table", help="print the table of a file, as Markdown")
    showing.add_argument("file", type=Path)
    showing.set_defaults(do=lambda given: table(unpack(given.file)))
    drawing = commands.add_parser("figures", help="draw every method over the stream")
    drawing.add_argument("file", type=Path)
    drawing.add_argument("--out", type=Path, default=Path("figures"))
    drawing.set_defaults(
        do=lambda given: "\n".join(map(str, figures(unpack(given.file), given.out)))
    )
    given = parser.parse_args(arguments)
    do: Callable[[argparse.Namespace], str] = given.do
    print(do(given))


if __name__ == "__main__":
    main()
