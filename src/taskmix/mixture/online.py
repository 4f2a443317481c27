"""The online mixture: a cluster for each kind of task it meets, one task at a time.

docs/model.md states the probabilistic model, what is done with a batch, and the reason for each
constant.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from taskmix.adaptation import BayesianHead, Judgement, Predictive, TaskModel, meta_optimiser
from taskmix.adaptation.task_model import over_rows
from taskmix.learner import Info, Mix, Prediction, Told
from taskmix.likelihood import Likelihood, masked_mean
from taskmix.mixture.alarm import RECENT, Alarm, winnings
from taskmix.mixture.background import Background
from taskmix.mixture.inputs import Inputs
from taskmix.mixture.members import Member, changed, of_living, row, with_row
from taskmix.mixture.reference import Reference, Scores
from taskmix.mixture.rehearsal import Rehearsal
from taskmix.mixture.reservoir import Reservoir
from taskmix.mixture.review import purged, redundant
from taskmix.mixture.trial import FRESH, Trial
from taskmix.mixture.widths import Widths
from taskmix.tasks import Examples, Hints, TaskBatch

WORST = -1e30
"""Evidence of what diverged."""
HELD = 0.9
"""Responsibility from which on a task is clearly a cluster's own."""
LEAST_WEIGHT = 0.03
"""Mixing weight from which on a cluster moves: strays do not teach it."""
UNLIKE = -3.0
"""Typicality, in nats, below which a task is nobody's sample of anything."""
STRANGE = 2.5
"""Lowness of its newest tasks, in deviations, from which on a cluster does not learn from them."""
LEAST_COUNT = 0.1
NEWBORN_COUNT = 10.0
ROUNDS = 3
"""Rounds of EM for the mixing weights of a batch."""
BLANK_PRIOR = -2.0
"""Logarithm of the background's weight beside that of a cluster, when a task comes alone."""
SCOUT_HASTE = 2.5
"""How many times faster than a cluster the scout learns,"""
SCOUT_STEPS = 3
"""in how many updates per batch,"""
SCOUT_RETURN = 0.1
"""and how much of the way back to its cluster it goes before each batch."""
COMPARED = 40
"""Reference tasks per batch that the scout is judged on beside the new ones."""
RESCORED = 10
"""Reference tasks that a cluster scores anew when it has learned."""
FAST, SLOW = 0.05, 0.01
"""Rates of the averages of a cluster's evidence whose difference says whether it still rises."""


class Progress(eqx.Module):
    """Whether the evidence of each cluster's own tasks still rises."""

    fast: Float[Array, " clusters"]
    slow: Float[Array, " clusters"]
    seen: Float[Array, " clusters"]

    def observe(
        self, evidence: Float[Array, "tasks clusters"], own: Float[Array, "tasks clusters"]
    ) -> Progress:
        mass = jnp.sum(own, axis=0)
        level = jnp.sum(jnp.where(own > 0, own * evidence, 0), axis=0) / jnp.maximum(mass, 1e-6)
        seen = self.seen + (mass > HELD)

        def followed(old: Array, rate: float) -> Array:
            rate = jnp.maximum(rate, 1 / jnp.maximum(seen, 1))
            return jnp.where(mass > HELD, old + rate * (level - old), old)

        return Progress(followed(self.fast, FAST), followed(self.slow, SLOW), seen)

    def rise(self) -> Float[Array, " clusters"]:
        return self.fast - self.slow


class Scout(eqx.Module):
    """A copy of the cluster most in use that runs ahead of it."""

    params: PyTree
    optimiser: PyTree
    home: Int[Array, ""]
    """The cluster that it is a copy of."""


class OnlineState(eqx.Module):
    members: Member
    """Clusters, and in the last row the candidate."""
    alive: Bool[Array, " clusters"]
    age: Int[Array, " clusters"]
    """Batches since a cluster was born, or last had to accept that its tasks have changed."""
    counts: Float[Array, " clusters_and_background"]
    """Tasks of the recent past."""
    background: Background
    inputs: Inputs
    trial: Trial
    scout: Scout
    alarm: Alarm
    progress: Progress
    widths: Widths
    iteration: Int[Array, ""]


class EStep(eqx.Module):
    """What the mixture makes of a batch; columns are clusters, candidate or background."""

    judged: Judgement
    """Axes (tasks, clusters and candidate)."""
    blank: Judgement
    """Of the background."""
    scores: Scores
    """Per example, axes (clusters and candidate, tasks)."""
    unlike: Float[Array, "tasks clusters_and_candidate"]
    """Typicality: 0, or how much less likely a task is for being unlike a cluster's own."""
    evidence: Float[Array, "tasks clusters_and_background"]
    """Of the whole task, typicality included."""
    prior: Float[Array, " clusters_and_background"]
    weights: Float[Array, " clusters_and_background"]
    """Mixing weights of the batch."""
    shares: Float[Array, "tasks clusters_and_background"]
    """Responsibilities; 0 for padding."""
    density: Float[Array, " tasks"]
    """Log-density of each task under the mixture."""
    best: Bool[Array, "tasks clusters"]
    """Which cluster explains each task best, the background left aside."""
    ranks: Float[Array, "tasks clusters"]


@dataclasses.dataclass(frozen=True)
class OnlineMixture:
    """A mixture of task models that grows with the kinds of tasks it meets."""

    task_model: TaskModel = BayesianHead()
    meta_rate: float = 2e-3
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
    youth: int = 3
    """How many times as many updates a cluster gets while it is young."""
    reference: int = 200
    """Tasks that each cluster keeps to compare new ones with, and never learns from."""
    held_out: float = 0.1
    """Share of tasks that are not learned from and may come into the reference."""
    averaging_rate: float = 0.05
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
    parting: int = 150
    """Batches in which a candidate that is a copy learns from one half of the tasks."""
    seeded: int = 25
    """Batches of these in which the halves are the harder and the easier tasks."""
    certainty: float = 60.0
    """Nats of evidence for a birth: without reason there is one in e^60 tasks."""
    worth: float = 4.0
    """Nats per task that a cluster has to gain on its own tasks to be opened."""
    keep_worth: float = 1.0
    """Nats per task that would be lost without a cluster for it to be kept."""
    review: int = 100
    """Batches between two looks for clusters that are no longer needed."""
    false_alarms: float = 1e-5
    """Bound on the share of tasks with which the scout raises a false alarm."""
    lowness: float = 5.0
    """Standard deviations below its reference at which a cluster's recent tasks raise the alarm."""
    wander: float = 0.05
    """How far the level of a cluster strays while it learns, in deviations between tasks."""
    calm: int = 20
    """Batches without reason after which an alarm ends."""
    patience: int = 100
    """Batches of an alarm from which nothing was born after which the change is accepted."""
    capacity: int = 8
    """Clusters to make room for at the start; doubles when needed."""
    boundaries: bool = False
    """Be told when a phase begins: that is the alarm, and clusters are opened only then."""

    def __post_init__(self) -> None:
        _ = self._rehearsal, self._optimiser()
        for name in (
            *("meta_rate", "averaging_rate", "memory", "persistence", "certainty", "worth"),
            *("false_alarms", "lowness", "settled"),
        ):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be positive.")
        for name in ("reservoir", "wander", "keep_worth", "reference", "held_out"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be 0 or more.")
        for name in (
            *("capacity", "youth", "maturity", "probation", "parting", "review", "calm"),
            "patience",
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

    def init(self, key: Key[Array, ""], example: TaskBatch) -> OnlineState:
        first_key, candidate_key = jax.random.split(key)
        first = self._newborn(self.task_model.init(first_key), example)
        members = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (self.capacity + 1, *leaf.shape)), first
        )
        candidate = self._newborn(self.task_model.init(candidate_key), example)
        task = row((example.support, example.query), 0)
        shapes = jax.eval_shape(partial(self.task_model.judge, first.params), *task)
        described = jax.eval_shape(self.likelihood.describe, example.query.x, example.query.mask)
        alive = jnp.arange(self.capacity) == 0
        nothing = jnp.zeros(self.capacity)
        return OnlineState(
            members=with_row(members, self.capacity, candidate),
            alive=alive,
            age=jnp.zeros(self.capacity, dtype=int),
            counts=NEWBORN_COUNT * jnp.append(alive, False).astype(nothing.dtype),
            background=Background.begin(shapes.predictive.mean.shape[-1]),
            inputs=Inputs.begin(self.capacity + 2, described.shape[-1]),
            trial=Trial.begin(),
            scout=self._scout(first.params, 0),
            alarm=Alarm.begin(self.capacity),
            progress=Progress(nothing, nothing, nothing),
            widths=Widths.begin(self.capacity + 1),
            iteration=jnp.zeros((), dtype=int),
        )

    def step(
        self, state: OnlineState, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[OnlineState, Info]:
        told = batch.hints.boundary if self.boundaries and batch.hints is not None else None
        batch = batch.without_padding_values().without_hints()
        keys = jax.random.split(key, 4)
        real = batch.real
        background = state.background.observe(batch, self.likelihood)
        state = dataclasses.replace(state, background=background)
        seen = self._explained(state, batch, real)

        error, state = self._predicted(state, batch, seen, real)
        alarm, sounded, suspicion = self._alarmed(state, batch, seen, told)
        trial, taken, lessons = self._tried(state, seen, real)
        apart = jax.random.uniform(keys[0], real.shape) < self.held_out
        before = state
        state = dataclasses.replace(state, trial=trial)
        state = self._learned(state, batch, seen, taken, lessons, apart, keys[1])
        state = dataclasses.replace(
            state,
            alarm=alarm,
            scout=self._scouted(before, batch, seen, real),
            counts=(1 - 1 / self.memory) * state.counts + jnp.sum(seen.shares, axis=0),
            age=state.age + 1,
            iteration=state.iteration + jnp.any(real),
        )
        state, born = self._births(state, batch, sounded, keys[2])
        state = self._accepted(state)
        state = self._reviewed(state, born)
        # A batch of nothing but padding changes nothing.
        state = jax.tree.map(lambda new, old: jnp.where(jnp.any(real), new, old), state, before)
        info = Info(
            loss=-jnp.sum(jnp.where(real, seen.density / _examples(batch), 0))
            / jnp.maximum(jnp.sum(real), 1),
            error=error,
            responsibilities=seen.shares[:, :-1],
            alive=state.alive,
            spawned=born,
            alarm=sounded,
            suspicion=suspicion,
        )
        return state, info

    def predict(
        self,
        state: OnlineState,
        support: Examples,
        query_x: Array,
        hints: Hints | None = None,
        query_mask: Bool[Array, " query"] | None = None,
    ) -> Prediction:
        support = support.without_padding_values()
        members = state.members

        def one(index: Int[Array, ""]) -> tuple[Array, Predictive]:
            params = row(members.averaged, index)
            posterior = self.task_model.adapt(params, support)
            predictive = self.task_model.predict(posterior, query_x, query_mask)
            return self.task_model.evidence(params, support), predictive

        evidence, predictive = of_living(one, state.alive)
        described = self.likelihood.describe(support.x, support.mask)
        of_inputs = state.inputs.log_density(described)
        evidence = _usable(evidence) + of_inputs[: state.alive.size]
        blank = state.background.evidence(self.likelihood, support) + of_inputs[-1]
        count = jnp.maximum(support.count(), 1)
        references = row(members.reference, jnp.arange(state.alive.size))
        unlike = jax.vmap(lambda one, score: one.support_typicality(score, count))(
            references, evidence / count
        )
        unlike = jnp.where(self._mature(state), unlike, 0)
        weights = self._routed(state, evidence + unlike, blank)
        ranks = jax.vmap(Reference.support_rank)(references, evidence / count)
        known = state.alive & references.enough()
        novelty = jnp.min(jnp.where(known, 1 - ranks, 1.0))
        void = state.background.predict(self.likelihood, support, query_x.shape[0])
        mean, variance, noise, mix = _mixed(weights, predictive, void, state.widths)
        return Prediction(
            mean=mean,
            components=predictive.mean,
            responsibilities=weights[:-1],
            variance=variance,
            noise=noise,
            mix=mix,
            background=weights[-1],
            novelty=jnp.where(jnp.any(known), novelty, 0.0),
        )

    def has_room(self, state: OnlineState, iterations: int) -> Bool[Array, ""]:
        """A birth that finds no room waits: two free rows are enough to go on with."""
        return jnp.sum(state.alive) + 2 <= state.alive.size

    def grow(self, state: OnlineState) -> OnlineState:
        clusters = state.alive.size

        def wider(leaf: Array, first: Array) -> Array:
            """As many dead rows more, copies of the first, before what stands last."""
            dead = jnp.broadcast_to(first[:1], (clusters, *first.shape[1:]))
            return jnp.concatenate([leaf[:clusters], dead, leaf[clusters:]])

        grown = jax.tree.map(
            lambda leaf: wider(leaf, leaf), (state.members, state.inputs, state.widths)
        )
        zeros = partial(jax.tree.map, lambda leaf: wider(leaf, jnp.zeros_like(leaf[:1])))
        age, counts, alive = zeros((state.age, state.counts, state.alive))
        alarm = state.alarm
        total, weight, squared = zeros((alarm.total, alarm.weight, alarm.squared))
        return dataclasses.replace(
            state,
            members=grown[0],
            alive=alive,
            age=age,
            counts=counts,
            inputs=grown[1],
            widths=grown[2],
            alarm=dataclasses.replace(alarm, total=total, weight=weight, squared=squared),
            progress=zeros(state.progress),
        )

    def parameters(self, state: OnlineState) -> int:
        one = jax.eval_shape(self.task_model.init, jax.random.key(0))
        return int(jnp.sum(state.alive)) * sum(leaf.size for leaf in jax.tree.leaves(one))

    @property
    def _rehearsal(self) -> Rehearsal:
        return Rehearsal(1, self.rehearsed if self.reservoir else 0)

    def _optimiser(self, haste: float = 1.0) -> optax.GradientTransformation:
        return meta_optimiser(haste * self.meta_rate, self.anneal_over, self.meta_clip)

    def _newborn(self, params: PyTree, example: TaskBatch) -> Member:
        return Member(
            params,
            self._optimiser().init(params),
            params,
            Reservoir.empty(example, max(self.reservoir, 1)),
            Reference.empty(example, max(self.reference, 1)),
            jnp.zeros(()),
        )

    def _scout(self, params: PyTree, home: Int[Array, ""] | int) -> Scout:
        fast = self._optimiser(SCOUT_HASTE)
        return Scout(params, fast.init(params), jnp.zeros((), dtype=int) + home)

    def _mature(self, state: OnlineState) -> Bool[Array, " clusters"]:
        return state.alive & (state.age * self.updates >= self.maturity)

    def _judge(self, params: PyTree, tasks: TaskBatch) -> Judgement:
        """Every task under one cluster, with what is not a number as bad as can be."""
        judge = over_rows(self.task_model, partial(self.task_model.judge, params))
        judged = judge(tasks.support, tasks.query)
        return Judgement(_usable(judged.support), _usable(judged.whole), judged.predictive)

    def _described(self, tasks: TaskBatch) -> tuple[Array, Array]:
        """Statistics of the inputs of support sets, and of whole tasks."""
        x = jnp.concatenate([tasks.support.x, tasks.query.x], axis=1)
        mask = jnp.concatenate([tasks.support.mask, tasks.query.mask], axis=1)
        describe = self.likelihood.describe
        return describe(tasks.support.x, tasks.support.mask), describe(x, mask)

    def _explained(self, state: OnlineState, batch: TaskBatch, real: Array) -> EStep:
        """Evidence, mixing weights of the batch, responsibilities per task."""
        members, clusters = state.members, state.alive.size
        living = jnp.append(state.alive, True)
        judged = of_living(lambda index: self._judge(row(members.averaged, index), batch), living)
        judged = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), judged)
        blank = jax.vmap(partial(state.background.judge, self.likelihood))(
            batch.support, batch.query
        )
        of_support, of_whole = map(state.inputs.log_density, self._described(batch))
        judged = dataclasses.replace(
            judged,
            support=jnp.where(living, judged.support + of_support[:, :-1], -jnp.inf),
            whole=jnp.where(living, judged.whole + of_whole[:, :-1], -jnp.inf),
        )
        blank = dataclasses.replace(
            blank, support=blank.support + of_support[:, -1], whole=blank.whole + of_whole[:, -1]
        )
        count = _examples(batch)
        seen = jnp.maximum(batch.support.count(), 1)
        scores = Scores(judged.whole.T / count, judged.support.T / seen)
        mature = jnp.append(self._mature(state), False)
        unlike = jax.vmap(lambda one, score: one.whole_typicality(score, count))(
            members.reference, scores.whole
        ).T
        unlike = jnp.where(mature, unlike, 0)
        # Before anything is known, nothing can be said to be unlike it.
        void = jnp.where(jnp.any(mature), blank.whole, -jnp.inf)
        evidence = jnp.concatenate([(judged.whole + unlike)[:, :-1], void[:, None]], axis=1)
        prior = state.counts + LEAST_COUNT * jnp.append(state.alive, True)
        prior = prior / jnp.sum(prior)
        weights, shares = _mixing(prior, evidence, real, self.persistence)
        known = jnp.where(state.alive, judged.whole[:, :-1] + jnp.log(prior[:-1]), -jnp.inf)
        best = jnp.argmax(known, axis=-1)[:, None] == jnp.arange(clusters)
        ranks = jax.vmap(Reference.rank)(members.reference, scores.whole)
        return EStep(
            judged=judged,
            blank=blank,
            scores=scores,
            unlike=unlike,
            evidence=evidence,
            prior=prior,
            weights=weights,
            shares=shares,
            density=jax.nn.logsumexp(jnp.log(weights) + evidence, axis=-1),
            best=best & real[:, None],
            ranks=ranks[:-1].T,
        )

    def _routed(
        self, state: OnlineState, evidence: Float[Array, " clusters"], blank: Float[Array, ""]
    ) -> Float[Array, " clusters_and_background"]:
        """Responsibilities of a task that comes alone, known by its support set only."""
        known = jnp.any(self._mature(state))
        evidence = jnp.where(state.alive, evidence, -jnp.inf)
        void = jnp.where(known, blank + BLANK_PRIOR, -jnp.inf)
        return jax.nn.softmax(jnp.append(evidence, void))

    def _predicted(
        self, state: OnlineState, batch: TaskBatch, seen: EStep, real: Array
    ) -> tuple[Float[Array, " tasks"], OnlineState]:
        """The error that ``predict`` would have made, and what residuals say about widths."""
        count = jnp.maximum(batch.support.count(), 1)
        references = row(state.members.reference, jnp.arange(state.alive.size))
        unlike = jax.vmap(lambda one, score: one.support_typicality(score, count))(
            references, seen.scores.support[:-1]
        ).T
        unlike = jnp.where(self._mature(state), unlike, 0)
        parts = jax.tree.map(lambda leaf: leaf[:, :-1], seen.judged.predictive)
        weights = jax.vmap(partial(self._routed, state))(
            seen.judged.support[:, :-1] + unlike, seen.blank.support
        )
        mixed = partial(_mixed, widths=state.widths)
        mean, *_ = jax.vmap(mixed)(weights, parts, seen.blank.predictive)
        error = masked_mean(self.likelihood.error(mean, batch.query.y), batch.query.mask)
        error = jnp.where(real, error, jnp.nan)
        if parts.variance is None or seen.blank.predictive.variance is None:
            return error, state
        every = jax.tree.map(
            lambda part, void: jnp.concatenate([part, void[:, None]], axis=1),
            parts,
            seen.blank.predictive,
        )
        residuals = jnp.abs(batch.query.y[:, None] - every.mean) / jnp.sqrt(every.variance)
        alike = (seen.unlike[:, :-1] > UNLIKE) & ~state.alarm.raised
        own = (seen.shares > HELD) & jnp.pad(alike, ((0, 0), (0, 1)), constant_values=True)
        widths = state.widths.observe(residuals, batch.query.mask, own)
        return error, dataclasses.replace(state, widths=widths)

    def _alarmed(
        self, state: OnlineState, batch: TaskBatch, seen: EStep, told: Array | None
    ) -> tuple[Alarm, Bool[Array, ""], Float[Array, ""]]:
        """The alarm after the batch, whether it was raised by it, and how near it is to that."""
        if self.boundaries:
            reason = jnp.asarray(False) if told is None else told
            alarm = state.alarm.judged(reason, self.patience)
            return alarm, alarm.raised & ~state.alarm.raised, alarm.raised.astype(float)
        clusters = state.alive.size
        known = row(state.members.reference, jnp.arange(clusters))
        judged = self._mature(state) & known.enough()
        won = self._bets(state, batch, seen, judged)
        alarm = state.alarm.observe(seen.ranks, seen.best & judged, won)
        in_use = seen.prior[:-1] * jnp.sum(state.alive) >= 0.25
        low = jnp.where(in_use[:, None], alarm.lowness(known.count(), self.wander), 0)
        wealth = alarm.wealth / -jnp.log(self.false_alarms)
        suspicion = jnp.maximum(jnp.max(low) / self.lowness, wealth)
        alarm = alarm.judged(suspicion > 1, self.calm)
        return alarm, alarm.raised & ~state.alarm.raised, jnp.clip(suspicion, 0, 1)

    def _bets(
        self, state: OnlineState, batch: TaskBatch, seen: EStep, judged: Array
    ) -> Float[Array, ""]:
        """What bets on the scout win with a batch."""
        home, places = state.scout.home, self.reference
        if not places:
            return jnp.zeros(())
        sample = row(state.members.reference.sample, home)
        some = (state.iteration * COMPARED + jnp.arange(min(COMPARED, places))) % places
        tasks = row(sample.tasks, some)
        params = row(state.members.averaged, home)
        ordinary = self._judge(state.scout.params, tasks).whole - self._judge(params, tasks).whole
        ordinary = ordinary / _examples(tasks)
        _, of_whole = map(state.inputs.log_density, self._described(batch))
        lead = self._judge(state.scout.params, batch).whole + of_whole[:, home]
        lead = lead / _examples(batch) - seen.scores.whole[home]
        usable = sample.filled[some]
        counted = seen.best[:, home] & judged[home] & (jnp.sum(usable) >= COMPARED // 3)
        return jnp.sum(jnp.where(counted, winnings(lead, ordinary, usable), 0))

    def _tried(
        self, state: OnlineState, seen: EStep, real: Array
    ) -> tuple[Trial, Float[Array, " tasks"], Float[Array, " tasks"]]:
        """The trial after the batch, which tasks the candidate takes, what it learns from."""
        trial, candidate = state.trial, seen.judged.whole[:, -1]
        settled = self._mature(state) & (state.progress.rise() < self.settled)
        in_use = seen.prior[:-1] * jnp.sum(state.alive) >= 0.25
        # Against a cluster that still improves by itself nothing is proven.
        settled = jnp.append(settled, jnp.all(settled | ~in_use))
        fair = settled[jnp.argmax(seen.evidence, axis=-1)] | state.alarm.raised
        if self.boundaries:
            fair = jnp.broadcast_to(state.alarm.raised, fair.shape)
        parting = (trial.origin != FRESH) & (trial.age < self.parting)
        taken = jnp.where(real, trial.taken(seen.density, candidate), 0)
        parent = trial.parent
        ahead = candidate - seen.judged.whole[:, parent]
        after = trial.tried(seen.density, candidate, fair & real & ~parting, real)
        after, half = after.half(ahead, seen.ranks[:, parent], seen.shares[:, parent], self.seeded)
        return after, jnp.where(parting, 0, taken), jnp.where(parting, half, taken)

    def _learned(
        self,
        state: OnlineState,
        batch: TaskBatch,
        seen: EStep,
        taken: Float[Array, " tasks"],
        lessons: Float[Array, " tasks"],
        apart: Bool[Array, " tasks"],
        key: Key[Array, ""],
    ) -> OnlineState:
        """The M-step: every cluster learns from the tasks that are its own."""
        clusters, real = state.alive.size, batch.real
        mature, raised = self._mature(state), state.alarm.raised
        known = row(state.members.reference, jnp.arange(clusters))
        strange = state.alarm.lowness(known.count(), 0.0)[:, RECENT] > STRANGE
        moves = (seen.weights[:-1] >= LEAST_WEIGHT) & ~((raised | strange) & mature)
        shares = seen.shares[:, :-1]
        own = jnp.where((shares > 0.5) & moves, shares, 0)
        credit = jnp.concatenate([own, lessons[:, None]], axis=1)
        credit = jnp.where(apart[:, None], 0, credit)
        alike = (seen.unlike > UNLIKE) & jnp.append(state.alive, True)
        held = jnp.concatenate([shares, taken[:, None]], axis=1) > HELD
        held &= alike & ~apart[:, None]
        sampled = jnp.concatenate([seen.best, (taken > 0.5)[:, None]], axis=1)
        sampled &= alike & apart[:, None] & ~jnp.append(raised & mature, False)
        learns = jnp.sum(credit, axis=0) >= jnp.append(jnp.full(clusters, HELD), 0.1)
        hasty = jnp.append(~mature, raised & (state.trial.origin == FRESH))
        updates = jnp.where(learns, jnp.where(hasty, self.youth, 1) * self.updates, 0)
        touched = learns | jnp.any(held | sampled, axis=0)

        def one(index: Int[Array, ""], member: Member) -> Member:
            learn_key, keep_key, sample_key = jax.random.split(jax.random.fold_in(key, index), 3)
            member = self._updated(member, batch, credit[:, index], updates[index], learn_key)
            reservoir = member.reservoir
            if self.reservoir:
                reservoir, _ = reservoir.offer(batch, held[:, index], keep_key)
            scores = row(seen.scores, index)
            reference = member.reference
            if self.reference:
                reference = reference.offer(batch, scores, sampled[:, index], sample_key)
                reference = self._rescored(state, index, member, reference)
            return dataclasses.replace(member, reservoir=reservoir, reference=reference)

        _, described = self._described(batch)
        rows = jnp.concatenate([own, lessons[:, None], real[:, None]], axis=1)
        return dataclasses.replace(
            state,
            members=changed(state.members, one, touched),
            inputs=state.inputs.observe(described, rows),
            progress=state.progress.observe(seen.judged.whole[:, :-1], own),
        )

    def _updated(
        self,
        member: Member,
        batch: TaskBatch,
        credit: Float[Array, " tasks"],
        updates: Int[Array, ""],
        key: Key[Array, ""],
    ) -> Member:
        """A member after its updates, each scaled by its share of the batch."""
        total, half = jnp.sum(credit), jnp.maximum(jnp.sum(batch.real), 1) / 2
        size = jnp.minimum(1.0, total / half)
        again = jnp.minimum(1.0, total / max(self.rehearsed, 1))

        def update(turn: Int[Array, ""], carry: tuple) -> tuple:
            params, optimiser, averaged, count = carry
            params, optimiser, _ = self._rehearsal(
                self.task_model,
                self._optimiser(),
                params,
                optimiser,
                batch,
                credit,
                member.reservoir,
                jax.random.fold_in(key, turn),
                size,
                again,
            )
            rate = size * jnp.maximum(self.averaging_rate, 1 / (count + 1))
            averaged = jax.tree.map(lambda a, p: a + rate * (p - a), averaged, params)
            return params, optimiser, averaged, count + 1

        start = (member.params, member.optimiser, member.averaged, member.updates)
        params, optimiser, averaged, count = jax.lax.fori_loop(0, updates, update, start)
        return dataclasses.replace(
            member, params=params, optimiser=optimiser, averaged=averaged, updates=count
        )

    def _rescored(
        self, state: OnlineState, index: Array, member: Member, reference: Reference
    ) -> Reference:
        """Some places of a reference, scored by the cluster as it is now."""
        places = reference.known.shape[0]
        some = (state.iteration * RESCORED + jnp.arange(min(RESCORED, places))) % places
        tasks = row(reference.sample.tasks, some)
        judged = self._judge(member.averaged, tasks)
        of_support, of_whole = map(state.inputs.log_density, self._described(tasks))
        whole = (judged.whole + of_whole[:, index]) / _examples(tasks)
        support = (judged.support + of_support[:, index]) / jnp.maximum(tasks.support.count(), 1)
        return reference.rescored(some, Scores(whole, support))

    def _scouted(self, state: OnlineState, batch: TaskBatch, seen: EStep, real: Array) -> Scout:
        """The scout after it has learned from the batch."""
        scout = state.scout
        home = jnp.argmax(jnp.where(state.alive, seen.weights[:-1], -1))
        averaged = row(state.members.averaged, home)
        moved = home != scout.home
        fresh = self._scout(averaged, home)
        params = jax.tree.map(
            lambda own, back: jnp.where(moved, back, own + SCOUT_RETURN * (back - own)),
            scout.params,
            averaged,
        )
        optimiser = jax.tree.map(
            lambda old, new: jnp.where(moved, new, old), scout.optimiser, fresh.optimiser
        )
        quick = Rehearsal(SCOUT_STEPS, 0)
        params, optimiser, _ = quick(
            self.task_model,
            self._optimiser(SCOUT_HASTE),
            params,
            optimiser,
            batch,
            real.astype(seen.density.dtype),
            None,
            jax.random.key(0),
        )
        return Scout(params, optimiser, home)

    def _births(
        self, state: OnlineState, batch: TaskBatch, sounded: Bool[Array, ""], key: Key[Array, ""]
    ) -> tuple[OnlineState, Bool[Array, ""]]:
        """Promote the candidate if it has earned it, and let another begin where one is due."""
        trial = state.trial
        wins = trial.evidence > self.certainty
        born = wins & (trial.worth() > self.worth) & (trial.weight > 10) & (trial.age > 20)
        born &= ~jnp.all(state.alive)
        state = jax.lax.cond(born, self._promoted, lambda state: state, state)
        over = (trial.age >= self.probation) & ~wins | (trial.age >= 3 * self.probation)
        due = born | over | (sounded & ~wins)
        again = partial(self._begun, example=batch, key=key, fresh=sounded)
        return jax.lax.cond(due, again, lambda state: state, state), born

    def _promoted(self, state: OnlineState) -> OnlineState:
        """The candidate becomes a cluster; what it explains better leaves the others' samples."""
        clusters = state.alive.size
        free = jnp.argmin(state.alive)
        newborn = row(state.members, clusters)
        members = changed(
            state.members,
            lambda _, member: purged(self._judge, member, newborn.averaged),
            jnp.append(state.alive, False),
        )
        chosen = jnp.arange(clusters + 1) == free
        alarm = state.alarm.forget(chosen[:-1])
        begun = Alarm.begin(clusters, raised=True)
        # An alarm that was answered starts to look again; one that was not there stays away.
        alarm = jax.tree.map(lambda new, old: jnp.where(alarm.raised, new, old), begun, alarm)
        inputs = with_row(state.inputs, free, row(state.inputs, clusters))
        nothing = jnp.zeros(())
        return dataclasses.replace(
            state,
            members=with_row(members, free, newborn),
            alive=state.alive.at[free].set(True),
            age=state.age.at[free].set(0),
            counts=state.counts.at[free].max(NEWBORN_COUNT),
            inputs=inputs,
            alarm=alarm,
            progress=with_row(state.progress, free, Progress(nothing, nothing, nothing)),
            widths=state.widths.forget(chosen),
        )

    def _begun(
        self, state: OnlineState, example: TaskBatch, key: Key[Array, ""], fresh: Bool[Array, ""]
    ) -> OnlineState:
        """A new candidate: at random, or a copy of a cluster that is in use."""
        clusters = state.alive.size
        init_key, parent_key, origin_key = jax.random.split(key, 3)
        use = jnp.where(state.alive, jnp.log(state.counts[:-1] + 1e-3), -jnp.inf)
        parent = jax.random.categorical(parent_key, use)
        origin = jnp.where(fresh, FRESH, jax.random.randint(origin_key, (), 0, 3))
        params = jax.tree.map(
            lambda new, rows: jnp.where(origin == FRESH, new, rows[parent]),
            self.task_model.init(init_key),
            state.members.params,
        )
        blank = row(Inputs.begin(1, state.inputs.mean.shape[-1]), 0)
        return dataclasses.replace(
            state,
            members=with_row(state.members, clusters, self._newborn(params, example)),
            inputs=with_row(state.inputs, clusters, blank),
            trial=Trial.begin(origin, parent),
        )

    def _accepted(self, state: OnlineState) -> OnlineState:
        """After an alarm from which nothing came: what is now is what there is to know."""
        wins = state.trial.evidence > self.certainty
        since = state.alarm.since
        over = (since >= self.patience) & (~wins | (since >= 3 * self.patience))
        clusters = state.alive.size
        carried = state.alive & (state.counts[:-1] > 0.1 * jnp.sum(state.counts)) & over
        sample = state.members.reference.sample
        gone = jnp.append(carried, False)
        members = eqx.tree_at(
            lambda m: (m.reference.sample.filled, m.reference.sample.offered),
            state.members,
            (sample.filled & ~gone[:, None], jnp.where(gone, 0, sample.offered)),
        )
        alarm = jax.tree.map(
            lambda new, old: jnp.where(over, new, old), Alarm.begin(clusters), state.alarm
        )
        age = jnp.where(carried, 0, state.age)
        return dataclasses.replace(state, members=members, alarm=alarm, age=age)

    def _reviewed(self, state: OnlineState, born: Bool[Array, ""]) -> OnlineState:
        """Without the least needed cluster, if it is not needed; now and then."""

        def look(state: OnlineState) -> OnlineState:
            gone = redundant(
                self._judge,
                partial(state.background.evidence, self.likelihood),
                state.members,
                state.alive,
                self._mature(state),
                self.keep_worth,
            )
            counts = jnp.where(jnp.append(gone, False), 0, state.counts)
            alarm = state.alarm.forget(gone)
            return dataclasses.replace(state, alive=state.alive & ~gone, counts=counts, alarm=alarm)

        due = (state.iteration % self.review == 0) & ~born & bool(self.reservoir)
        return jax.lax.cond(due, look, lambda state: state, state)


def _examples(tasks: TaskBatch) -> Int[Array, " tasks"]:
    """Examples of each task, at least 1."""
    return jnp.maximum(tasks.support.count() + tasks.query.count(), 1)


def _usable(evidence: Float[Array, "*any"]) -> Float[Array, "*any"]:
    return jnp.where(jnp.isfinite(evidence), evidence, WORST)


def _mixing(
    prior: Float[Array, " parts"],
    evidence: Float[Array, "tasks parts"],
    real: Bool[Array, " tasks"],
    persistence: float,
) -> tuple[Float[Array, " parts"], Float[Array, "tasks parts"]]:
    """Mixing weights of a batch by EM from those of the past, and responsibilities."""

    def shares(weights: Array) -> Array:
        return jax.nn.softmax(jnp.log(weights) + evidence, axis=-1) * real[:, None]

    weights = prior
    for _ in range(ROUNDS):
        weights = persistence * prior + jnp.sum(shares(weights), axis=0)
        weights = weights / jnp.sum(weights)
    return weights, shares(weights)


def _mixed(
    weights: Float[Array, " clusters_and_background"],
    parts: Predictive,
    blank: Predictive,
    widths: Widths,
) -> tuple[Array, Array | None, Array | None, Mix | None]:
    """Mean, variance, noise and distribution of a mixture of predictions of one task.

    A part whose prediction is not finite has no say in it.
    """
    means = jnp.concatenate([parts.mean, blank.mean[None]])
    finite = jnp.all(jnp.isfinite(means), axis=(-2, -1))
    weights = jnp.where(finite, weights, 0)
    weights = weights / jnp.maximum(jnp.sum(weights), 1e-30)
    means = jnp.where(finite[:, None, None], means, 0)
    mean = jnp.tensordot(weights, means, axes=1)
    if parts.variance is None or blank.variance is None:
        return mean, None, None, None
    variances = jnp.concatenate([parts.variance, blank.variance[None]])
    noises = jnp.concatenate([parts.noise, blank.noise[None]])
    variance = jnp.tensordot(weights, variances + jnp.square(means - mean), axes=1)
    noise = jnp.tensordot(weights, noises, axes=1)
    mix = Mix(weights, means, jnp.sqrt(jnp.maximum(variances, 1e-12)), widths.levels())
    return mean, variance, noise, mix
