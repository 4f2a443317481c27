"""The task models that an experiment offers, made of its network and its likelihood."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
from jaxtyping import Array, Bool, Float, Key, PyTree

from taskmix.adaptation import (
    Adaptation,
    BayesianHead,
    CalibratedGradient,
    Gradient,
    RidgeHead,
    TaskModel,
)
from taskmix.likelihood import Categorical, Gaussian, Likelihood
from taskmix.models import MODELS, Embedder, Encoder, Model

FEATURES = 32
"""Of a Bayesian head upon a network that is not made for one."""


@dataclasses.dataclass(frozen=True)
class Features:
    """A network whose outputs are features, how many it has, and what it stands beside."""

    network: Model
    width: int
    inputs: int = 0
    """Numbers of an input that a head sees as they are."""
    input_scale: float = 1.0
    encoder: Embedder | None = None
    """The same for images, with a normalisation that can be handed in; None for vectors."""
    transductive: bool = False
    """Whether queries that this encoder sees together normalise each other."""


@dataclasses.dataclass(frozen=True)
class Embedding:
    """An encoder as a network: images are normalised by the statistics of their call."""

    encoder: Encoder = Encoder()

    one_at_a_time: ClassVar[bool] = True

    def init(self, key: Key[Array, ""]) -> PyTree:
        return self.encoder.init(key)

    def apply(
        self, params: PyTree, x: Array, mask: Bool[Array, " images"] | None = None
    ) -> Float[Array, "images features"]:
        return self.encoder.apply(params, x, mask)[0]

    def adaptable(self, params: PyTree) -> PyTree:
        return jax.tree.map(lambda _: True, params)


def task_models(
    model: Model,
    likelihood: Likelihood,
    adaptation: Adaptation,
    features: Features,
    outputs: int,
) -> dict[str, TaskModel]:
    """What clusters may be made of, by name.

    Bayesian heads and calibrated residuals exist for targets with a normal distribution and for
    classes, ridge heads for classes of images; gradient steps work for every likelihood.
    """
    offered: dict[str, TaskModel] = {"gradient": Gradient(model, likelihood, adaptation)}
    if isinstance(likelihood, Gaussian | Categorical):
        offered["calibrated-gradient"] = CalibratedGradient(model, likelihood, adaptation)
        offered["bayesian-head"] = BayesianHead(
            features.network,
            likelihood,
            outputs=outputs,
            inputs=features.inputs,
            input_scale=features.input_scale,
            width=features.width,
        )
    if isinstance(likelihood, Categorical) and features.encoder is not None:
        offered["ridge-head"] = RidgeHead(
            features.encoder, likelihood, outputs, features.transductive
        )
    return offered


def named_network(name: str, shape: tuple[int, ...], outputs: int) -> Model:
    """A registered network for inputs of a shape."""
    kind = MODELS.find(name)
    fitting = getattr(kind, "fitting", None)
    if fitting is None:
        raise ValueError(
            f"The network {name!r} cannot be chosen by its name; give {kind.__name__} a class "
            f"method `fitting(shape, outputs)`, or hand the network itself to a learner."
        )
    network: Model = fitting(shape, outputs)
    return network
