"""A state of the online mixture with three clusters, made by hand, and what looks at it.

Compiling a step takes longer than all steps that are taken, so one learner serves all tests of a
file. States are made and changed by compiled functions, as every operation by itself would be
compiled too.
"""

import dataclasses
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np

from taskmix.adaptation import BayesianHead
from taskmix.mixture import OnlineMixture
from taskmix.mixture.reference import Reference, Scores
from taskmix.mixture.reservoir import Reservoir
from taskmix.mixture.trial import EASIER, Trial
from taskmix.models import MLP
from taskmix.streams import FunctionStream, consecutive

HEAD = BayesianHead(MLP(hidden=(8,), outputs=4, activation="tanh", init_scale=0.0), width=4)
SMALL = {"task_model": HEAD, "capacity": 4, "rehearsed": 4, "reference": 32}
ALONE = OnlineMixture(**SMALL, reservoir=24, held_out=0.15, maturity=5)
ORDER = np.array([2, 0, 1, 3])
grow = jax.jit(ALONE.grow)


def only_key():
    """Made when it is asked for: pytest may read this file before it says how to compile."""
    return jax.random.key(0)


class Counted:
    """A compiled step, and how often it was traced."""

    def __init__(self, learner):
        self.traces = 0

        def step(state, batch, key):
            self.traces += 1
            return learner.step(state, batch, key)

        self.compiled = jax.jit(step)

    def __call__(self, state, batch):
        return self.compiled(state, batch, only_key())


def drawn(family: str, iterations: int, tasks: int):
    stream = FunctionStream(consecutive((family,), (iterations,)), tasks=tasks, support=3, query=4)
    draw = jax.jit(lambda iteration: stream.batch(only_key(), iteration).without_hints())
    return [draw(iteration) for iteration in range(iterations)]


@jax.jit
def handmade(first, many):
    begin = ALONE.init(only_key(), first)

    def different(leaf):
        return leaf + 0.2 * jax.random.normal(jax.random.fold_in(only_key(), leaf.size), leaf.shape)

    def sample(places: int, full: int) -> Reservoir:
        tasks = jax.tree.map(lambda leaf: leaf.reshape(5, 32, *leaf.shape[1:])[:, :places], many)
        filled = jnp.broadcast_to(jnp.arange(places) < full, (5, places))
        return Reservoir(tasks, filled, jnp.array([90.0, 70.0, 80.0, 0.0, 30.0]))

    # So low that most tasks are ordinary.
    scores = jax.random.normal(only_key(), (2, 5, 32)) - 6
    params = jax.tree.map(different, begin.members.params)
    levels = jnp.array([-4.0, 4.0, 0.0, 0.0, 0.0])[:, None]
    params = dataclasses.replace(params, location=params.location.at[:, -1].add(levels))
    members = dataclasses.replace(
        begin.members,
        params=params,
        averaged=jax.tree.map(lambda leaf: 0.98 * leaf, params),
        reservoir=sample(24, 16),
        reference=Reference(sample(32, 24), Scores(*scores)),
        updates=jnp.array([90.0, 40.0, 60.0, 0.0, 10.0]),
    )
    alarm = dataclasses.replace(
        begin.alarm,
        total=jnp.array([3.0, -1.0, 2.0, 0.0])[:, None] * jnp.ones((4, 6)),
        weight=jnp.array([5.0, 6.0, 7.0, 0.0])[:, None] * jnp.ones((4, 6)),
        squared=jnp.array([5.0, 6.0, 7.0, 0.0])[:, None] * jnp.ones((4, 6)),
        used=jnp.array([True, False, True, False]),
    )
    residuals = jnp.abs(jax.random.normal(only_key(), begin.widths.residuals.shape))
    return dataclasses.replace(
        begin,
        members=members,
        alive=jnp.arange(4) < 3,
        age=jnp.array([90, 40, 60, 0], dtype=begin.age.dtype),
        counts=jnp.array([20.0, 40.0, 30.0, 0.0, 2.0]),
        trial=Trial.begin(EASIER, 0),
        scout=ALONE.scout_at(jax.tree.map(lambda leaf: leaf[1], members.averaged), 1),
        alarm=alarm,
        progress=jax.tree.map(lambda leaf: leaf - jnp.arange(4), begin.progress),
        widths=dataclasses.replace(
            begin.widths, residuals=residuals, seen=jnp.array([600.0, 30.0, 900.0, 0.0, 700.0])
        ),
        iteration=jnp.zeros((), dtype=int) + 101,
    )


@jax.jit
def permuted(state):
    """The same clusters in another order."""

    def rows(tree):
        def moved(leaf):
            return jnp.concatenate([leaf[:4][ORDER], leaf[4:]])

        return jax.tree.map(moved, tree)

    places = jnp.argsort(ORDER)
    alarm = state.alarm
    sums = rows((alarm.total, alarm.weight, alarm.squared, alarm.used))
    return dataclasses.replace(
        state,
        **{
            name: rows(getattr(state, name))
            for name in ("members", "alive", "age", "counts", "inputs", "progress", "widths")
        },
        alarm=dataclasses.replace(
            alarm, **dict(zip(("total", "weight", "squared", "used"), sums, strict=True))
        ),
        trial=dataclasses.replace(state.trial, parent=places[state.trial.parent]),
        scout=dataclasses.replace(state.scout, home=places[state.scout.home]),
    )


@jax.jit
def living(state):
    """All of a state but its only dead row, the fourth."""
    cut = partial(jax.tree.map, lambda leaf: jnp.concatenate([leaf[:3], leaf[4:]]))
    alarm = state.alarm
    return (
        [cut(getattr(state, name)) for name in ("members", "alive", "age", "counts", "widths")],
        cut((alarm.total, alarm.weight, alarm.squared, alarm.used, state.progress)),
        (alarm.wealth, alarm.raised, alarm.since, alarm.calm),
        (state.trial, state.scout, state.background, state.iteration),
    )


def task_of(batch):
    return jax.tree.map(lambda leaf: leaf[0], (batch.support, batch.query.x))


def assert_close(a, b):
    chex.assert_trees_all_close(a, b, rtol=1e-3, atol=1e-4)


@jax.jit
def with_content(batch, value: float):
    """Other numbers wherever a mask is false."""

    def filled(examples):
        real = examples.mask[..., None]
        return dataclasses.replace(
            examples,
            x=jnp.where(real, examples.x, value),
            y=jnp.where(real, examples.y, value),
        )

    return dataclasses.replace(batch, support=filled(batch.support), query=filled(batch.query))


@jax.jit
def masked(batch, support, query):
    return dataclasses.replace(
        batch,
        support=dataclasses.replace(batch.support, mask=batch.support.mask & support),
        query=dataclasses.replace(batch.query, mask=batch.query.mask & query),
    )
