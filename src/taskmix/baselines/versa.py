"""VERSA: a network that infers the last layer of a task, as a distribution, in one pass.

J. Gordon, J. Bronskill, M. Bauer, S. Nowozin, R. Turner: Meta-learning probabilistic
inference for prediction. ICLR 2019.
"""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Key, PyTree

from taskmix.adaptation import MetaOptimiser, TaskResult, annealed_optimiser, mean_gradient
from taskmix.adaptation.means import task_weights
from taskmix.baselines.metric import among_present, class_means, encoder_like, memberships
from taskmix.baselines.single import Single, check_positive, query_info, single_prediction
from taskmix.learner import Info, Prediction, Told, protected
from taskmix.likelihood import Categorical, Gaussian, Likelihood, masked_mean
from taskmix.models import MLP, Encoder, Model, check_repeated, outputs_of
from taskmix.models.mlp import Linear
from taskmix.tasks import Examples, Hints, TaskBatch

# Deviation of an MLP's first weights. From MAML's 0.1, sinusoids are learned after three times
# as many batches.
FEATURE_SCALE = 0.3

Network = tuple[Linear, ...]
Outputs = Float[Array, "query outputs"]


class VersaParams(eqx.Module):
    """A network for features, and those that infer a layer upon them."""

    features: PyTree
    pairs: Network | None
    """Embeds features with a target (regression)."""
    weight_mean: Network
    weight_log_variance: Network
    bias_mean: Network
    bias_log_variance: Network


class VersaState(eqx.Module):
    params: VersaParams
    optimiser: PyTree


class Layer(eqx.Module):
    """Independent normal distributions over the weights and biases of a linear layer."""

    weight_mean: Float[Array, "outputs features"]
    weight_variance: Float[Array, "outputs features"]
    bias_mean: Float[Array, "outputs 1"]
    bias_variance: Float[Array, "outputs 1"]
    present: Bool[Array, " outputs"]
    """Which outputs there was an example of."""

    def outputs(self, features: Float[Array, "query features"]) -> tuple[Outputs, Outputs]:
        """Mean h . mu_w + mu_b and variance h^2 . s2_w + s2_b of every output."""
        mean = features @ self.weight_mean.T + self.bias_mean.T
        return mean, jnp.square(features) @ self.weight_variance.T + self.bias_variance.T


@dataclasses.dataclass(frozen=True)
class Versa(Single):
    """Minimise -log p(query | support), with the last layer of a task integrated out.

    Classes: the weights and the bias of a class are inferred from the mean of the features
    of its own support examples, by four networks that all classes share. Probabilities are
    averages over ``samples`` of the outputs themselves, each drawn from its own normal
    distribution (local reparameterisation). There is no KL term.

    Regression: in place of a class's mean feature stands the mean, over the support set, of
    an embedding of the pairs (features of x_i, target y_i). The rest is the same, save that
    the integral is closed: a target is normal around the mean of its output, with the
    likelihood's variance plus that of the output.

    Predictions have no key, and draw their samples with one that is always the same.

    Images are normalised by the statistics of their call, as in Conv4 and the paper's code.
    Its dropout is left out, since no other method has any.

    Examples
    --------
    >>> Versa(samples=2).told.value
    'nothing'
    """

    model: Model = MLP()
    """Gives the feature network its shape."""
    likelihood: Likelihood = Gaussian()
    """What targets are: numbers, classes or counts."""
    meta_rate: float = 1e-3
    """Rate of the optimiser that learns across tasks."""
    anneal_over: int = 0
    """Iterations over which the meta rate falls to zero; 0 keeps it."""
    samples: int = 10
    """Draws of an output (classes)."""
    hidden: int | None = None
    """Units of each hidden layer of the networks that infer; None for 256 with images, as in
    the paper's code, and for as many as the features otherwise."""
    blocks: int = 4
    """Convolutions (images): 4 to compare with other methods, 5 in the paper's code."""
    width: int | None = None
    """Filters of a convolution; None for as many as the model has, 64 in the paper's code."""
    meta_optimiser: MetaOptimiser = dataclasses.field(default=optax.adam, kw_only=True)
    """From a rate, or a schedule of rates, to what makes updates of gradients: one of optax's."""

    told = Told.NOTHING

    def __post_init__(self) -> None:
        check_positive(meta_rate=self.meta_rate)
        check_repeated(samples=self.samples, blocks=self.blocks)
        _ = self._optimiser()
        if self.hidden is not None:
            check_positive(hidden=self.hidden)
        if not isinstance(self.likelihood, Gaussian | Categorical):
            raise ValueError(
                f"likelihood is {self.likelihood}; it must be Gaussian or Categorical."
            )
        if isinstance(self.model, MLP) and not self.model.hidden:
            raise ValueError(f"model is {self.model}; it must have a hidden layer for features.")
        # Made once here, so that a model it cannot be made from is refused before any work.
        _ = self._extractor

    def init(self, key: Key[Array, ""], example: TaskBatch) -> VersaState:
        features, pairs, *keys = jax.random.split(key, 6)
        size, hidden = self._feature_count, self._hidden
        pooled = size if self._classes else hidden
        narrow, wide = ((pooled, hidden, hidden, outputs) for outputs in (1, size))
        params = VersaParams(
            self._extractor.init(features),
            None if self._classes else _init(pairs, (size + 1, hidden, hidden)),
            *(_init(k, sizes) for k, sizes in zip(keys, (wide, wide, narrow, narrow), strict=True)),
        )
        return VersaState(params, self._optimiser().init(params))

    @protected
    def step(
        self, state: VersaState, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[VersaState, Info]:
        batch = batch.without_padding_values()

        def task_loss(
            params: VersaParams, support: Examples, query: Examples, key: Key[Array, ""]
        ) -> tuple[Float[Array, ""], TaskResult]:
            layer = self.infer(params, support)
            mean, variance = layer.outputs(self.features(params, query.x, query.mask))
            each = self._loss(layer, mean, variance, query.y, key)
            loss = masked_mean(each, query.mask)
            return loss, TaskResult(loss, self._predictive(layer, mean, variance)[0])

        keys = jax.random.split(key, batch.query.mask.shape[0])
        tasks, weights = (batch.support, batch.query, keys), task_weights(batch)
        gradient, judged = mean_gradient(
            self.model, task_loss, state.params, *tasks, weights=weights
        )
        updates, optimiser = self._optimiser().update(gradient, state.optimiser)
        state = VersaState(optax.apply_updates(state.params, updates), optimiser)
        return state, query_info(self.likelihood, judged, batch)

    def predict(
        self,
        state: VersaState,
        support: Examples,
        query_x: Array,
        hints: Hints | None = None,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Prediction:
        layer = self.infer(state.params, support.without_padding_values())
        features = self.features(state.params, query_x, query_mask)
        return single_prediction(*self._predictive(layer, *layer.outputs(features)))

    def features(
        self, params: VersaParams, x: Array, mask: Bool[Array, " examples"] | None
    ) -> Float[Array, "examples features"]:
        """What the last layer of a task works on."""
        if isinstance(self._extractor, Encoder):
            return self._extractor.apply(params.features, x, mask)[0]
        return jax.nn.relu(self._extractor.apply(params.features, x, mask))

    def infer(self, params: VersaParams, support: Examples) -> Layer:
        """The distribution of a task's last layer, given its support set."""
        features = self.features(params, support.x, support.mask)
        if params.pairs is None:
            members = memberships(support.y, support.mask, self._output_count)
            # A task that is padding has no class; what comes of it must be finite all the same.
            present = jnp.any(members, axis=0) | ~jnp.any(support.mask)
            pooled = class_means(features, members)
        else:
            pooled = _mean_pairs(params.pairs, features, support)
            present = jnp.ones(self._output_count, dtype=bool)
        return Layer(
            _apply(params.weight_mean, pooled),
            jnp.exp(_apply(params.weight_log_variance, pooled)),
            _apply(params.bias_mean, pooled),
            jnp.exp(_apply(params.bias_log_variance, pooled)),
            present,
        )

    def _loss(
        self, layer: Layer, mean: Outputs, variance: Outputs, y: Array, key: Key[Array, ""]
    ) -> Float[Array, " query"]:
        """-log p(y | x, support) of every query."""
        if isinstance(self.likelihood, Gaussian):
            total = variance + self.likelihood.variance
            return 0.5 * jnp.sum(jnp.square(y - mean) / total + jnp.log(total), axis=-1)
        drawn = self._draw(layer, mean, variance, key)
        average = jax.nn.logsumexp(drawn, axis=0) - math.log(self.samples)
        return self.likelihood.loss(average, y)

    def _predictive(
        self, layer: Layer, mean: Outputs, variance: Outputs
    ) -> tuple[Outputs, Outputs]:
        """Mean and variance of a target, or of its classes' probabilities between samples."""
        if isinstance(self.likelihood, Gaussian):
            return mean, variance + self.likelihood.variance
        drawn = jnp.exp(self._draw(layer, mean, variance, jax.random.key(0)))
        return jnp.mean(drawn, axis=0), jnp.var(drawn, axis=0)

    def _draw(
        self, layer: Layer, mean: Outputs, variance: Outputs, key: Key[Array, ""]
    ) -> Float[Array, "samples query classes"]:
        """Log-probabilities of the classes, one for every sample of the outputs."""
        noise = jax.random.normal(key, (self.samples, *mean.shape))
        return among_present(mean + jnp.sqrt(variance) * noise, layer.present)

    @property
    def _classes(self) -> bool:
        return isinstance(self.likelihood, Categorical)

    @property
    def _extractor(self) -> MLP | Encoder:
        if isinstance(self.model, MLP):
            *hidden, last = self.model.hidden
            return MLP(self.model.inputs, tuple(hidden), last, FEATURE_SCALE)
        return encoder_like(self.model, self.width, self.blocks, affine=False)

    def _optimiser(self) -> optax.GradientTransformation:
        return annealed_optimiser(self.meta_rate, self.anneal_over, optimiser=self.meta_optimiser)

    @property
    def _feature_count(self) -> int:
        extractor = self._extractor
        return extractor.features if isinstance(extractor, Encoder) else extractor.outputs

    @property
    def _hidden(self) -> int:
        if self.hidden is not None:
            return self.hidden
        return 256 if isinstance(self._extractor, Encoder) else self._feature_count

    @property
    def _output_count(self) -> int:
        """Classes, or dimensions of a target."""
        return outputs_of(self.model)


def _mean_pairs(
    network: Network, features: Float[Array, "support features"], support: Examples
) -> Float[Array, "outputs units"]:
    """For every dimension of the targets, the mean embedding of its real pairs."""

    def of_output(y: Float[Array, " support"]) -> Float[Array, " units"]:
        pairs = jnp.concatenate([features, y[:, None]], axis=-1)
        return masked_mean(_apply(network, pairs).T, support.mask)

    return jax.vmap(of_output, in_axes=1)(support.y)


def _init(key: Key[Array, ""], sizes: tuple[int, ...]) -> Network:
    """Glorot's normal weights, and biases of almost nothing."""
    glorot = jax.nn.initializers.glorot_normal()
    layers = []
    for k, m, n in zip(jax.random.split(key, len(sizes) - 1), sizes[:-1], sizes[1:], strict=True):
        weight, bias = jax.random.split(k)
        layers.append(Linear(glorot(weight, (m, n)), 1e-3 * jax.random.normal(bias, (n,))))
    return tuple(layers)


def _apply(network: Network, x: Float[Array, "n inputs"]) -> Float[Array, "n outputs"]:
    """A fully connected network with exponential linear units."""
    for layer in network[:-1]:
        x = jax.nn.elu(x @ layer.weight + layer.bias)
    return x @ network[-1].weight + network[-1].bias
