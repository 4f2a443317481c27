"""What an experiment is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from taskmix.experiments.shared import Shared
from taskmix.learner import Learner, State
from taskmix.streams import Stream
from taskmix.training import Settings


@runtime_checkable
class Experiment(Protocol):
    """The settings that every method of a comparison shares, in a frozen dataclass.

    Examples
    --------
    >>> import taskmix as tm
    >>> isinstance(tm.Regression(), Experiment)
    True
    """

    def stream(self) -> Stream:
        """Build the stream; whatever is wrong with the settings is said here.

        Returns
        -------
        Stream
            What the methods learn from.
        """

    def shared(self) -> Shared:
        """What methods have in common.

        Returns
        -------
        Shared
            What every method is given, so that they differ in nothing else.
        """

    def training(self) -> Settings:
        """How a run is evaluated unless the user says otherwise.

        Returns
        -------
        Settings
            How often, and on how many tasks.
        """

    def facts(self) -> dict[str, Any]:
        """What ``config.json`` has to tell beyond the settings.

        Returns
        -------
        dict
            Such as the fingerprint of data.
        """


@runtime_checkable
class Warming(Experiment, Protocol):
    """An experiment whose learners may know something before the first task."""

    def warmed(
        self,
        stream: Stream,
        learner: Learner,
        state: State,
        seeds: Sequence[int],
        tell: Callable[[str], None],
    ) -> State:
        """The first states, stacked over the seeds, to begin with; ``tell`` hears what it does."""


@runtime_checkable
class Tested(Experiment, Protocol):
    """An experiment that keeps the state with the least test error, and tests it at the end."""

    def final_test(
        self, stream: Stream, learner: Learner, state: State, seed: int
    ) -> dict[str, Any]:
        """What ``summary.json`` is to say of the state, under ``test``."""
