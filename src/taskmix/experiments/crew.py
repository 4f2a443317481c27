"""Several processes that train one run together: the first keeps its files, the others follow."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from safetensors.numpy import load, save

from taskmix.training import Chunk, Pause, Stopped
from taskmix.training.checkpoints import Checkpoint, header
from taskmix.training.lock import Refused
from taskmix.training.placement import Placement
from taskmix.training.watch import Request, StopRequest

FAILED = -1


class Crew:
    """Keeps processes in step; what it says costs nothing if there is only one.

    All of them compute the same programs in the same order. How far the next one goes and whether
    to stop depend on clocks and signals, so this is agreed on before each of them.
    """

    def __init__(self, placement: Placement, request: Request) -> None:
        self.placement = placement
        self._own = request
        # What a signal asked of one process counts when all have heard of it.
        self.request: Request = request if placement.processes == 1 else StopRequest()

    def steer(self, until: int) -> int:
        """Until where the first process wants to go."""
        if self.placement.processes == 1:
            return until
        every = self.placement.agreed(until, self._own.value)
        self.request.value = max(asked for _, asked in every)
        return self._checked(every[0][0])

    def tell(self, content: bytes) -> None:
        """To the others, which ``hear`` it."""
        if self.placement.processes > 1:
            self.placement.agreed(len(content), 0)
            self.placement.told(content)

    def hear(self) -> bytes:
        """What the first process tells."""
        self._checked(self.placement.agreed(0, 0)[0][0])
        return self.placement.told(b"")

    @contextlib.contextmanager
    def leading(self) -> Iterator[None]:
        """What only the first process does; if it goes wrong, the others end, too."""
        try:
            yield
        except Stopped:
            # They stop at the same moment.
            raise
        except BaseException:
            if self.placement.processes > 1:
                self.placement.agreed(FAILED, 0)
            raise

    def led(self, callback: Callable[[Any], None]) -> Callable[[Any], None]:
        """A callback of the first process."""

        def led(moment: Any) -> None:
            with self.leading():
                callback(moment)

        return led

    def followed(self, last: int) -> Callable[[Chunk | Pause], None]:
        """The callback of the others: they stop when all do."""

        def follow(moment: Chunk | Pause) -> None:
            if self.request.value and moment.iteration != last:
                raise Stopped(self.request.value, moment.iteration)

        return follow

    @staticmethod
    def _checked(value: int) -> int:
        if value == FAILED:
            raise Refused("The first process could not go on; what it says is the reason.")
        return value


def as_message(found: Sequence[Checkpoint] | None) -> bytes:
    """Checkpoints of all seeds; nothing where a run begins."""
    if found is None:
        return b""
    arrays = {
        f"{position}/{name}": array
        for position, one in enumerate(found)
        for name, array in one.arrays.items()
    }
    facts = {"iteration": found[0].iteration, "facts": [one.facts for one in found]}
    return save(arrays, {"taskmix": json.dumps(facts)})


def from_message(content: bytes) -> list[Checkpoint] | None:
    """What ``as_message`` put into one.

    Examples
    --------
    >>> import numpy as np
    >>> (one,) = from_message(as_message([Checkpoint(7, {"state.a": np.ones(2)}, {"born": 1})]))
    >>> one.iteration, one.facts, one.arrays["state.a"].tolist()
    (7, {'born': 1}, [1.0, 1.0])
    """
    if not content:
        return None
    told, arrays = header(content), load(content)
    return [
        Checkpoint(
            told["iteration"],
            {
                name.removeprefix(f"{position}/"): array
                for name, array in arrays.items()
                if name.startswith(f"{position}/")
            },
            facts,
        )
        for position, facts in enumerate(told["facts"])
    ]
