"""What learners have in common that embed images and compare a query with the support set."""

from __future__ import annotations

import abc
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Key, PyTree, Shaped

from taskmix.adaptation import MetaOptimiser
from taskmix.adaptation.means import task_weights, weighted_mean
from taskmix.baselines.single import Single, check_positive, single_info, single_prediction
from taskmix.learner import Info, Prediction, Told, protected
from taskmix.likelihood import Categorical, Likelihood, masked_mean
from taskmix.models import Conv4, Encoder, Model
from taskmix.models.block import Statistics
from taskmix.tasks import Examples, Hints, TaskBatch

LOG_ZERO = -30.0
"""Stands for log 0 where a class has no support example, so that losses stay finite."""


class MetricParams(eqx.Module):
    encoder: PyTree
    comparison: PyTree


class MetricState(eqx.Module):
    params: MetricParams
    optimiser: PyTree
    statistics: tuple[Statistics, ...]
    """Running averages of what batches were normalised by, one per block."""


@dataclasses.dataclass(frozen=True)
class MetricLearner(Single, abc.ABC):
    """An encoder that is trained end to end through a comparison of embeddings.

    In training all images of a batch, support and query of every task, are embedded in one
    call and normalised by its statistics. Predictions, and the error that a step reports,
    use running averages of these, so that no query knows another.
    """

    model: Model = Conv4()
    """Gives the feature network its shape."""
    likelihood: Likelihood = Categorical()
    """What targets are: numbers, classes or counts."""
    meta_rate: float = 1e-3
    """Rate of the optimiser that learns across tasks."""
    width: int | None = None
    """Filters of a convolution; None for as many as the model has."""
    memory: float = 0.9
    """How much of the running statistics a batch leaves as it is."""
    meta_optimiser: MetaOptimiser = dataclasses.field(default=optax.adam, kw_only=True)
    """From a rate, or a schedule of rates, to what makes updates of gradients: one of optax's."""

    told = Told.NOTHING

    def __post_init__(self) -> None:
        check_positive(meta_rate=self.meta_rate)
        check_classes(self.likelihood)
        if not 0 <= self.memory < 1:
            raise ValueError(f"memory is {self.memory}; it must be at least 0 and less than 1.")
        # Made once here, so that a model it cannot be made from is refused before any work.
        _ = self.encoder

    @property
    def encoder(self) -> Encoder:
        return encoder_like(self.model, self.width)

    @property
    def way(self) -> int:
        """Classes of a task."""
        return conv4_of(self.model).outputs

    @abc.abstractmethod
    def optimiser(self) -> optax.GradientTransformation:
        """What learns encoder and comparison."""

    def init_comparison(self, key: Key[Array, ""]) -> PyTree:
        """What there is to learn besides the encoder: nothing, unless a method says so."""
        return ()

    @abc.abstractmethod
    def compare(
        self, params: PyTree, support: Examples, query: Float[Array, "query features"]
    ) -> Float[Array, "query classes"]:
        """Log-probabilities of the classes, given embeddings in place of images."""

    def init(self, key: Key[Array, ""], example: TaskBatch) -> MetricState:
        encoder, comparison = jax.random.split(key)
        params = MetricParams(self.encoder.init(encoder), self.init_comparison(comparison))
        return MetricState(params, self.optimiser().init(params), self.encoder.init_statistics())

    @protected
    def step(
        self, state: MetricState, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[MetricState, Info]:
        batch = batch.without_padding_values()

        def objective(params: MetricParams) -> tuple[Array, tuple[Array, tuple[Statistics, ...]]]:
            outputs, statistics = self._outputs(params, batch, None)
            each = self.likelihood.loss(outputs, batch.query.y)
            losses = masked_mean(each, batch.query.mask)
            return weighted_mean(losses, task_weights(batch)), (losses, statistics)

        gradient, (losses, seen) = jax.grad(objective, has_aux=True)(state.params)
        updates, optimiser = self.optimiser().update(gradient, state.optimiser)
        statistics = jax.tree.map(
            lambda old, new: self.memory * old + (1 - self.memory) * new, state.statistics, seen
        )
        outputs, _ = self._outputs(state.params, batch, state.statistics)
        errors = self.likelihood.error(self.likelihood.predictive(outputs), batch.query.y)
        info = single_info(losses, masked_mean(errors, batch.query.mask), batch)
        params = optax.apply_updates(state.params, updates)
        return MetricState(params, optimiser, statistics), info

    def predict(
        self,
        state: MetricState,
        support: Examples,
        query_x: Array,
        hints: Hints | None = None,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Prediction:
        mask = jnp.ones(query_x.shape[0], dtype=bool) if query_mask is None else query_mask
        query = Examples(query_x, jnp.zeros(mask.shape, support.y.dtype), mask)
        task = jax.tree.map(lambda leaf: leaf[None], TaskBatch(support, query))
        outputs, _ = self._outputs(state.params, task.without_padding_values(), state.statistics)
        return single_prediction(self.likelihood.predictive(outputs[0]))

    def _outputs(
        self, params: MetricParams, batch: TaskBatch, statistics: tuple[Statistics, ...] | None
    ) -> tuple[Float[Array, "tasks query classes"], tuple[Statistics, ...]]:
        """Outputs for every query of a batch, whose images are embedded in one call."""
        x = jnp.concatenate([batch.support.x, batch.query.x], axis=1)
        mask = jnp.concatenate([batch.support.mask, batch.query.mask], axis=1)
        embedded, seen = self.encoder.apply(
            params.encoder, x.reshape(-1, *x.shape[2:]), mask.reshape(-1), statistics
        )
        support, query = jnp.split(
            embedded.reshape(*mask.shape, -1), [batch.support.mask.shape[1]], axis=1
        )
        # What is compared with nothing is not a number; so padding is compared with itself.
        known = Examples(support, batch.support.y, batch.support.mask | ~batch.real[:, None])
        return jax.vmap(self.compare, (None, 0, 0))(params.comparison, known, query), seen


def memberships(
    y: Shaped[Array, " support"], mask: Bool[Array, " support"], way: int
) -> Bool[Array, "support classes"]:
    """Which class each real example is of."""
    return (y[:, None] == jnp.arange(way)) & mask[:, None]


def class_means(
    x: Float[Array, "support features"], members: Bool[Array, "support classes"]
) -> Float[Array, "classes features"]:
    """The mean of each class (0 if it has no example)."""
    weight = members / jnp.maximum(jnp.sum(members, axis=0), 1)
    return weight.T.astype(x.dtype) @ x


def among_present(
    logits: Float[Array, "*batch classes"], present: Bool[Array, " classes"]
) -> Float[Array, "*batch classes"]:
    """Log-probabilities over the classes that have an example; the others get almost none."""
    log_probabilities = jax.nn.log_softmax(jnp.where(present, logits, -jnp.inf))
    return jnp.where(present, log_probabilities, LOG_ZERO)


def check_classes(likelihood: Likelihood) -> None:
    """Raise a ``ValueError`` if targets are not classes."""
    if not isinstance(likelihood, Categorical):
        raise ValueError(
            f"likelihood is {likelihood}; it must be Categorical, since classes are compared."
        )


def encoder_like(model: Model, width: int | None, blocks: int = 4, affine: bool = True) -> Encoder:
    """An encoder for the images that ``model`` takes."""
    like = conv4_of(model)
    filters = like.filters if width is None else width
    return Encoder(like.channels, like.size, filters, blocks, affine)


def conv4_of(model: Model) -> Conv4:
    """The model itself, if it is the one whose convolutions an encoder has."""
    if not isinstance(model, Conv4):
        raise ValueError(f"model is {model}; it must be a Conv4, whose convolutions embed images.")
    return model
