"""One HTML file for a folder: a run, several runs, or a table."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from taskmix import __version__
from taskmix.experiments.summary import combined
from taskmix.files import explained, inside, replace
from taskmix.reporting.comparison_page import comparison_sections
from taskmix.reporting.examples import read_examples
from taskmix.reporting.markup import Section, page
from taskmix.reporting.run_page import run_sections
from taskmix.reporting.runs import Run, read_json, read_run, why_diverged
from taskmix.reporting.table_folder import is_table_folder, read_table
from taskmix.reporting.table_page import table_sections
from taskmix.tables.result import TableResult
from taskmix.training.run_folder import CHECKSUMS, COMMAND, CONFIG, EXAMPLES, read_command

NAME = "report.html"
PAGES = (".html", ".htm")
"""What a report may take the place of."""
SECONDS = 2.0
"""Between two looks at a folder that is watched."""


def report(source: str | Path, out: str | Path | None = None, refresh: int = 0) -> Path:
    """Write what a folder tells as one HTML file that needs nothing else, not even a network.

    Parameters
    ----------
    source
        Folder of a run, of a comparison, or of a table, whether training has ended or not.
    out
        File to write; by default ``report.html`` in the folder.
    refresh
        Seconds after which a browser reads the file again; 0 for never.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> import taskmix as tm
    >>> stream = tm.streams.regression(("linear",), (2,), tasks=2)
    >>> learner = tm.MAML(tm.MLP(hidden=(4,)), adaptation=tm.Adaptation(steps=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = tm.fit(learner, stream, out=f"{folder}/run")
    ...     path = tm.report(f"{folder}/run")
    ...     path.name, "In short" in path.read_text()
    ('report.html', True)
    """
    folder = Path(source)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; give one that a run or a table wrote.")
    if is_table_folder(folder):
        content = _guarded(_of_table_folder, folder)
    elif (folder / CONFIG).exists():
        content = _guarded(_run_page, folder, refresh)
    else:
        content = _guarded(_comparison_page, folder, refresh)
    return _write(content, inside(folder, NAME) if out is None else Path(out))


def table_report(result: TableResult, out: Path, folder: Path | None = None) -> Path:
    """The report of a table, with settings and command if it has a folder."""
    if folder is None:
        return _write(_table_page(result, out.stem, {}, None), out)
    config, command = _settings(folder), _command(folder)
    return _write(_table_page(result, folder.resolve().name, config, command), out)


def watch(
    source: str | Path,
    out: str | Path | None = None,
    say: Callable[[str], None] = print,
    rest: Callable[[float], None] = time.sleep,
) -> Path:
    """Write a report again and again while what it is about goes on, and once more at its end.

    Parameters
    ----------
    source
        Folder of a run or a comparison, which need not exist yet.
    out
        File to write; by default ``report.html`` in the folder.
    say
        Gets a line when the first report is there, and one at the end.
    rest
        What to do between two looks.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> import taskmix as tm
    >>> stream = tm.streams.regression(("linear",), (2,), tasks=2)
    >>> learner = tm.MAML(tm.MLP(hidden=(4,)), adaptation=tm.Adaptation(steps=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = tm.fit(learner, stream, out=f"{folder}/run")
    ...     tm.watch(f"{folder}/run", say=lambda line: None).name
    'report.html'
    """
    folder = Path(source)
    seen: Any = None
    told = False
    while True:
        state = _state(folder)
        if _ended(folder):
            path = report(folder, out)
            say(f"ended; report: {path}")
            return path
        if state != seen:
            try:
                path = report(folder, out, refresh=5)
            except (ValueError, OSError) as error:
                # Nothing was measured yet, or a line is being written just now.
                if not told and seen is None:
                    say(f"waits: {error if folder.exists() else f'{folder} is not there yet'}")
            else:
                if not told:
                    say(f"report: {path}; a browser that shows it reads it again by itself")
                told = True
            seen = state
        rest(SECONDS)


def _state(folder: Path) -> list[tuple[str, int]]:
    """What changes when a run goes on."""
    return sorted(
        (str(path), path.stat().st_size)
        for name in ("metrics.jsonl", "events.jsonl", CHECKSUMS)
        for path in [*folder.glob(name), *folder.glob(f"*/*/{name}")]
    )


def _ended(folder: Path) -> bool:
    if is_table_folder(folder) or _over(folder):
        return True
    return (folder / "comparison.json").exists() and not _going_on(folder)


def _going_on(folder: Path) -> bool:
    runs = [path.parent for path in folder.glob(f"*/*/{CONFIG}")]
    return not all(map(_over, runs))


def _over(run: Path) -> bool:
    return (run / CHECKSUMS).exists() or why_diverged(run) is not None


ODD = (
    *(KeyError, TypeError, AttributeError, IndexError, OverflowError),
    pl.exceptions.PolarsError,
)
"""What comes of files that hold something else than they should."""


def _guarded(made: Callable[..., str], *arguments: Any) -> str:
    """Whatever is odd about files of others becomes one line that says so."""
    try:
        return made(*arguments)
    except ODD as error:
        what = " ".join(str(error).split())[:200]
        raise ValueError(
            f"The folder holds what no run, comparison or table writes "
            f"({type(error).__name__}: {what}); repeat it."
        ) from None


def _run_page(folder: Path, refresh: int) -> str:
    run = read_run(folder)
    # Examples are results, and believed as these are: read_run has looked at the checksums.
    sums = read_json(folder / CHECKSUMS) if (folder / CHECKSUMS).exists() else {}
    examples = read_examples(folder) if EXAMPLES in sums else None
    sections = run_sections(run, _command(folder), examples)
    experiment = str(run.config.get("experiment", "run"))
    state = "ended" if run.summary is not None else "still going on"
    if run.why is not None:
        state = "diverged"
    kind = (
        f"one run of {experiment}, seed {run.seed}, {int(run.iterations[-1]):,} iterations, {state}"
    )
    return _page(f"{run.method} on {experiment}", kind, sections, refresh)


def _comparison_page(folder: Path, refresh: int) -> str:
    runs = _begun(folder)
    ended = [run for run in runs if run.summary is not None]
    path = folder / "comparison.json"
    comparison: dict[str, Any] = read_json(path) if path.exists() else _of_runs(ended)
    sections = comparison_sections(comparison, _alike(runs, comparison), _command(folder))
    experiment = str(comparison.get("experiment", "runs"))
    state = "" if len(ended) == len(runs) else f", {len(ended)} of {len(runs)} runs have ended"
    lost = ", ".join(f"{run.method} (seed {run.seed})" for run in runs if run.why is not None)
    if lost:
        state += f"; diverged and ended early: {lost}"
    count = len(comparison["methods"])
    kind = f"a comparison of {count} method{'s' * (count != 1)}, {len(runs)} runs{state}"
    return _page(f"{experiment}: all methods", kind, sections, refresh)


def _begun(folder: Path) -> list[Run]:
    """Runs with at least one evaluation."""
    found, problems = [], []
    for place, folders, names in os.walk(folder):
        for name in folders:
            inside(Path(place), name)
        if CONFIG in names:
            try:
                found.append(read_run(Path(place)))
            except ValueError as error:
                if (Path(place) / CHECKSUMS).exists():
                    raise
                problems.append(error)
    if not found:
        raise (
            problems[0]
            if problems
            else ValueError(
                f"There is no run (no {CONFIG}) in {folder}, and no table; give the right folder."
            )
        )
    return sorted(found, key=lambda run: (run.method, run.seed))


def _of_runs(ended: Sequence[Run]) -> dict[str, Any]:
    """The comparison of runs that have ended, while others go on or if none was written."""
    if not ended:
        raise ValueError("No run of the comparison has ended yet; wait, or report on one run.")
    told = {run.method: str(run.config.get("told", "nothing")) for run in ended}
    summaries = [_completed(run) for run in ended]
    return combined(str(ended[0].config.get("experiment", "runs")), told, summaries)


def _completed(run: Run) -> dict[str, Any]:
    """A summary with what older versions did not write."""
    assert run.summary is not None, "only runs that have ended are asked"
    nothing = {"delays": [], "missed": 0, "false": 0}
    return {
        "removals": [],
        "alarms": [],
        "alarm_detection": nothing,
        "coverage": dict.fromkeys(run.families),
        "measure": run.measure,
        **run.summary,
    }


def _alike(runs: Sequence[Run], comparison: dict[str, Any]) -> list[Run]:
    """Runs of the methods of a comparison that were evaluated as often as its others."""
    own = [run for run in runs if run.method in comparison["methods"]]
    longest: dict[str, int] = {}
    for run in own:
        longest[run.method] = max(longest.get(run.method, 0), len(run.iterations))
    return [run for run in own if len(run.iterations) == longest[run.method]]


def _command(folder: Path) -> list[str] | None:
    """The command that made a folder, or the one that it lies in."""
    for place in (folder, folder.parent.parent):
        if (place / COMMAND).exists():
            return read_command(place)
    return None


def _of_table_folder(folder: Path) -> str:
    name = folder.resolve().name
    return _table_page(read_table(folder), name, _settings(folder), _command(folder))


def _settings(folder: Path) -> dict[str, Any]:
    return read_json(folder / CONFIG) if (folder / CONFIG).exists() else {}


def _table_page(
    result: TableResult, name: str, config: Mapping[str, Any], command: Sequence[str] | None
) -> str:
    about = f"predicting {result.target}" if result.target else result.kind
    kind = f"a table, {result.tasks.height:,} tasks, {about}"
    return _page(f"Table: {name}", kind, table_sections(result, config, command), 0)


def _page(title: str, kind: str, sections: Sequence[Section], refresh: int) -> str:
    closing = f"Written by taskmix {__version__}. Nothing on this page is fetched from elsewhere."
    return page(title, kind, sections, closing, refresh)


def _write(content: str, path: Path) -> Path:
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name a file to write.")
    if path.exists() and path.suffix not in PAGES:
        raise ValueError(f"{path} is there and no page; choose a name that ends in .html.")
    with explained(f"create {path.parent}"):
        path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, content.encode())
    return path
