import dataclasses
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from taskmix.adaptation import Judgement, Predictive
from taskmix.mixture.members import Member
from taskmix.mixture.reference import Reference, Scores
from taskmix.mixture.reservoir import Reservoir
from taskmix.mixture.review import losses, purged, redundant
from taskmix.tasks import Examples, TaskBatch

BLANK = -5.0
"""Evidence of every task under the background."""


def judge(centre, tasks: TaskBatch) -> Judgement:
    """A cluster is a number, and explains tasks by how near their targets are to it."""
    whole = -jnp.sum(jnp.square(tasks.query.y - centre), axis=(1, 2))
    return Judgement(whole, whole, Predictive(tasks.query.y))


def background(support: Examples, query: Examples):
    return jnp.asarray(BLANK)


def alike(tasks: TaskBatch):
    """Inputs that are as likely for three clusters, a candidate and the background."""
    return jnp.zeros((tasks.query.mask.shape[0], 5))


REDUNDANT = jax.jit(partial(redundant, judge, background, alike), static_argnames="worth")
LOSSES = jax.jit(partial(losses, judge, background, alike))


def tasks_of(*rows) -> TaskBatch:
    """Axes of clusters and places, or of places alone; a task is one number."""
    y = jnp.asarray(rows)[..., None, None]
    examples = Examples.full(y, y)
    return TaskBatch(examples, examples)


def members_of(centres, tasks, updates, filled=None) -> Member:
    """Clusters with the tasks that they keep, and a candidate that nobody looks at."""
    centres = jnp.asarray([*centres, math.nan])
    tasks = tasks_of(*tasks, [math.nan] * len(tasks[0]))
    shape = tasks.query.mask.shape[:2]
    filled = jnp.ones(shape, dtype=bool) if filled is None else jnp.asarray(filled)
    reservoir = Reservoir(tasks, filled, jnp.full(shape[0], 9.0))
    reference = Reference(reservoir, Scores(jnp.zeros(shape), jnp.zeros(shape)))
    return Member(centres, None, centres, reservoir, reference, jnp.asarray([*updates, 0.0]))


def gone(members: Member, alive=None, mature=None, worth: float = 1.0) -> list[bool]:
    """Which cluster goes."""
    clusters = members.updates.size - 1
    alive = jnp.ones(clusters, dtype=bool) if alive is None else jnp.asarray(alive)
    mature = alive if mature is None else jnp.asarray(mature)
    return REDUNDANT(members, alive, mature, worth=worth).tolist()


TWINS = members_of([0.0, 0.0, 9.0], [[0.0, 0.1], [0.0, 0.2], [9.0, 9.1]], [70.0, 50.0, 10.0])


def test_of_twins_the_one_that_has_learned_less_goes():
    assert gone(TWINS) == [False, True, False]


def test_twins_whose_inputs_differ_stay():
    """Each one's tasks are 3 nats less likely for the other, which is more than they are worth."""

    def apart(tasks: TaskBatch):
        first = tasks.query.y[:, 0] < 0.15
        of_first = jnp.where(first, 0.0, -3.0)
        return jnp.concatenate([of_first, -3 - of_first, *[jnp.full_like(of_first, -99)] * 2], 1)

    twins = members_of([0.1, 0.1], [[0.0, 0.1], [0.2, 0.2]], [70.0, 50.0])
    alive = jnp.ones(2, dtype=bool)
    assert redundant(judge, background, apart, twins, alive, alive, 1.0).tolist() == [False, False]
    assert redundant(judge, background, alike, twins, alive, alive, 1.0).tolist() == [False, True]


def test_clusters_that_are_needed_stay():
    apart = members_of([0.0, 5.0], [[0.0, 0.1], [5.0, 5.2]], [70.0, 50.0])
    assert gone(apart) == [False, False]


def test_the_only_cluster_never_goes():
    useless = members_of([0.0, 0.0], [[90.0], [90.0]], [70.0, 50.0])
    assert gone(useless, alive=[True, False], worth=1e9) == [False, False]


def test_a_cluster_goes_if_its_tasks_are_explained_as_well_by_the_background():
    """Far from its own tasks, whose evidence it has is that of the background."""
    lost = members_of([0.0, 5.0], [[0.0], [15.0]], [70.0, 50.0])
    assert gone(lost) == [False, True]


def test_a_cluster_that_is_not_mature_stays():
    assert gone(TWINS, mature=[False, False, True]) == [False, False, False]


def test_a_dead_twin_explains_nothing():
    assert gone(TWINS, alive=[True, False, True]) == [False, False, False]


def test_no_more_than_one_cluster_goes_at_a_time():
    triplets = members_of([0.0, 0.0, 0.0], [[0.0]] * 3, [70.0, 50.0, 60.0])
    assert gone(triplets, worth=1e9) == [False, True, False]


def test_losses_are_what_the_others_and_the_background_cannot_make_up_for():
    """At its centre a task has log-density 0, under the other one -16, under the background -5."""
    members = members_of([0.0, 4.0], [[0.0, 0.0], [4.0, 2.0]], [9.0, 9.0])
    found = LOSSES(members, jnp.ones(2, dtype=bool))
    # A task between the two would lose nothing: the other one explains it as well.
    np.testing.assert_allclose(found, [-BLANK, -BLANK / 2], rtol=1e-5)


def test_places_without_a_task_lose_nothing():
    filled = [[True, True], [True, False], [False, False]]
    members = members_of([0.0, 4.0], [[0.0, 0.0], [4.0, 99.0]], [9.0, 9.0], filled)
    found = LOSSES(members, jnp.ones(2, dtype=bool))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def test_purging_drops_the_tasks_that_a_newborn_explains_better():
    tasks = tasks_of(0.0, 1.0, 6.0, 9.0)
    reservoir = Reservoir(tasks, jnp.ones(4, dtype=bool), jnp.asarray(40.0))
    reference = Reference(
        dataclasses.replace(reservoir, tasks=tasks_of(9.0, 0.0, 0.0, 0.0)),
        Scores(jnp.zeros(4), jnp.zeros(4)),
    )
    centre = jnp.asarray(0.0)
    member = Member(centre, None, centre, reservoir, reference, jnp.zeros(()))
    found = purged(judge, member, jnp.asarray(10.0), lambda tasks: jnp.zeros(8))
    assert found.reservoir.filled.tolist() == [True, True, False, False]
    assert found.reservoir.offered == 20
    assert found.reference.known.tolist() == [False, True, True, True]


def test_purging_keeps_tasks_whose_inputs_are_not_those_of_the_newborn():
    tasks = tasks_of(0.0, 9.0)
    reservoir = Reservoir(tasks, jnp.ones(2, dtype=bool), jnp.asarray(2.0))
    reference = Reference(reservoir, Scores(jnp.zeros(2), jnp.zeros(2)))
    member = Member(0.0, None, jnp.asarray(0.0), reservoir, reference, jnp.zeros(()))
    found = purged(judge, member, jnp.asarray(10.0), lambda tasks: jnp.full(4, -100.0))
    assert found.reservoir.filled.all()
    assert found.reference.known.all()
