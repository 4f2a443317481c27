"""What an experiment is."""

from __future__ import annotations

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
        """What the methods learn from; whatever is wrong with the settings is said here."""

    def shared(self) -> Shared:
        """What every method is given, so that they differ in nothing else."""

    def training(self) -> Settings:
        """How often a run is evaluated unless the user says otherwise."""

    def facts(self) -> dict[str, Any]:
        """What ``config.json`` has to tell beyond the settings, such as a data fingerprint."""


@runtime_checkable
class Tested(Experiment, Protocol):
    """An experiment that keeps the state with the least test error, and tests it at the end."""

    def final_test(
        self, stream: Stream, learner: Learner, state: State, seed: int
    ) -> dict[str, Any]:
        """What ``summary.json`` is to say of the state, under ``test``."""
