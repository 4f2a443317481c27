"""The continual few-shot regression of the paper, as data."""

from __future__ import annotations

import dataclasses
from typing import Any

from taskmix.adaptation import Adaptation
from taskmix.baselines.single import check_positive
from taskmix.experiments.parts import FEATURES, Features, named_network, task_models
from taskmix.experiments.shared import Shared
from taskmix.likelihood import Gaussian
from taskmix.models import MLP, Model
from taskmix.streams import FunctionStream, Schedule, ordered
from taskmix.streams.schedule import Mixing, Order
from taskmix.training import Settings

INPUT_SCALE = 2.5
"""About the standard deviation of the inputs, which lie between -5 and 5."""


@dataclasses.dataclass(frozen=True)
class Regression:
    """What every method of a comparison shares: the stream, the network, the optimisation.

    The defaults are the paper's stream (section 6.1); it leaves the inner loop open.

    Examples
    --------
    >>> Regression(families=("linear",), lengths=(10,)).stream().phases[-1].stop
    10
    """

    families: tuple[str, ...] = ("polynomial", "sinusoid", "sawtooth")
    """Function families, in the order in which they appear."""
    lengths: tuple[int, ...] = (4000, 3000, 2500)
    """Iterations of each family's phase."""
    schedule: Order = "consecutive"
    """One family after the other; the same twice over; all at once; fading into each other."""
    transition: int = 500
    """Iterations over which a family fades in (gradual schedule)."""
    mixing: Mixing = "task"
    """Whether each task or each batch draws a family (interleaved schedule)."""
    tasks: int = 10
    """Tasks of a batch."""
    support: int = 5
    """Examples of a task to adapt on."""
    query: int = 10
    """Examples of a task to be judged on."""
    noise: float = 0.0
    """Standard deviation of the noise on every target."""
    network: str = "mlp"
    """Name of a registered network."""
    hidden: tuple[int, ...] = (40, 40)
    """Units of each hidden layer of an `mlp`."""
    adaptation: Adaptation = Adaptation()
    """Inner loop: how the network adapts to a support set."""
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

    def shared(self) -> Shared:
        model, likelihood = self._network(1), Gaussian()
        features = Features(self._features(), FEATURES, inputs=1, input_scale=INPUT_SCALE)
        return Shared(
            model=model,
            likelihood=likelihood,
            task_models=task_models(model, likelihood, self.adaptation, features, outputs=1),
            adaptation=self.adaptation,
            meta_rate=self.meta_rate,
            head_rate=self.head_rate,
            families=len(set(self.families)),
        ).paced(self.lengths[0])

    def _network(self, outputs: int) -> Model:
        if self.network == "mlp":
            return MLP(inputs=1, hidden=self.hidden, outputs=outputs)
        return named_network(self.network, (1,), outputs)

    def _features(self) -> Model:
        if self.network == "mlp":
            return MLP(1, self.hidden, FEATURES, 0.0, "tanh", INPUT_SCALE)
        return named_network(self.network, (1,), FEATURES)

    def _schedule(self) -> Schedule:
        return ordered(self.schedule, self.families, self.lengths, self.transition, self.mixing)
