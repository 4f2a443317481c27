"""The online mixture: a cluster for each kind of task it meets, one task at a time.

docs/model.md states the probabilistic model, what is done with a batch, and the reason for each
constant.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from taskmix.adaptation import Predictive
from taskmix.learner import Info, Prediction, protected
from taskmix.likelihood import input_statistics
from taskmix.mixture.alarm import Alarm
from taskmix.mixture.background import Background
from taskmix.mixture.explaining import (
    examples,
    explained,
    mixed,
    predicted,
    routed,
    unlike_support,
    usable,
    voices,
)
from taskmix.mixture.growth import NEWBORN_COUNT, accepted, births, reviewed, tried
from taskmix.mixture.inputs import SUPPORT, Inputs
from taskmix.mixture.joining import joined
from taskmix.mixture.learning import learned
from taskmix.mixture.members import of_living, row
from taskmix.mixture.parting import parted
from taskmix.mixture.reference import Reference
from taskmix.mixture.settings import OnlineSettings
from taskmix.mixture.state import OnlineState, Progress
from taskmix.mixture.trial import Trial
from taskmix.mixture.vigilance import alarmed, scouted
from taskmix.mixture.widths import Widths
from taskmix.tasks import Examples, Hints, TaskBatch


@dataclasses.dataclass(frozen=True)
class OnlineMixture(OnlineSettings):
    """A mixture of task models that grows with the kinds of tasks it meets.

    Examples
    --------
    >>> import taskmix as tm
    >>> tm.OnlineMixture(tm.BayesianHead(), capacity=2).told.value
    'nothing'
    """

    def init(self, key: Key[Array, ""], example: TaskBatch) -> OnlineState:
        first_key, candidate_key = jax.random.split(key)
        first = self.newborn(self.task_model.init(first_key), example)
        candidate = self.newborn(self.task_model.init(candidate_key), example)
        # Joined rather than put into its row: XLA would fold that, which takes long for images.
        members = jax.tree.map(
            lambda leaf, last: jnp.concatenate(
                [jnp.broadcast_to(leaf, (self.capacity, *leaf.shape)), last[None]]
            ),
            first,
            candidate,
        )
        task = row((example.support, example.query), 0)
        shapes = jax.eval_shape(partial(self.task_model.judge, first.params), *task)
        describe = partial(input_statistics, self.likelihood)
        statistics = jax.eval_shape(describe, example.query.x, example.query.mask)
        alive = jnp.arange(self.capacity) == 0
        nothing = jnp.zeros(self.capacity)
        return OnlineState(
            members=members,
            alive=alive,
            age=jnp.zeros(self.capacity),
            counts=NEWBORN_COUNT * jnp.append(alive, False).astype(nothing.dtype),
            background=Background.begin(shapes.predictive.mean.shape[-1]),
            inputs=Inputs.begin(self.capacity + 2, statistics.shape[-1]),
            trial=Trial.begin(),
            scout=self.scout_at(first.params, 0),
            alarm=Alarm.begin(self.capacity),
            progress=Progress(nothing, nothing, nothing),
            widths=Widths.begin(self.capacity + 1),
            iteration=jnp.zeros((), dtype=int),
        )

    @protected(alive=lambda state: state.alive)
    def step(
        self, state: OnlineState, batch: TaskBatch, key: Key[Array, ""]
    ) -> tuple[OnlineState, Info]:
        told = batch.hints.boundary if self.boundaries and batch.hints is not None else None
        batch = batch.without_padding_values().without_hints()
        keys = jax.random.split(key, 4)
        real = batch.real
        before = state
        seen = explained(self, state, batch, real)

        error, state = predicted(self, state, batch, seen, real)
        alarm, sounded, suspicion = alarmed(self, state, batch, seen, told)
        state = parted(self, state, jnp.any(real))
        trial, taken, lessons = tried(self, state, seen, real)
        apart = jax.random.uniform(keys[0], real.shape) < self.held_out
        scout = scouted(self, state, batch, seen, real)
        state = learned(self, state, batch, seen, taken, lessons, apart, keys[1])
        state = dataclasses.replace(
            state,
            trial=trial,
            alarm=alarm,
            scout=scout,
            background=state.background.observe(batch, self.likelihood),
            counts=(1 - 1 / self.memory) * state.counts + jnp.sum(seen.shares, axis=0),
            iteration=state.iteration + jnp.any(real),
        )
        state = joined(self, state, jnp.any(real))
        state, born, sounded = births(self, state, batch, taken, sounded, keys[2])
        state = accepted(self, state, seen)
        state = reviewed(self, state, jnp.any(real) & ~born)
        # A batch of nothing but padding changes nothing; it leaves members as they are.
        rest = dataclasses.replace(before, members=state.members)
        state = jax.tree.map(lambda new, old: jnp.where(jnp.any(real), new, old), state, rest)
        info = Info(
            loss=-jnp.sum(jnp.where(real, seen.density / examples(batch), 0))
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
        of_inputs = state.inputs.log_density(
            input_statistics(self.likelihood, support.x, support.mask), SUPPORT
        )
        evidence = usable(evidence) + of_inputs[: state.alive.size]
        blank = state.background.evidence(self.likelihood, support) + of_inputs[-1]
        count = jnp.maximum(support.count(), 1)
        references = row(members.reference, jnp.arange(state.alive.size))
        unlike = unlike_support(self, state, evidence / count, count)
        weights = routed(self, state, evidence + unlike, blank)
        ranks = jax.vmap(Reference.support_rank)(references, evidence / count)
        known = state.alive & references.enough()
        novelty = jnp.min(jnp.where(known, 1 - ranks, 1.0))
        void = state.background.predict(self.likelihood, support, query_x.shape[0])
        spoken = voices(self, state, evidence + unlike, weights)
        mean, variance, noise, mix = mixed(spoken, predictive, void, state.widths)
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
        windows = zeros((alarm.total, alarm.weight, alarm.squared, alarm.used))
        total, weight, squared, used = windows
        return dataclasses.replace(
            state,
            members=grown[0],
            alive=alive,
            age=age,
            counts=counts,
            inputs=grown[1],
            widths=grown[2],
            alarm=dataclasses.replace(
                alarm, total=total, weight=weight, squared=squared, used=used
            ),
            progress=zeros(state.progress),
        )

    def parameters(self, state: OnlineState) -> int:
        one = jax.eval_shape(self.task_model.init, jax.random.key(0))
        return int(jnp.sum(state.alive)) * sum(leaf.size for leaf in jax.tree.leaves(one))
