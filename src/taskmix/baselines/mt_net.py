"""MT-nets: MAML with a learned metric and a learned choice of what to adapt in every layer.

Y. Lee, S. Choi: Gradient-based meta-learning with learned layerwise metric and subspace.
ICML 2018.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from taskmix.adaptation import TaskResult, mean_gradient, over_rows, query_result
from taskmix.adaptation.means import task_weights
from taskmix.baselines.maml import MAML, MAMLState
from taskmix.baselines.single import single_info, single_prediction
from taskmix.learner import Info, Prediction, protected
from taskmix.models import Model, check_repeated, is_layer, units_of
from taskmix.tasks import Examples, Hints, TaskBatch


class MTNetParams(eqx.Module):
    network: PyTree
    transforms: tuple[Float[Array, "_ _"], ...]
    """T of each layer, a square matrix over its units."""
    logits: tuple[Float[Array, " _"], ...]
    """How readily each unit of each layer is adapted; none in a T-net."""


@dataclasses.dataclass(frozen=True)
class Transformed:
    """A network with a matrix after every layer and before what follows: y = (x W + b) T.

    A product with T runs over the output units only, so the layer equals an ordinary one
    with weights W T and bias b T, convolution or not. The inner loop adapts W and b.
    """

    model: Model
    masked: bool

    @property
    def one_at_a_time(self) -> bool:
        return self.model.one_at_a_time

    def init(self, key: Key[Array, ""]) -> MTNetParams:
        """A network of the model with identity transforms, and even odds for every unit."""
        network = self.model.init(key)
        units = units_of(network)
        logits = tuple(jnp.zeros(n) for n in units) if self.masked else ()
        return MTNetParams(network, tuple(jnp.eye(n) for n in units), logits)

    def apply(
        self, params: MTNetParams, x: Array, mask: Bool[Array, " examples"] | None = None
    ) -> Float[Array, "examples outputs"]:
        return self.model.apply(self.effective(params), x, mask)

    def adaptable(self, params: MTNetParams) -> PyTree[bool]:
        nothing = jax.tree.map(lambda _: False, params)
        return eqx.tree_at(lambda p: p.network, nothing, self.model.adaptable(params.network))

    def effective(self, params: MTNetParams) -> PyTree:
        """Parameters with which the model itself computes the same.

        What the inner loop does not adapt, a shift after a normalisation, comes after T.
        """
        weights, rest = eqx.partition(params.network, self.model.adaptable(params.network))
        transformed = _layerwise(jnp.matmul, params.network, weights, params.transforms)
        return eqx.combine(transformed, rest)


@dataclasses.dataclass(frozen=True)
class MTNet(MAML):
    """MAML for networks with transforms, where each task adapts a random part of the units.

    Per task one mask M is drawn and used in all inner steps, W <- W - rate * M * grad W. A
    prediction is the mean over ``samples`` masks, drawn with a fixed key so that it is a function
    of the state.

    Examples
    --------
    >>> MTNet(masked=False).told.value
    'nothing'
    """

    masked: bool = True
    """Whether units are left out of adaptation at random; a T-net adapts them all."""
    samples: int = 5
    """Masks that a prediction averages over; its paper draws one per task."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_repeated(samples=self.samples)

    def init(self, key: Key[Array, ""], example: TaskBatch) -> MAMLState:
        params = self._network.init(key)
        return MAMLState(params, self._begin(params))

    @protected
    def step(
        self, state: MAMLState, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[MAMLState, Info]:
        batch = batch.without_padding_values()

        def task_loss(
            params: MTNetParams, support: Examples, query: Examples, key: Key[Array, ""]
        ) -> tuple[Float[Array, ""], TaskResult]:
            adapted = self._adapt_masked(params, support, key)
            outputs = self.model.apply(adapted, query.x, query.mask)
            result = query_result(self.likelihood, outputs, query)
            return result.loss, result

        keys = jax.random.split(key, batch.query.mask.shape[0])
        tasks, weights = (batch.support, batch.query, keys), task_weights(batch)
        gradient, result = mean_gradient(
            self.model, task_loss, state.params, *tasks, weights=weights
        )
        # Predictions draw other masks.
        errors = self._errors_of_prediction(state, batch)
        moved = self._moved(state.params, state.optimiser, gradient)
        return moved, single_info(result.loss, errors, batch)

    def predict(
        self,
        state: MAMLState,
        support: Examples,
        query_x: Array,
        hints: Hints | None = None,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Prediction:
        """Mean and variance of what the masks make of the task."""
        support = support.without_padding_values()

        def one(key: Key[Array, ""]) -> Float[Array, "query outputs"]:
            adapted = self._adapt_masked(state.params, support, key)
            return self.likelihood.predictive(self.model.apply(adapted, query_x, query_mask))

        draws = self.samples if self.masked else 1
        each = over_rows(self.model, one)(jax.random.split(jax.random.key(0), draws))
        if not self.masked:
            return single_prediction(each[0])
        return single_prediction(jnp.mean(each, axis=0), jnp.var(each, axis=0))

    def _adapt_masked(self, params: MTNetParams, support: Examples, key: Key[Array, ""]) -> PyTree:
        masks = draw_masks(params.logits, key)

        def masked(gradient: MTNetParams) -> MTNetParams:
            network = _layerwise(jnp.multiply, params.network, gradient.network, masks)
            return eqx.tree_at(lambda g: g.network, gradient, network)

        adapted = self.adaptation(
            self._network, self.likelihood, params, support, masked if self.masked else None
        )
        return self._network.effective(adapted)

    @property
    def _network(self) -> Transformed:
        return Transformed(self.model, self.masked)


def _layerwise(
    operation: Callable[[Array, Array], Array],
    network: PyTree,
    tree: PyTree,
    values: tuple[Array, ...],
) -> PyTree:
    """Each leaf of ``tree``, which is like ``network``, combined with the value of its layer."""
    structure = jax.tree.structure(network, is_leaf=is_layer)
    return jax.tree.map(
        lambda _, layer, value: jax.tree.map(lambda leaf: operation(leaf, value), layer),
        network,
        tree,
        jax.tree.unflatten(structure, values),
        is_leaf=is_layer,
    )


def draw_masks(
    logits: tuple[Float[Array, " _"], ...], key: Key[Array, ""]
) -> tuple[Float[Array, " _"], ...]:
    """Zeros and ones, one for each unit, with a gradient as if they were in between.

    Adding Gumbel noise to the pair (logit, 0), a softmax gives the first of the two
    s = sigmoid(logit + noise) with logistic noise, the difference of the two Gumbel
    variables. The mask is 1 where s > 1/2, and its derivative is taken to be that of s.
    """
    masks = []
    for layer, logit in enumerate(logits):
        noise = jax.random.logistic(jax.random.fold_in(key, layer), logit.shape)
        soft = jax.nn.sigmoid(logit + noise)
        masks.append((soft > 0.5) + (soft - jax.lax.stop_gradient(soft)))
    return tuple(masks)
