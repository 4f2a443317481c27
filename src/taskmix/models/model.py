"""The one thing a learner asks of a network."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Float, Key, PyTree


@runtime_checkable
class Model(Protocol):
    """Hyperparameters of a network; the parameters live in a separate pytree.

    Examples
    --------
    >>> from taskmix.models import MLP
    >>> isinstance(MLP(), Model)
    True
    """

    def init(self, key: Key[Array, ""]) -> PyTree:
        """Random parameters.

        Parameters
        ----------
        key
            Decides which.

        Returns
        -------
        pytree of arrays
            The parameters.
        """

    def apply(
        self, params: PyTree, x: Array, mask: Bool[Array, " examples"] | None = None
    ) -> Array:
        """Outputs for the examples of one task.

        Parameters
        ----------
        params
            The parameters.
        x
            Inputs; the first axis is that of examples.
        mask
            False where an example is padding; None if none is.

        Returns
        -------
        Array
            One vector of outputs per example.
        """

    def adaptable(self, params: PyTree) -> PyTree:
        """What the inner loop may change.

        Parameters
        ----------
        params
            The parameters.

        Returns
        -------
        pytree of bool
            Of the structure of ``params``.
        """

    @property
    def one_at_a_time(self) -> bool:
        """Whether tasks are faster one after the other than all at once.

        So it is with convolutions: a ``vmap`` over their kernels makes grouped ones of
        them, an order of magnitude slower on a CPU.
        """


@runtime_checkable
class Embedder(Protocol):
    """A network from images to vectors, whose normalisation can be handed in.

    Examples
    --------
    >>> from taskmix.models import Encoder
    >>> isinstance(Encoder(size=16), Embedder)
    True
    """

    @property
    def features(self) -> int:
        """Length of a vector."""

    def init(self, key: Key[Array, ""]) -> PyTree:
        """Random parameters."""

    def apply(
        self,
        params: PyTree,
        x: Array,
        mask: Bool[Array, " images"] | None = None,
        statistics: Any = None,
    ) -> tuple[Float[Array, "images features"], Any]:
        """Vectors, and the statistics that the images were normalised by.

        Given ``statistics``, every image is embedded on its own; otherwise they are those of
        the real images of the call.
        """


Tap = Callable[[PyTree, Array, Array], Array]
"""From a layer's parameters, inputs and outputs to what the network goes on with."""


def no_tap(layer: PyTree, inputs: Array, outputs: Array) -> Array:
    return outputs


@runtime_checkable
class TappedModel(Model, Protocol):
    """A network that shows what goes into each of its layers and what comes out."""

    def apply_tapped(
        self, params: PyTree, x: Array, mask: Bool[Array, " examples"] | None, tap: Tap
    ) -> Array:
        """What ``apply`` gives, with ``tap`` after every layer, before its nonlinearity."""


@runtime_checkable
class Counted(Protocol):
    """A network that says how many outputs it has."""

    @property
    def outputs(self) -> int:
        """Numbers in an output."""


def outputs_of(model: Model) -> int:
    """How many outputs a network has, if it says so.

    >>> from taskmix.models import MLP
    >>> outputs_of(MLP(outputs=3))
    3
    """
    if not isinstance(model, Counted):
        raise ValueError(
            f"{type(model).__name__} does not say how many `outputs` it has; add them."
        )
    return model.outputs


def parameter_count(model: Model) -> int:
    """How many numbers the network learns.

    >>> from taskmix.models import MLP
    >>> parameter_count(MLP(inputs=1, hidden=(40, 40), outputs=1))
    1761
    """
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


def is_layer(node: Any) -> bool:
    """Whether a part of a network's parameters is a layer: a module of nothing but leaves.

    The last axis of each of its arrays is that of its output units.
    """
    return isinstance(node, eqx.Module) and jax.tree_util.all_leaves(
        [getattr(node, field.name) for field in dataclasses.fields(node)]
    )


def units_of(params: PyTree) -> list[int]:
    """How many units each layer of a network has.

    >>> from taskmix.models import MLP
    >>> units_of(MLP(inputs=1, hidden=(40, 20), outputs=3).init(jax.random.key(0)))
    [40, 20, 3]
    """
    layers = jax.tree.leaves(params, is_leaf=is_layer)
    return [jax.tree.leaves(layer)[0].shape[-1] for layer in layers]
