"""Ridge regression on learned features of images: adapting is one solution of a small system.

The scores of a query x are s k(x, X) (K + l I)^-1 (Y - 1/N), with the kernel k(x, x') =
phi(x)' phi(x') / width of learned features phi, the support images X, their one-hot labels Y of N
classes, and s and l learned with the features.

L. Bertinetto, J. Henriques, P. Torr, A. Vedaldi: Meta-learning with differentiable closed-form
solvers. ICLR 2019.
J. Bronskill et al.: TaskNorm: rethinking batch normalization for meta-learning. ICML 2020 (queries
normalised by the statistics of their support set).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from taskmix.adaptation.task_model import Judgement, Predictive, TaskResult
from taskmix.likelihood import Categorical, Likelihood, masked_mean
from taskmix.models import Embedder, Encoder
from taskmix.tasks import Examples

SMALLEST_RIDGE = 1e-3
"""Added to the ridge: what float32 needs to factor K, whose entries are of order one."""
FIRST_SCALE = 10.0
FIRST_RIDGE = 0.5


class RidgeParams(eqx.Module):
    """What a cluster with a ridge head has learned."""

    features: PyTree
    log_scale: Float[Array, "*clusters"]
    """Logarithm of s, which stands before the softmax."""
    log_ridge: Float[Array, "*clusters"]
    """Logarithm of l above its floor."""


class RidgePosterior(eqx.Module):
    """What the head knows of a task: its support set, seen through the cluster."""

    params: RidgeParams
    support: Float[Array, "support features"]
    """Features, zero for padding."""
    cholesky: Float[Array, "support support"]
    """Of K + l I."""
    weights: Float[Array, "support classes"]
    """(K + l I)^-1 (Y - 1/N)."""
    statistics: Any
    """What the support set was normalised by."""


@dataclasses.dataclass(frozen=True)
class RidgeHead:
    """An encoder of images with a last layer in closed form: classes by ridge regression.

    Queries are normalised by the statistics of their support set, so that no query knows another;
    if ``transductive``, by those of all queries of the call.

    The evidence of a support set is that of each label given the others, where the class has
    another example; a label that is the only one of its class is as likely as any. That of a task
    is the evidence of its support set and the probability of each query's label given it.

    Parameters
    ----------
    features
        The encoder, such as those of Conv4 and ResNet-12.
    likelihood
        A ``Categorical``.
    outputs
        Classes of a task.
    transductive
        Whether the queries of a call normalise each other.

    Examples
    --------
    >>> import taskmix as tm
    >>> head = tm.RidgeHead(tm.Encoder(size=16, filters=4), outputs=3)
    >>> head.init(jax.random.key(0)).log_scale.shape
    ()
    """

    features: Embedder = Encoder()
    likelihood: Likelihood = Categorical()
    outputs: int = 5
    transductive: bool = False

    exact = False
    one_at_a_time = True

    def __post_init__(self) -> None:
        if self.outputs < 2:
            raise ValueError(f"outputs is {self.outputs}; it must be 2 classes or more.")
        if not isinstance(self.likelihood, Categorical):
            raise ValueError(
                f"likelihood is {self.likelihood}; a ridge head predicts classes, so that it must "
                f"be Categorical."
            )

    def init(self, key: Key[Array, ""]) -> RidgeParams:
        return RidgeParams(
            features=self.features.init(key),
            log_scale=math.log(FIRST_SCALE) * jnp.ones(()),
            log_ridge=math.log(FIRST_RIDGE) * jnp.ones(()),
        )

    def loss(
        self, params: RidgeParams, support: Examples, query: Examples
    ) -> tuple[Float[Array, ""], TaskResult]:
        """The query's cross-entropy, and what else a mixture asks."""
        posterior = self.adapt(params, support)
        logits = self._logits(posterior, query.x, query.mask)
        loss = masked_mean(self.likelihood.loss(logits, query.y), query.mask)
        return loss, TaskResult(loss, jax.nn.softmax(logits), self._evidence(posterior, support))

    def evidence(self, params: RidgeParams, examples: Examples) -> Float[Array, ""]:
        """Sum of log p(label | the other labels) over those whose class has another example."""
        return self._evidence(self.adapt(params, examples), examples)

    def adapt(self, params: RidgeParams, support: Examples) -> RidgePosterior:
        embedded, statistics = self.features.apply(params.features, support.x, support.mask)
        real = support.mask[:, None]
        embedded = jnp.where(real, embedded / math.sqrt(self.features.features), 0)
        targets = jnp.where(real, jax.nn.one_hot(support.y, self.outputs) - 1 / self.outputs, 0)
        # Padding has ones on the diagonal and zeros elsewhere: it then adds nothing.
        ridge = jnp.where(support.mask, SMALLEST_RIDGE + jnp.exp(params.log_ridge), 1.0)
        cholesky = jnp.linalg.cholesky(embedded @ embedded.T + jnp.diag(ridge))
        weights = cho_solve((cholesky, True), targets)
        return RidgePosterior(params, embedded, cholesky, weights, statistics)

    def predict(
        self,
        posterior: RidgePosterior,
        query_x: Array,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Predictive:
        return Predictive(jax.nn.softmax(self._logits(posterior, query_x, query_mask)))

    def judge(self, params: RidgeParams, support: Examples, query: Examples) -> Judgement:
        posterior = self.adapt(params, support)
        logits = self._logits(posterior, query.x, query.mask)
        known = self._evidence(posterior, support)
        losses = self.likelihood.loss(logits, query.y)
        of_query = jnp.sum(jnp.where(query.mask, losses, 0))
        return Judgement(known, known - of_query, Predictive(jax.nn.softmax(logits)))

    def _logits(
        self, posterior: RidgePosterior, x: Array, mask: Bool[Array, " query"] | None
    ) -> Float[Array, "query classes"]:
        params = posterior.params
        given = None if self.transductive else posterior.statistics
        embedded, _ = self.features.apply(params.features, x, mask, given)
        embedded = embedded / math.sqrt(self.features.features)
        scores = embedded @ (posterior.support.T @ posterior.weights)
        return jnp.exp(params.log_scale) * scores

    def _evidence(self, posterior: RidgePosterior, examples: Examples) -> Float[Array, ""]:
        """Scores of labels left out are y - [K^-1 y] / diag(K^-1), with K for K + l I."""
        inverse = cho_solve((posterior.cholesky, True), jnp.eye(examples.mask.shape[0]))
        targets = jax.nn.one_hot(examples.y, self.outputs) - 1 / self.outputs
        scores = targets - posterior.weights / jnp.diag(inverse)[:, None]
        losses = self.likelihood.loss(jnp.exp(posterior.params.log_scale) * scores, examples.y)
        alone = _of_its_class(examples.y, examples.mask) < 2
        losses = jnp.where(alone, math.log(self.outputs), losses)
        return -jnp.sum(jnp.where(examples.mask, losses, 0))


def _of_its_class(
    y: Int[Array, " examples"], mask: Bool[Array, " examples"]
) -> Int[Array, " examples"]:
    """How many real examples have the label of each."""
    return jnp.sum((y[:, None] == y) & mask, axis=1)
