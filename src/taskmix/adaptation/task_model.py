"""What a cluster is made of: the contract behind which all ways to adapt look alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from taskmix.likelihood import Likelihood
from taskmix.tasks import Examples

Posterior = Any
"""What a cluster knows of a task after it has seen the support set."""


class TaskResult(eqx.Module):
    """How a cluster did on the query set of a task, after adaptation to its support set."""

    loss: Float[Array, "*tasks"]
    predicted: Float[Array, "*tasks query outputs"]
    evidence: Float[Array, "*tasks"] | None = None
    """Of the support set, where it is known at no cost; differentiable together with the loss."""


class Predictive(eqx.Module):
    """The distribution of the targets of a query set, one value per example and output.

    What a task model does not know is None.
    """

    mean: Float[Array, "*tasks query outputs"]
    """The mean, or class probabilities."""
    uncertainty: Float[Array, "*tasks query outputs"] | None = None
    """Variance because the function is not known."""
    noise: Float[Array, "*tasks query outputs"] | None = None
    """Variance that would stay if it were."""

    @property
    def variance(self) -> Float[Array, "*tasks query outputs"] | None:
        if self.uncertainty is None or self.noise is None:
            return None
        return self.uncertainty + self.noise


class Judgement(eqx.Module):
    """What one cluster makes of one task whose query is known."""

    support: Float[Array, "*tasks"]
    """Evidence of the support set."""
    whole: Float[Array, "*tasks"]
    """Evidence of all examples of the task."""
    predictive: Predictive
    """Of the query, from the support set alone."""


@runtime_checkable
class TaskModel(Protocol):
    """From a cluster's parameters and a support set to a prediction; every method is of one task.

    Padding is replaced by zeros before anything comes here; its mask is false.

    Examples
    --------
    >>> import taskmix as tm
    >>> isinstance(tm.BayesianHead(), TaskModel)
    True
    """

    @property
    def likelihood(self) -> Likelihood:
        """How predictions are judged."""

    @property
    def one_at_a_time(self) -> bool:
        """Whether tasks are faster one after the other than all at once."""

    @property
    def exact(self) -> bool:
        """Whether the evidence is a probability, rather than a calibrated stand-in for one."""

    def init(self, key: Key[Array, ""]) -> PyTree:
        """Random parameters of a cluster.

        Parameters
        ----------
        key
            Decides which.

        Returns
        -------
        pytree of arrays
            The parameters.
        """

    def loss(
        self, params: PyTree, support: Examples, query: Examples
    ) -> tuple[Float[Array, ""], TaskResult]:
        """What the M-step minimises.

        Parameters
        ----------
        params
            Of the cluster.
        support, query
            Both sets of a task.

        Returns
        -------
        loss : Array
            One number.
        result : TaskResult
            What the task came to.
        """

    def evidence(self, params: PyTree, examples: Examples) -> Float[Array, ""]:
        """How probable targets are, given their inputs: log p(targets | inputs, cluster).

        Parameters
        ----------
        params
            Of the cluster.
        examples
            Usually a support set.

        Returns
        -------
        Array
            One number, in nats.
        """

    def adapt(self, params: PyTree, support: Examples) -> Posterior:
        """What the cluster knows after it has seen a support set.

        Parameters
        ----------
        params
            Of the cluster.
        support
            The known examples.

        Returns
        -------
        pytree of arrays
            What ``predict`` needs.
        """

    def predict(
        self, posterior: Posterior, query_x: Array, query_mask: Bool[Array, " query"] | None
    ) -> Predictive:
        """The distribution of the targets of a query set.

        Parameters
        ----------
        posterior
            What ``adapt`` gave.
        query_x
            Inputs.
        query_mask
            False where a query is padding.

        Returns
        -------
        Predictive
            Mean and variances, as far as they are known.
        """

    def judge(self, params: PyTree, support: Examples, query: Examples) -> Judgement:
        """Evidence and prediction of a whole task, for less than they would cost one by one.

        Parameters
        ----------
        params
            Of the cluster.
        support, query
            Both sets of a task.

        Returns
        -------
        Judgement
            Evidence of the support set and of the whole task, and the prediction of the query.
        """


@runtime_checkable
class Paced(Protocol):
    """Whatever says how its tasks are best gone through: a network, a task model, a learner."""

    @property
    def one_at_a_time(self) -> bool:
        """Whether tasks are faster one after the other than all at once."""


def over_rows(
    paced: Paced, function: Callable[..., Any], unroll: bool = False
) -> Callable[..., Any]:
    """``function`` over the first axis of its arguments, all at once or one after the other.

    If that is a loop and it is to ``unroll``, it takes longer to compile, and several cores
    can share its turns.
    """
    if not paced.one_at_a_time:
        return jax.vmap(function)

    def turn(_: None, one: tuple[Any, ...]) -> tuple[None, Any]:
        return None, function(*one)

    return lambda *arguments: jax.lax.scan(turn, None, arguments, unroll=unroll)[1]


def together(support: Examples, query: Examples) -> Examples:
    """All examples of a task, those of the support set first."""
    return Examples(
        *(
            jnp.concatenate(pair)
            for pair in ((support.x, query.x), (support.y, query.y), (support.mask, query.mask))
        )
    )
