"""A stream of somebody's own as an experiment: its parts are chosen by what its batches hold."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from taskmix.adaptation import Adaptation
from taskmix.experiments.parts import FEATURES, Embedding, Features, named_network, task_models
from taskmix.experiments.shared import Shared
from taskmix.likelihood import LIKELIHOODS, Categorical, Likelihood
from taskmix.models import MLP, Conv4, Encoder, Model
from taskmix.streams import Stream, image_features
from taskmix.tasks import check_batch
from taskmix.training import Settings

HIDDEN = (40, 40)


@dataclasses.dataclass(frozen=True)
class OwnStream:
    """What every method shares on a stream: parts are chosen for it unless they are named.

    Vectors get a fully connected network and images four convolutions; numbers as targets get a
    normal distribution, class numbers probabilities.

    Parameters
    ----------
    source
        The stream.
    network, likelihood
        Names of registered ones; empty to choose by the shapes of a batch.

    Examples
    --------
    >>> from taskmix.streams import regression
    >>> OwnStream(regression()).shared().model.inputs
    1
    """

    source: Stream
    network: str = ""
    """Name of a registered network (default: what suits the inputs)."""
    likelihood: str = ""
    """Name of a registered likelihood (default: what suits the targets)."""
    adaptation: Adaptation = Adaptation()
    """Inner loop: how the network adapts to a support set."""
    meta_rate: float = 1e-3
    """Rate of the optimiser that learns initialisations."""
    head_rate: float = 2e-3
    """Rate of the optimiser that learns heads in closed form."""

    def stream(self) -> Stream:
        return self.source

    def training(self) -> Settings:
        return Settings()

    def facts(self) -> dict[str, Any]:
        return {}

    def shared(self) -> Shared:
        batch = check_batch(jax.jit(self.source.batch)(jax.random.key(0), 0))
        shape = batch.support.x.shape[2:]
        classes = jnp.issubdtype(batch.support.y.dtype, jnp.integer)
        labels = 1 + max(int(part.y.max()) for part in (batch.support, batch.query))
        outputs = max(labels, 2) if classes else batch.support.y.shape[-1]
        likelihood = self._likelihood(bool(classes), images=len(shape) == 3)
        scale = 1.0 if len(shape) == 3 else max(float(np.std(batch.support.x)), 1e-6)
        model, features = self._networks(shape, outputs, scale)
        return Shared(
            model=model,
            likelihood=likelihood,
            task_models=task_models(model, likelihood, self.adaptation, features, outputs),
            adaptation=self.adaptation,
            meta_rate=self.meta_rate,
            head_rate=self.head_rate,
            families=len(self.source.families),
            head="bayesian-head" if features.encoder is None else "ridge-head",
        ).paced(self.source.phases[0].stop)

    def _likelihood(self, classes: bool, images: bool) -> Likelihood:
        if classes and images and not self.likelihood:
            return Categorical(inputs=image_features)
        name = self.likelihood or ("categorical" if classes else "gaussian")
        likelihood: Likelihood = LIKELIHOODS.find(name)()
        return likelihood

    def _networks(
        self, shape: tuple[int, ...], outputs: int, scale: float
    ) -> tuple[Model, Features]:
        inputs = shape[0] if len(shape) == 1 else 0
        if self.network:
            network = named_network(self.network, shape, FEATURES)
            features = Features(network, FEATURES, inputs, scale)
            return named_network(self.network, shape, outputs), features
        if len(shape) == 3:
            encoder = Encoder(shape[2], shape[0])
            features = Features(Embedding(encoder), encoder.features, encoder=encoder)
            return Conv4.fitting(shape, outputs), features
        if len(shape) != 1:
            raise ValueError(
                f"Inputs have shape {shape}; without the name of a network they must be vectors "
                f"or images (rows, columns, channels)."
            )
        bent = MLP(inputs, HIDDEN, FEATURES, 0.0, "tanh", scale)
        return MLP(inputs, HIDDEN, outputs), Features(bent, FEATURES, inputs, scale)
