"""What an online mixture is made of, and how it decides; docs/model.md has the reasons."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from taskmix.adaptation import BayesianHead, MetaOptimiser, TaskModel, annealed_optimiser
from taskmix.learner import Told
from taskmix.likelihood import Likelihood
from taskmix.mixture.alarm import Alarm
from taskmix.mixture.members import Member
from taskmix.mixture.reference import Reference
from taskmix.mixture.rehearsal import Rehearsal
from taskmix.mixture.reservoir import Reservoir
from taskmix.mixture.state import OnlineState, Scout
from taskmix.mixture.trial import FRESH, JOINED, Trial
from taskmix.tasks import TaskBatch

RESCORED_WITHIN = 20
"""Batches with tasks of a cluster within which it scores all of its reference anew."""
SCOUT_HASTE = 2.5
"""How many times faster than a cluster the scout learns."""


@dataclasses.dataclass(frozen=True)
class OnlineSettings:
    """What an online mixture is made of, and how it decides."""

    task_model: TaskModel = BayesianHead()
    """What a cluster is made of."""
    meta_rate: float = 2e-3
    """Rate of the optimiser that learns across tasks."""
    meta_clip: float = 1.0
    """Largest norm of a gradient; longer ones are scaled down."""
    anneal_over: int = 0
    """Updates over which the meta rate falls to zero; 0 keeps it."""
    reservoir: int = 200
    """Tasks that each cluster keeps to learn from again; 0 keeps none."""
    rehearsed: int = 8
    """Tasks among them that stand beside the new ones in each update."""
    updates: int = 1
    """Updates per batch."""
    youth: int = 5
    """How many times as many updates a cluster gets while it is young, and a candidate for what is
    new once it looks promising."""
    reference: int = 200
    """Tasks that each cluster keeps to compare new ones with, and never learns from."""
    held_out: float = 0.1
    """Share of tasks that are not learned from and may come into the reference."""
    averaging_rate: float = 0.02
    """Least rate at which the averaged parameters follow the trained ones."""
    memory: float = 50.0
    """Batches over which mixing weights are remembered."""
    persistence: float = 20.0
    """Tasks that the mixing weights of the past count for beside those of a batch."""
    maturity: int = 150
    """Updates of a grown-up after which a cluster's reference is believed."""
    settled: float = 0.5
    """Nats per task by which the evidence of a cluster may still rise when it is compared."""
    probation: int = 400
    """Batches after which a candidate that does not win begins anew."""
    parting: int = 15
    """Batches in which a candidate that is a copy learns from what clusters keep."""
    parting_updates: int = 20
    """Updates of such a copy in each of them."""
    certainty: float = 60.0
    """Nats of evidence for a birth: without reason there is one in e^60 tasks."""
    worth: float = 6.0
    """Nats per task that a cluster has to gain on its own tasks to be opened. While the alarm is on
    the price falls, to ``keep_worth`` within ``patience`` batches; else it rises with what is
    tried in vain."""
    split_worth: float = 8.0
    """The same of a cluster that parts from another, which serves its tasks already."""
    inherits: bool = False
    """Whether a candidate for what is new begins as the cluster in use is, and not at random."""
    keep_worth: float = 0.5
    """Nats per task that would be lost without a cluster for it to be kept."""
    review: int = 100
    """Batches between two looks for clusters that are no longer needed."""
    false_alarms: float = 1e-6
    """Bound on the share of tasks with which the scout raises a false alarm."""
    scouting: int = 3
    """Updates per batch of the scout; with 0 there is none, and ranks alone raise the alarm."""
    lowness: float = 6.0
    """Standard deviations below its reference at which a cluster's recent tasks raise the alarm."""
    wander: float = 0.05
    """How far the level of a cluster strays while it learns, in deviations between tasks."""
    calm: int = 20
    """Batches without reason after which an alarm ends."""
    patience: int = 100
    """Batches of an alarm without a birth after which a copy of the cluster in use is tried, and
    again after which the change is accepted."""
    capacity: int = 8
    """Clusters to make room for at the start; doubles when needed."""
    boundaries: bool = False
    """Be told when a phase begins: that is the alarm, and clusters are opened only then."""
    meta_optimiser: MetaOptimiser = dataclasses.field(default=optax.adam, kw_only=True)
    """From a rate, or a schedule of rates, to what makes updates of gradients: one of optax's."""

    def __post_init__(self) -> None:
        _ = self.rehearsal, self.optimiser()
        for name in (
            *("meta_rate", "averaging_rate", "memory", "persistence", "certainty", "worth"),
            *("split_worth", "false_alarms", "lowness", "settled"),
        ):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be positive.")
        for name in ("reservoir", "wander", "keep_worth", "reference", "held_out", "scouting"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be 0 or more.")
        for name in (
            *("capacity", "youth", "maturity", "probation", "parting", "review", "calm"),
            *("patience", "updates", "memory", "parting_updates"),
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        if not self.held_out < 1 or not self.averaging_rate <= 1 or not self.false_alarms < 1:
            raise ValueError("held_out, averaging_rate and false_alarms are shares, below 1.")
        if self.parting >= self.probation:
            raise ValueError(
                f"parting is {self.parting} and probation {self.probation}; a copy has to part "
                f"before its probation ends."
            )

    @property
    def told(self) -> Told:
        return Told.BOUNDARIES if self.boundaries else Told.NOTHING

    @property
    def likelihood(self) -> Likelihood:
        return self.task_model.likelihood

    @property
    def one_at_a_time(self) -> bool:
        return self.task_model.one_at_a_time

    @property
    def rehearsal(self) -> Rehearsal:
        return Rehearsal(1, self.rehearsed if self.reservoir else 0)

    @property
    def rescored(self) -> int:
        """Reference tasks per batch that a cluster scores anew when it has learned."""
        return -(-self.reference // RESCORED_WITHIN)

    def optimiser(self, haste: float = 1.0) -> optax.GradientTransformation:
        return annealed_optimiser(
            haste * self.meta_rate, self.anneal_over, self.meta_clip, self.meta_optimiser
        )

    def newborn(self, params: PyTree, example: TaskBatch) -> Member:
        return Member(
            params,
            self.optimiser().init(params),
            params,
            Reservoir.empty(example, max(self.reservoir, 1)),
            Reference.empty(example, max(self.reference, 1)),
            jnp.zeros(()),
        )

    def scout_at(self, params: PyTree, home: Int[Array, ""] | int) -> Scout:
        fast = self.optimiser(SCOUT_HASTE)
        return Scout(params, fast.init(params), jnp.zeros((), dtype=int) + home)

    def worthy(self, trial: Trial, alarm: Alarm, share: float = 1.0) -> Bool[Array, ""]:
        """Whether the candidate is better beyond doubt, and by a ``share`` of what it has to be."""
        left = jnp.maximum(1 - alarm.since / self.patience, 0)
        new = jnp.maximum(self.worth * left, self.keep_worth)
        calm = jnp.where(trial.origin == FRESH, self.worth, self.split_worth)
        calm *= trial.scepticism()
        worth = jnp.where(trial.is_new() & alarm.raised, new, calm)
        better = (trial.evidence > self.certainty) & (trial.worth() > share * worth)
        return better & (trial.origin != JOINED)

    def lessons(self, state: OnlineState) -> Float[Array, " clusters"]:
        return state.age * self.updates

    def mature(self, state: OnlineState) -> Bool[Array, " clusters"]:
        return state.alive & (self.lessons(state) >= self.maturity)
