"""The continual few-shot regression of the paper, as data."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from taskmix.adaptation import (
    Adaptation,
    BayesianHead,
    CalibratedGradient,
    Gradient,
    TaskModel,
)
from taskmix.baselines.single import check_positive
from taskmix.likelihood import Gaussian
from taskmix.models import MLP
from taskmix.streams import FunctionStream, Schedule, consecutive, gradual, interleaved, recurring
from taskmix.training import Settings

FEATURES = 32
"""Of a Bayesian head."""
INPUT_SCALE = 2.5
"""About the standard deviation of the inputs, which lie between -5 and 5."""


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
    """Rate of the optimiser that learns initialisations."""
    head_rate: float = 2e-3
    """Rate of the optimiser that learns Bayesian heads."""

    def __post_init__(self) -> None:
        # A learner has but one of them, and what is wrong with the other is said all the same.
        check_positive(meta_rate=self.meta_rate, head_rate=self.head_rate)

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
            "head_rate": self.head_rate,
            "task_models": self.task_models(),
            "families": len(set(self.families)),
        }

    def task_models(self) -> dict[str, TaskModel]:
        """What clusters may be made of, by name."""
        network = MLP(inputs=1, hidden=self.hidden, outputs=1)
        features = MLP(
            inputs=1,
            hidden=self.hidden,
            outputs=FEATURES,
            activation="tanh",
            init_scale=0.0,
            input_scale=INPUT_SCALE,
        )
        return {
            "gradient": Gradient(network, Gaussian(), self.adaptation),
            "calibrated-gradient": CalibratedGradient(network, Gaussian(), self.adaptation),
            "bayesian-head": BayesianHead(
                features, outputs=1, inputs=1, input_scale=INPUT_SCALE, width=FEATURES
            ),
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
