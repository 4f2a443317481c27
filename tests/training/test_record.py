"""Hand-made chunks of two seeds: 2 families, 2 test tasks each, capacity 3."""

import dataclasses
import json
import tracemalloc
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.evaluation import Evaluation
from taskmix.streams import Phase
from taskmix.training import Chunk, Record
from taskmix.training.skips import Skips

FAMILIES = ("a", "b")
PHASES = (Phase(0, 4, ("a", "b")), Phase(4, 20, ("a", "b")))


def evaluation(clusters: int, capacity: int) -> Evaluation:
    responsibilities = np.zeros((2, 2, 2, capacity))
    responsibilities[..., :clusters] = 1 / clusters
    component_error = np.full((2, 2, 2, capacity), 7.0)
    error = np.array([[[1.0, 3.0], [5.0, 5.0]], [[0.0, 0.0], [0.0, 0.0]]])
    known = (np.zeros((2, 2, 2)), np.full((2, 2, 2), 0.25), np.full((2, 2, 2), np.nan))
    return Evaluation(*map(jnp.asarray, (error, component_error, responsibilities, *known)))


def chunk_of(
    stacked_info, stop: int, clusters: list[int], capacity: int, grown: bool = False
) -> Chunk:
    """Seed 0 as told; seed 1 has one cluster. Tasks: one of each family."""
    length = len(clusters)
    counts = np.array([clusters, [1] * length])
    responsibilities = np.zeros((2, length, 2, capacity))
    responsibilities[0, np.arange(length), :, counts[0] - 1] = 1
    responsibilities[1, :, :, 0] = 1
    info = stacked_info(
        np.full((2, length), 2.0),
        np.broadcast_to([1.0, 4.0], (2, length, 2)),
        responsibilities,
        np.arange(capacity) < counts[..., None],
        np.diff(counts, axis=1, prepend=counts[:, :1]) > 0,
        np.zeros((2, length), dtype=bool),
        np.broadcast_to(np.linspace(0.5, 0, length), (2, length)),
    )
    families = np.broadcast_to([0, 1], (2, length, 2))
    return Chunk(stop, info, families, evaluation(clusters[-1], capacity), None, grown, 1.5)


@pytest.fixture
def chunk(stacked_info):
    return partial(chunk_of, stacked_info)


def test_before_the_first_step_only_the_test_tasks_are_known():
    line, events = Record.begin(FAMILIES, PHASES, 0).add(
        Chunk(0, None, None, evaluation(1, 3), None, False, 0.5)
    )
    assert events == []
    assert (line["clusters"], line["loss"], line["prequential"]) == (1, None, {})
    assert line["cluster_ids"] == [0]
    assert line["families"]["a"]["error"] == 2.0
    assert len(line["families"]["a"]["responsibilities"]) == 1


def test_line_tells_the_largest_suspicion_since_the_last(chunk):
    line, _ = Record.begin(FAMILIES, PHASES, 0).add(chunk(4, [1, 1, 2, 2], 3))
    assert line["suspicion"] == 0.5


def test_line_has_one_entry_per_living_cluster(chunk):
    line, _ = Record.begin(FAMILIES, PHASES, 0).add(chunk(4, [1, 1, 2, 2], 3))
    assert line["clusters"] == 2
    assert line["batch_responsibilities"] == [0.5, 0.5]
    assert line["families"]["b"]["component_error"] == [7.0, 7.0]
    assert line["prequential"] == {"a": 1.0, "b": 4.0}


def test_spawn_is_dated_by_the_batch_that_caused_it(chunk):
    record = Record.begin(FAMILIES, PHASES, 0)
    record.add(chunk(4, [1, 1, 1, 1], 3))
    _, events = record.add(chunk(8, [1, 1, 2, 2], 3))
    assert events == [{"iteration": 6, "event": "spawned", "clusters": 2, "cluster": 1}]
    assert record.spawns == [6]


def with_rows(one: Chunk, rows: list[list[int]], shares: list[list[float]]) -> Chunk:
    """The same chunk with these rows alive in both seeds, which take these shares of all tasks."""
    alive, shares = np.array(rows, dtype=bool), np.array(shares, dtype=float)
    length, capacity = alive.shape
    info = eqx.tree_at(
        lambda i: (i.alive, i.responsibilities, i.spawned),
        one.info,
        (
            np.broadcast_to(alive, (2, length, capacity)),
            np.broadcast_to(shares[:, None], (2, length, 2, capacity)),
            np.zeros((2, length), dtype=bool),
        ),
    )
    return dataclasses.replace(one, info=info)


def test_cluster_in_a_row_that_is_used_again_is_another_one(chunk):
    record = Record.begin(FAMILIES, PHASES, 0)
    record.add(chunk(2, [2, 2], 3))
    second = with_rows(chunk(4, [2, 2], 3), [[1, 0, 0], [1, 1, 0]], [[1, 0, 0], [0, 1, 0]])
    line, events = record.add(second)
    assert events == [{"iteration": 2, "event": "removed", "clusters": 1, "cluster": 1}]
    assert record.removals == [2]
    assert (line["clusters"], line["cluster_ids"]) == (2, [0, 2])
    assert line["batch_responsibilities"] == [0.5, 0.5]
    # The second row took three batches: two with the cluster that was removed.
    np.testing.assert_allclose(record.history.shares[0, 0], [1.0, 2.0, 1.0])


def test_what_no_cluster_takes_went_to_the_background(chunk):
    one = with_rows(chunk(2, [1, 1], 3), [[1, 0, 0]] * 2, [[0.75, 0, 0], [0.25, 0, 0]])
    line, _ = Record.begin(FAMILIES, PHASES, 0).add(one)
    assert (line["batch_responsibilities"], line["batch_background"]) == ([0.5], 0.5)
    assert line["families"]["a"]["background"] == 0.25


def test_padding_does_not_count_among_the_tasks_of_a_batch(chunk):
    one = chunk(2, [1, 1], 3)
    info = jax.tree.map(np.copy, one.info)
    info.error[:, :, 1], info.responsibilities[:, :, 1] = np.nan, 0.0
    line, _ = Record.begin(FAMILIES, PHASES, 0).add(dataclasses.replace(one, info=info))
    assert (line["batch_responsibilities"], line["batch_background"]) == ([1.0], 0.0)
    assert line["prequential"] == {"a": 1.0}


def alarming(one: Chunk, alarm: list[bool]) -> Chunk:
    told = np.array([alarm, [False] * len(alarm)])
    return dataclasses.replace(one, info=eqx.tree_at(lambda i: i.alarm, one.info, told))


def test_alarm_is_an_event_when_it_begins(chunk):
    record = Record.begin(FAMILIES, PHASES, 0)
    _, events = record.add(alarming(chunk(4, [1] * 4, 3), [False, True, True, True]))
    assert events == [{"iteration": 1, "event": "alarm"}]
    record.add(alarming(chunk(6, [1, 1], 3), [True, False]))
    assert record.alarms == [1]


def test_learner_whose_only_cluster_takes_no_task_at_first_has_it_all_the_same(chunk):
    record = Record.begin(FAMILIES, PHASES, 0)
    nobody = eqx.tree_at(lambda e: e.responsibilities, evaluation(1, 3), replace_fn=jnp.zeros_like)
    line, _ = record.add(Chunk(0, None, None, nobody, None, False, 0.5))
    assert line["cluster_ids"] == [0]
    _, events = record.add(chunk(2, [1, 2], 3))
    assert [event["cluster"] for event in events] == [1]


def test_other_seed_is_not_told_of_the_spawn(chunk):
    record = Record.begin(FAMILIES, PHASES, 1)
    record.add(chunk(4, [1, 1, 2, 2], 3))
    assert record.spawns == []


def test_growth_is_an_event_at_the_start_of_the_chunk(chunk):
    _, events = Record.begin(FAMILIES, PHASES, 0).add(chunk(4, [1, 1], 6, grown=True))
    assert events == [{"iteration": 2, "event": "capacity grown", "capacity": 6}]


def test_only_the_last_line_and_those_of_phase_ends_stay_in_memory(chunk):
    record = Record.begin(FAMILIES, PHASES, 0)
    record.add(Chunk(0, None, None, evaluation(1, 3), None, False, 0.5))
    for stop in (2, 4, 6, 8):
        record.add(chunk(stop, [1, 1], 3))
    assert [line["iteration"] for line in record.metrics] == [0, 4, 8]


@pytest.mark.soak
def test_a_hundred_thousand_iterations_of_births_and_removals_leave_little_behind(chunk):
    """A birth and a removal in every ten of them: their dates stay, and what each chunk costs."""
    iterations, each = 100_000, 1000
    record = Record.begin(FAMILIES, (Phase(0, iterations, ("a", "b")),), 0)
    part = chunk(each, ([1] * 5 + [2] * 5) * (each // 10), 3)
    kept, peaks = [], []
    tracemalloc.start()
    try:
        for stop in range(each, iterations + each, each):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            record.add(dataclasses.replace(part, iteration=stop))
            now, peak = tracemalloc.get_traced_memory()
            kept.append(now)
            peaks.append(peak - before)
    finally:
        tracemalloc.stop()
    assert len(record.spawns) == iterations // 10
    half = len(kept) // 2
    a_birth = (kept[-1] - kept[half]) / (iterations / 20)
    costs = [max(some) for some in (peaks[10:half], peaks[half:])]
    print(f"\n{a_birth:.0f} bytes per birth and removal; a chunk takes {costs} bytes meanwhile")
    assert a_birth < 300
    assert costs[1] < 1.5 * costs[0] + 300 * (iterations / 20)


def skipping(chunk, skipped: list[bool], tasks: list[list[bool]]) -> Chunk:
    """The same chunk, some batches of which were skipped by seed 0."""
    batch, task = np.array([skipped, [False] * len(skipped)]), np.array([tasks, tasks])
    info = jax.tree.map(np.copy, chunk.info)
    info.loss[batch] = np.nan
    info.error[batch] = np.nan
    return dataclasses.replace(chunk, info=info, skips=Skips(batch, task & batch[..., None]))


def test_skipped_batch_is_an_event_with_the_tasks_at_fault(chunk):
    one = skipping(chunk(4, [1, 1], 3), [False, True], [[False, False], [False, True]])
    record = Record.begin(FAMILIES, PHASES, 0)
    line, events = record.add(one)
    assert events == [{"iteration": 3, "event": "batch skipped", "tasks": [1]}]
    assert line["loss"] == 2.0
    assert line["prequential"] == {"a": 1.0, "b": 4.0}
    assert record.skipped_in_a_row == 1


def test_task_that_was_left_out_is_an_event(chunk):
    one = chunk(4, [1, 1], 3)
    skips = Skips(np.zeros((2, 2), dtype=bool), np.zeros((2, 2, 2), dtype=bool))
    skips.task[0, 1, 0] = True
    record = Record.begin(FAMILIES, PHASES, 0)
    _, events = record.add(dataclasses.replace(one, skips=skips))
    assert events == [{"iteration": 3, "event": "tasks skipped", "tasks": [0]}]
    assert record.skipped_in_a_row == 1


def test_chunk_of_skipped_batches_has_no_loss(chunk):
    line, _ = Record.begin(FAMILIES, PHASES, 0).add(
        skipping(chunk(2, [1, 1], 3), [True] * 2, [[True] * 2] * 2)
    )
    assert (line["loss"], line["prequential"]) == (None, {})


@pytest.mark.parametrize(("skipped", "in_a_row"), [([True, False], 0), ([True, True], 2)])
def test_skips_in_a_row_end_with_the_chunk(chunk, skipped, in_a_row):
    record = Record.begin(FAMILIES, PHASES, 0)
    record.add(skipping(chunk(2, [1, 1], 3), skipped, [[True] * 2] * 2))
    assert record.skipped_in_a_row == in_a_row


def test_other_seed_is_not_told_of_the_skip(chunk):
    one = skipping(chunk(2, [1, 1], 3), [True, True], [[True] * 2] * 2)
    assert Record.begin(FAMILIES, PHASES, 1).add(one)[1] == []


def test_skips_in_a_row_go_on_with_the_next_chunk(chunk):
    record = Record.begin(FAMILIES, PHASES, 0)
    for stop in (2, 4):
        record.add(skipping(chunk(stop, [1, 1], 3), [True, True], [[True] * 2] * 2))
    assert record.skipped_in_a_row == 4
    record.add(chunk(6, [1, 1], 3))
    assert record.skipped_in_a_row == 0


def test_restored_record_goes_on_as_the_old_one(chunk):
    old = Record.begin(FAMILIES, PHASES, 0)
    first = alarming(chunk(2, [1, 2], 2), [False, True])
    old.add(skipping(first, [False, True], [[True] * 2] * 2))
    facts = json.loads(json.dumps(old.facts()))
    new = Record.restored(FAMILIES, PHASES, 0, old.arrays(), facts)
    assert new.skipped_in_a_row == 1
    for record in (old, new):
        record.add(alarming(chunk(3, [3], 4, grown=True), [True]))
    assert new.alarms == [1]
    assert old.facts() == new.facts()
    assert old.arrays().keys() == new.arrays().keys()
    for name, array in old.arrays().items():
        np.testing.assert_array_equal(array, new.arrays()[name])
