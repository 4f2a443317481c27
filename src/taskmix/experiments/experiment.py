"""What an experiment is."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from taskmix.streams import Stream
from taskmix.training import Settings


@runtime_checkable
class Experiment(Protocol):
    """The settings that every method of a comparison shares, in a frozen dataclass."""

    def stream(self) -> Stream:
        """What the methods learn from; whatever is wrong with the settings is said here."""

    def learner_settings(self) -> dict[str, Any]:
        """What a learner is given of this experiment, by the names of its fields."""

    def training(self) -> Settings:
        """How often a run is evaluated unless the user says otherwise."""

    def facts(self) -> dict[str, Any]:
        """What ``config.json`` has to tell beyond the settings, such as a data fingerprint."""
