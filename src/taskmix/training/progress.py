"""What a person sees while a run trains. It shows nothing that the learner is not told."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from taskmix.learner import Info
from taskmix.training.loop import Chunk, Pause

PLAIN_LINES = 10
"""Lines that a run prints where there is no terminal to draw a bar on."""


class TrainingProgress:
    """A bar on a terminal, a few plain lines elsewhere; one line per spawn on both."""

    def __init__(self, console: Console, title: str, seeds: Sequence[int], iterations: int) -> None:
        self.console = console
        self.title = title
        self.seeds = seeds
        self.iterations = iterations
        self._lines = 0
        self._seconds = 0.0
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[facts]}"),
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
        self._lines = PLAIN_LINES * iteration // self.iterations
        self._bar.update(self._task, completed=iteration)
        self.tell(f"goes on from iteration {iteration}")

    def tell(self, what: str) -> None:
        self._bar.console.print(
            f"{self.title}: {what}", highlight=False, markup=False, soft_wrap=True
        )

    def update(self, moment: Chunk | Pause) -> None:
        info = moment.since.info if isinstance(moment, Pause) else moment.info
        if info is not None:
            if isinstance(moment, Chunk):
                self._tell_events(moment, info)
            self._show(moment.iteration, self._facts(info, moment.seconds))
        if isinstance(moment, Chunk):
            self._seconds = moment.seconds

    def _tell_events(self, chunk: Chunk, info: Info) -> None:
        start = chunk.iteration - info.loss.shape[1]
        for offset, clusters, seed in self._spawns(info):
            whose = f", seed {seed}" if len(self.seeds) > 1 else ""
            self._bar.console.print(
                f"{self.title}{whose}: iteration {start + offset}: new cluster, now {clusters}",
                highlight=False,
            )
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
            self.console.print(
                f"{self.title}: iteration {iteration}/{self.iterations}, {facts}",
                highlight=False,
            )

    def _spawns(self, info: Info) -> list[tuple[int, int, int]]:
        """Iteration of the chunk, clusters from then on, and seed of every spawn, in order."""
        where = sorted((int(i), int(s)) for s, i in np.argwhere(info.spawned))
        return [(i, int(info.clusters[s, i]), self.seeds[s]) for i, s in where]

    def _facts(self, info: Info, seconds: float) -> str:
        fewest, most = info.clusters[:, -1].min(), info.clusters[:, -1].max()
        clusters = f"{most}" if fewest == most else f"{fewest}-{most}"
        # Since the last evaluation.
        speed = info.loss.shape[1] / (seconds - self._seconds)
        learned = info.loss[np.isfinite(info.loss)]
        loss = f"{learned.mean():.3f}" if learned.size else "not finite"
        return f"clusters {clusters}, loss {loss}, {speed:.0f} iterations/s"
