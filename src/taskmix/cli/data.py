"""``taskmix data``: prepare images once, and look at what was prepared."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated

import tyro
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from taskmix.cli.flags import Flat, first_argument, parse
from taskmix.cli.output import Screen
from taskmix.stores.prepare import Options, Report, prepare_store
from taskmix.stores.problems import Problem
from taskmix.stores.store import ImageSplit, open_store

ACTIONS = ("prepare", "show")
GLYPHS = "glyphs"
"""The drawings that come with taskmix, to show in place of a store."""
SHOWN_CLASSES = 6
SHOWN_PROBLEMS = 20
"""Problems listed on the screen; the manifest has all of them."""


@dataclasses.dataclass(frozen=True)
class PrepareFlags:
    """Turn a folder or an archive of images into a store, which training opens at once.

    SOURCE may have a folder per class; train, val and test folders with a folder per class;
    images/ with train.csv, val.csv and test.csv; the alphabets of Omniglot; or be the pickled
    caches of miniImageNet. Archives (zip, tar, tar.gz, ...) are read without being unpacked.
    """

    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    """Folder or archive to read."""
    out: Path
    """Folder to create for the store."""
    options: Annotated[Options, Flat] = Options()
    quiet: bool = False
    """Print nothing but errors."""


@dataclasses.dataclass(frozen=True)
class ShowFlags:
    """List what a store holds, and draw a sheet of its images."""

    store: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="STORE")]
    """Folder of the store, or `glyphs` for the drawings that come with taskmix."""
    split: str = "train"
    """Split to draw."""
    out: Path | None = None
    """Picture to write (default: STORE-SPLIT.png in the current folder)."""


def main(arguments: Sequence[str]) -> None:
    action = first_argument(arguments, "action", ACTIONS, "taskmix data")
    if action == "prepare":
        _prepare(parse(PrepareFlags, arguments[1:], "taskmix data prepare"))
    else:
        _show(parse(ShowFlags, arguments[1:], "taskmix data show"))


def _prepare(flags: PrepareFlags) -> None:
    console = Screen(quiet=flags.quiet)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal or flags.quiet,
        transient=True,
    )
    try:
        with _ended_gently(), bar:
            task = bar.add_task("images", total=None)
            report = prepare_store(
                flags.source,
                flags.out,
                flags.options,
                lambda done, total: bar.update(task, completed=done, total=total),
            )
    except KeyboardInterrupt:
        print("taskmix: interrupted; nothing was written.", file=sys.stderr)
        sys.exit(130)
    _print_report(console, report, flags.out)


@contextlib.contextmanager
def _ended_gently() -> Iterator[None]:
    """Being asked to end is as good as Ctrl-C: what was begun is removed first."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _print_report(console: Screen, report: Report, out: Path) -> None:
    splits = [
        (name, len(shard.classes), shard.images) for name, shard in report.manifest.splits.items()
    ]
    console.print(_table(splits, report.manifest.size, report.manifest.channels))
    _print_problems(console, report.problems)
    console.say(f"store: {out}")


def _print_problems(console: Screen, problems: Sequence[Problem]) -> None:
    if not problems:
        return
    console.say(f"problems: {len(problems)}")
    for problem in problems[:SHOWN_PROBLEMS]:
        console.say(f"  {problem}")
    if len(problems) > SHOWN_PROBLEMS:
        rest = len(problems) - SHOWN_PROBLEMS
        console.say(f"  and {rest} more, listed in manifest.json")


def _table(splits: Sequence[tuple[str, int, int]], size: int, channels: int) -> Table:
    table = Table()
    table.add_column("split")
    for column in ("classes", "images", "size", "channels"):
        table.add_column(column, justify="right")
    for name, classes, images in splits:
        table.add_row(name, f"{classes:,}", f"{images:,}", f"{size}x{size}", str(channels))
    return table


def _show(flags: ShowFlags) -> None:
    # Matplotlib takes a second to load, which preparing need not wait for.
    from taskmix.reporting.contact_sheet import contact_sheet

    out = flags.out or Path(f"{flags.store.resolve().name}-{flags.split}.png")
    split, table = _glyphs(flags.split) if str(flags.store) == GLYPHS else _stored(flags)
    console = Screen()
    console.print(table)
    sheet = contact_sheet(split, out, classes=min(SHOWN_CLASSES, len(split.classes)))
    console.say(f"sheet: {sheet}")


def _stored(flags: ShowFlags) -> tuple[ImageSplit, Table]:
    store = open_store(flags.store)
    splits = [
        (name, len(shard.classes), shard.images) for name, shard in store.manifest.splits.items()
    ]
    return store.split(flags.split), _table(splits, store.size, store.channels)


def _glyphs(name: str) -> tuple[ImageSplit, Table]:
    from taskmix.stores.glyphs import glyph_split

    split = glyph_split(name)
    images, size, _, channels = split.images.shape
    return split, _table([(name, len(split.classes), images)], size, channels)
