"""What the paper's nonparametric mixture is made of, its appendix included."""

from __future__ import annotations

import dataclasses
import math
from typing import get_args

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from taskmix.adaptation import MetaOptimiser, TaskModel, annealed_optimiser
from taskmix.adaptation.gradient import Gradient
from taskmix.learner import Told
from taskmix.likelihood import Likelihood
from taskmix.mixture.global_prior import Refresh
from taskmix.mixture.newborn import Averaged
from taskmix.mixture.prior import ConcentrationFrom, expected_concentration, gamma_mode
from taskmix.mixture.pruning import Prune


@dataclasses.dataclass(frozen=True)
class PaperSettings:
    """Settings of Algorithm 1 with Subroutine 3; the defaults are what the paper reports with."""

    task_model: TaskModel = Gradient()
    """What a cluster is made of."""
    meta_rate: float = 1e-3
    """Rate of the optimiser that learns across tasks."""
    meta_clip: float = math.inf
    """Largest norm of a cluster's gradient; longer ones are scaled down."""
    anneal_over: int = 0
    """Iterations over which the meta rate falls to zero; 0 keeps it."""
    temperature: float = 1.0
    """What log-likelihoods are divided by before they become responsibilities."""
    coefficient: float = 1.0
    """Weight of the log-count term beside the likelihood."""
    concentration: float = 0.0
    """Of the Chinese restaurant process; 0: `concentration_from` decides."""
    concentration_from: ConcentrationFrom = "batch"
    """Tasks of a batch (the paper's), the mode under a Gamma(1, 1) prior, or what
    `expected_clusters` asks for."""
    expected_clusters: float = 3.0
    """Clusters that are expected of the tasks seen so far."""
    window: int = 5
    """Iterations over which tasks are counted; the appendix also considers 20."""
    window_growth: int = 0
    """Iterations that each further cluster adds to the window."""
    adapted_precision: float = 0.0
    """Precision of the adapted parameters around their cluster in the explicit prior term; 0
    leaves the term out, as the paper does."""
    threshold: float = 0.95
    """Fraction of an equal share that a candidate must reach."""
    warm_up: int = 1000
    """Iterations with a single cluster, after which it becomes the global prior."""
    cool_down: int = 500
    """Iterations after a spawn without another one, with the older clusters frozen."""
    refresh: Refresh = "average"
    """How the global prior follows the clusters."""
    refresh_every: int = 1000
    """Iterations between two refreshments of the global prior."""
    refresh_growth: float = 1.0
    """How many times as long each pause between refreshments is as the one before."""
    refresh_alone: bool = False
    """Refresh it while there is one cluster, too: a candidate is then never far from it."""
    bandwidth: float = 0.01
    """Deviation of a kernel of the density, from which a candidate is drawn (`density`)."""
    noise: float = 0.0
    """Standard deviation of a candidate around the global prior."""
    noise_halved_after: int = 0
    """Iterations after which the variance of candidates is half; 0 keeps it."""
    draws: int = 1
    """Candidates that are drawn per batch."""
    averaged: Averaged = "responsibilities"
    """What is averaged over several draws: responsibilities, of which the best draw is opened, or
    also the first gradient of a cluster that opens at the global prior."""
    prune: Prune = "never"
    """Clusters to remove: those with disproportionately few tasks, or alike to a larger one."""
    prune_every: int = 1000
    """Iterations between two looks for such clusters."""
    prune_share: float = 0.05
    """Share of an equal share of the tasks since the last look below which they are few."""
    prune_odds: float = 1.5
    """Odds ratio on validation tasks below which two clusters are alike."""
    validation: int = 50
    """Tasks of the stream that are kept to compare clusters on (`alike`)."""
    capacity: int = 4
    """Clusters to make room for at the start; doubles when needed."""
    boundaries: bool = False
    """Be told when a phase begins: the cool-down then ends there and nowhere else."""
    meta_optimiser: MetaOptimiser = dataclasses.field(default=optax.adam, kw_only=True)
    """From a rate, or a schedule of rates, to what makes updates of gradients: one of optax's."""

    def __post_init__(self) -> None:
        self._check_numbers()
        _ = self.optimiser()
        for name, kind in (
            *(("concentration_from", ConcentrationFrom), ("refresh", Refresh)),
            *(("averaged", Averaged), ("prune", Prune)),
        ):
            if getattr(self, name) not in get_args(kind):
                known = ", ".join(get_args(kind))
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be one of {known}.")
        if self.adapted_precision and self.task_model.exact:
            raise ValueError(
                f"adapted_precision is {self.adapted_precision}, but the evidence of "
                f"{type(self.task_model).__name__} integrates over adapted parameters and has the "
                f"term within; leave it at 0."
            )
        if self.averaged == "gradients" and self.refresh == "density":
            raise ValueError(
                "averaged is 'gradients' and refresh 'density', whose draws lie around different "
                "clusters and have no common point to open a cluster at; change one of them."
            )

    def _check_numbers(self) -> None:
        for name in (
            *("meta_rate", "temperature", "threshold", "expected_clusters", "bandwidth"),
            *("prune_share", "prune_odds"),
        ):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be positive.")
        for name in (
            *("coefficient", "noise", "warm_up", "concentration", "window_growth"),
            *("adapted_precision", "noise_halved_after"),
        ):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be 0 or more.")
        for name in (
            *("window", "cool_down", "refresh_every", "capacity", "draws", "prune_every"),
            *("validation", "refresh_growth"),
        ):
            if not getattr(self, name) >= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1.")

    @property
    def likelihood(self) -> Likelihood:
        return self.task_model.likelihood

    @property
    def one_at_a_time(self) -> bool:
        return self.task_model.one_at_a_time

    @property
    def told(self) -> Told:
        return Told.BOUNDARIES if self.boundaries else Told.NOTHING

    def optimiser(self) -> optax.GradientTransformation:
        """What updates a cluster."""
        return annealed_optimiser(
            self.meta_rate, self.anneal_over, self.meta_clip, self.meta_optimiser
        )

    def longest_window(self, capacity: int) -> int:
        """Iterations to remember where there is room for so many clusters."""
        return self.window + self.window_growth * (capacity - 1)

    def zeta(
        self,
        clusters: Int[Array, ""],
        tasks: Float[Array, ""],
        in_batch: Int[Array, ""],
    ) -> Float[Array, ""]:
        """The concentration, given the clusters there are and the tasks that came before."""
        if self.concentration:
            return jnp.asarray(self.concentration)
        if self.concentration_from == "gamma":
            return gamma_mode(clusters, tasks)
        if self.concentration_from == "expected":
            return expected_concentration(self.expected_clusters, tasks)
        return jnp.maximum(in_batch, 1).astype(float)
