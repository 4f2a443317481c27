"""The continual few-shot regression of the paper, as data."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from taskmix.adaptation import Adaptation
from taskmix.likelihood import Gaussian
from taskmix.models import MLP
from taskmix.streams import FunctionStream, Schedule, consecutive, gradual, interleaved, recurring
from taskmix.training import Settings


@dataclasses.dataclass(frozen=True)
class Regression:
    """What every method of a comparison shares: the stream, the network, the optimisation.

    The defaults are the paper's stream (section 5.1); it leaves the inner loop open.
    """

    families: tuple[str, ...] = ("polynomial", "sinusoid", "sawtooth")
    """Function families, in the order in which they appear."""
    lengths: tuple[int, ...] = (4000, 3000, 2500)
    """Iterations of each family's phase."""
    schedule: Literal["consecutive", "recurring", "interleaved", "gradual"] = "consecutive"
    """One family after the other; the same twice over; all at once; fading into each other."""
    transition: int = 500
    """Iterations over which a family fades in (gradual schedule)."""
    mixing: Literal["task", "batch"] = "task"
    """Whether each task or each batch draws a family (interleaved schedule)."""
    tasks: int = 10
    """Tasks of a batch."""
    support: int = 5
    """Examples of a task to adapt on."""
    query: int = 10
    """Examples of a task to be judged on."""
    noise: float = 0.0
    """Standard deviation of the noise on every target."""
    hidden: tuple[int, ...] = (40, 40)
    """Units of each hidden layer."""
    adaptation: Adaptation = Adaptation()
    meta_rate: float = 1e-3
    """Rate of the optimiser that learns the initialisations."""

    def stream(self) -> FunctionStream:
        return FunctionStream(self._schedule(), self.tasks, self.support, self.query, self.noise)

    def training(self) -> Settings:
        return Settings()

    def facts(self) -> dict[str, Any]:
        return {}

    def learner_settings(self) -> dict[str, Any]:
        """What a learner is given of this experiment, by the names of its fields."""
        return {
            "model": MLP(inputs=1, hidden=self.hidden, outputs=1),
            "likelihood": Gaussian(),
            "adaptation": self.adaptation,
            "meta_rate": self.meta_rate,
            "families": len(set(self.families)),
        }

    def _schedule(self) -> Schedule:
        match self.schedule:
            case "consecutive":
                return consecutive(self.families, self.lengths)
            case "recurring":
                return recurring(self.families, self.lengths)
            case "interleaved":
                return interleaved(self.families, sum(self.lengths), self.mixing)
            case "gradual":
                return gradual(self.families, self.lengths, self.transition)
