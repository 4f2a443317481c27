"""What every schedule of every family owes to the loop."""

import itertools

import chex
import jax
import numpy as np
import pytest

from taskmix.streams import FunctionStream, Stream, consecutive, gradual, interleaved, recurring
from taskmix.streams.functions import FAMILIES
from taskmix.tasks import TaskBatch, check_batch

KEY = jax.random.key(0)
NAMES = tuple(FAMILIES)
SCHEDULES = {
    "consecutive": consecutive(NAMES, (3,) * len(NAMES)),
    "recurring": recurring(NAMES, (2,) * len(NAMES)),
    "interleaved tasks": interleaved(NAMES, 20),
    "interleaved batches": interleaved(NAMES, 20, mixing="batch"),
    "gradual": gradual(NAMES, (3,) * len(NAMES), transition=2),
}


@pytest.fixture(scope="module", params=SCHEDULES)
def stream(request):
    return FunctionStream(SCHEDULES[request.param], tasks=3, support=2, query=2)


@pytest.fixture(scope="module")
def batch_at(stream):
    return jax.jit(stream.batch)


def iterations(stream):
    """The first and the last of every phase."""
    return sorted({i for phase in stream.phases for i in (phase.start, phase.stop - 1)})


def test_stream_meets_the_protocol(stream):
    assert isinstance(stream, Stream)


def test_phases_follow_each_other_without_gaps(stream):
    assert stream.phases[0].start == 0
    assert all(phase.start < phase.stop for phase in stream.phases)
    for before, after in itertools.pairwise(stream.phases):
        assert before.stop == after.start


def test_every_family_is_active_in_some_phase(stream):
    active = dict.fromkeys(name for phase in stream.phases for name in phase.families)
    assert tuple(active) == stream.families


def test_batches_are_whole_and_of_an_active_family(stream, batch_at):
    for iteration in iterations(stream):
        batch = check_batch(batch_at(KEY, iteration))
        (phase,) = (p for p in stream.phases if p.start <= iteration < p.stop)
        assert {stream.families[f] for f in np.asarray(batch.hints.family)} <= set(phase.families)


def test_batch_depends_on_key_and_iteration_only(stream, batch_at):
    first = batch_at(KEY, 5)
    batch_at(jax.random.key(1), 4)
    chex.assert_trees_all_equal(batch_at(jax.random.key(0), 5), first)
    chex.assert_trees_all_close(stream.batch(KEY, 5), first, atol=1e-4)


def test_test_tasks_are_whole_and_of_the_family_asked_for(stream):
    last = len(stream.families) - 1
    test = check_batch(jax.jit(lambda key: stream.test_tasks(key, last, 2))(KEY))
    np.testing.assert_array_equal(test.hints.family, [last] * 2)


def test_test_tasks_can_be_loaded_all_at_once_or_one_by_one(stream):
    drawn = stream.test_tasks(KEY, 0, 2)
    together = check_batch(stream.load(drawn))
    for task in range(2):
        one = [jax.tree.map(lambda leaf, t=task: leaf[t], s) for s in (drawn.support, drawn.query)]
        alone = stream.load(TaskBatch(*one))
        expected = [
            jax.tree.map(lambda leaf, t=task: leaf[t], s)
            for s in (together.support, together.query)
        ]
        chex.assert_trees_all_close([alone.support, alone.query], expected)
