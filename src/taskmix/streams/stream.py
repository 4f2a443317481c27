"""What a stream is."""

from __future__ import annotations

import dataclasses
from typing import Protocol, runtime_checkable

from jaxtyping import Array, Int, Key

from taskmix.tasks import TaskBatch


@dataclasses.dataclass(frozen=True)
class Phase:
    """Iterations ``start`` to ``stop`` (exclusive), in which ``families`` are active."""

    start: int
    stop: int
    families: tuple[str, ...]


@runtime_checkable
class Stream(Protocol):
    """Task batches whose kind changes without notice.

    ``batch`` depends on its arguments only, so a run that resumes at an iteration sees
    what the uninterrupted run saw. The phases are for figures and measures, never for a
    learner.

    Examples
    --------
    >>> import taskmix as tm
    >>> isinstance(tm.streams.regression(), Stream)
    True
    """

    @property
    def families(self) -> tuple[str, ...]:
        """Every family that occurs, in order of first appearance."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The stretches with a fixed mix of families, in order, without gaps."""

    def batch(self, key: Key[Array, ""], iteration: Int[Array, ""] | int) -> TaskBatch:
        """The batch of one iteration; can be traced.

        Parameters
        ----------
        key
            Of the run; decides what is random.
        iteration
            From 0.

        Returns
        -------
        TaskBatch
            Tasks, with hints if the stream knows any.
        """

    def test_tasks(self, key: Key[Array, ""], family: int, tasks: int) -> TaskBatch:
        """Tasks of one family to be judged on, apart from those that ``batch`` gives.

        Parameters
        ----------
        key
            Of the run; decides what is random.
        family
            Index into ``families``.
        tasks
            How many.

        Returns
        -------
        TaskBatch
            It may hold references in place of inputs, which ``load`` resolves.
        """

    def load(self, drawn: TaskBatch) -> TaskBatch:
        """Test tasks with their inputs, for any number of leading axes.

        Parameters
        ----------
        drawn
            What ``test_tasks`` gave, or a part of it.

        Returns
        -------
        TaskBatch
            The same tasks, ready to be predicted.
        """
