"""What a person sees while a run trains. It shows nothing that the learner is not told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import IO, Any, cast

import jax
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from taskmix.learner import Info
from taskmix.names import printable
from taskmix.training.lives import Happening, Lives
from taskmix.training.moments import Chunk, Pause

PLAIN_LINES = 10
"""Lines that a run prints where there is no terminal to draw a bar on."""

MOST_AT_ONCE = 10
"""Happenings that get a line of their own: a learner may cry wolf with every other batch."""


class Forgiving:
    """A text file that takes everything: when nobody reads it any more, training still goes on."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._gone = False

    def write(self, text: str) -> int:
        self._attempt(lambda: self._file.write(text))
        return len(text)

    def flush(self) -> None:
        self._attempt(self._file.flush)

    def _attempt(self, what: Callable[[], object]) -> None:
        try:
            if not self._gone:
                what()
        except (OSError, ValueError):
            # A pipe without a reader, a full device, a terminal that was closed, a closed file.
            self._gone = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class TrainingProgress:
    """A bar on a terminal, a few plain lines elsewhere.

    On both there is one line for every alarm, and for every cluster that comes or goes.
    """

    def __init__(self, console: Console, title: str, seeds: Sequence[int], iterations: int) -> None:
        self.console = console
        if not isinstance(console.file, Forgiving):
            console.file = cast("IO[str]", Forgiving(console.file))
        self.title = title
        self.seeds = seeds
        self.iterations = iterations
        self._lines = 0
        self._seconds = 0.0
        self._lives: list[Lives] = []
        self._told = 0
        self._bar = Progress(
            # Names are not ours to colour: [red] may be one of them.
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[facts]}", markup=False),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(title, total=iterations, facts="compiling")

    def __enter__(self) -> TrainingProgress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def resume(self, iteration: int, seconds: float) -> None:
        """Say that ``iteration`` was reached before, after ``seconds``."""
        self._seconds = seconds
        self._told = iteration
        self._lines = PLAIN_LINES * iteration // self.iterations
        self._bar.update(self._task, completed=iteration)
        self.tell(f"goes on from iteration {iteration}")

    def tell(self, what: str) -> None:
        self._print(f"{self.title}: {what}")

    def _print(self, line: str) -> None:
        self.console.print(printable(line), highlight=False, markup=False, soft_wrap=True)

    def update(self, moment: Chunk | Pause) -> None:
        info = moment.since.info if isinstance(moment, Pause) else moment.info
        if info is not None:
            start = moment.iteration - info.loss.shape[1]
            self._tell_happenings(start, info, for_good=isinstance(moment, Chunk))
            if isinstance(moment, Chunk):
                self._tell_skips(start, moment)
            self._show(moment.iteration, self._facts(info, moment.seconds))
        if isinstance(moment, Chunk):
            self._seconds = moment.seconds

    def _tell_happenings(self, start: int, info: Info, for_good: bool) -> None:
        """Tell what is new; at a pause, the iterations since the last evaluation come again."""
        lives = self._lives or [Lives.begin(np.asarray(alive[0])) for alive in info.alive]
        after = [life.copy() for life in lives]
        every = [
            (happening, seed)
            for position, seed in enumerate(self.seeds)
            for happening in after[position].follow(
                jax.tree.map(lambda leaf, p=position: leaf[p], info)
            )[1]
        ]
        new = [one for one in every if start + one[0].offset >= self._told]
        new.sort(key=lambda one: one[0].offset)
        for happening, seed in new[:MOST_AT_ONCE]:
            whose = f", seed {seed}" if len(self.seeds) > 1 else ""
            self._print(
                f"{self.title}{whose}: iteration {start + happening.offset}: {_in_words(happening)}"
            )
        if len(new) > MOST_AT_ONCE:
            self.tell(f"{len(new) - MOST_AT_ONCE} more alarms, births or removals since then")
        self._told = start + info.loss.shape[1]
        self._lives = after if for_good else lives

    def _tell_skips(self, start: int, chunk: Chunk) -> None:
        if chunk.skips is not None:
            tasks, batches = int(chunk.skips.task.sum()), int(chunk.skips.any.sum())
            self.tell(
                f"not finite since iteration {start}, so not learned from: "
                f"{tasks} tasks of {batches} batches"
            )

    def _show(self, iteration: int, facts: str) -> None:
        self._bar.update(self._task, completed=iteration, facts=facts)
        due = PLAIN_LINES * iteration // self.iterations
        if not self.console.is_terminal and due > self._lines:
            self._lines = due
            self._print(f"{self.title}: iteration {iteration}/{self.iterations}, {facts}")

    def _facts(self, info: Info, seconds: float) -> str:
        counts = np.asarray(info.alive)[:, -1].sum(axis=-1)
        fewest, most = counts.min(), counts.max()
        clusters = f"{most}" if fewest == most else f"{fewest}-{most}"
        # Since the last evaluation.
        speed = info.loss.shape[1] / (seconds - self._seconds)
        learned = info.loss[np.isfinite(info.loss)]
        loss = f"{learned.mean():.3f}" if learned.size else "not finite"
        return f"clusters {clusters}, loss {loss}, {speed:.0f} iterations/s"


def _in_words(happening: Happening) -> str:
    return {
        "spawned": f"new cluster, now {happening.clusters}",
        "removed": f"cluster removed, now {happening.clusters}",
        "alarm": "alarm: tasks that fit nothing known",
    }[happening.event]
