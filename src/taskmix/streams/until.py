"""The beginning of a stream."""

from __future__ import annotations

import dataclasses

import equinox as eqx
from jaxtyping import Array, Int, Key

from taskmix.streams.stream import Phase, Stream
from taskmix.tasks import TaskBatch


class Until(eqx.Module):
    """A stream that ends after so many iterations.

    Examples
    --------
    >>> from taskmix.streams import regression
    >>> Until(regression(("linear", "step"), (40, 30)), 50).phases[-1].stop
    50
    """

    stream: Stream
    iterations: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        longest = self.stream.phases[-1].stop
        if not 1 <= self.iterations <= longest:
            raise ValueError(
                f"iterations is {self.iterations}; the stream has 1 to {longest} of them."
            )

    @property
    def families(self) -> tuple[str, ...]:
        """Those that have appeared: the first of the stream's, which keep their numbers."""
        seen = {family for phase in self.phases for family in phase.families}
        return tuple(family for family in self.stream.families if family in seen)

    @property
    def phases(self) -> tuple[Phase, ...]:
        return tuple(
            dataclasses.replace(phase, stop=min(phase.stop, self.iterations))
            for phase in self.stream.phases
            if phase.start < self.iterations
        )

    def batch(self, key: Key[Array, ""], iteration: Int[Array, ""] | int) -> TaskBatch:
        return self.stream.batch(key, iteration)

    def test_tasks(self, key: Key[Array, ""], family: int, tasks: int) -> TaskBatch:
        return self.stream.test_tasks(key, family, tasks)

    def load(self, drawn: TaskBatch) -> TaskBatch:
        return self.stream.load(drawn)
