import dataclasses
import io
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from taskmix.evaluation import Evaluation
from taskmix.learner import Info
from taskmix.training import Chunk, Pause, TrainingProgress
from taskmix.training.moments import Given

EMPTY = Chunk(
    iteration=0,
    info=None,
    families=None,
    evaluation=Evaluation(
        *(jnp.zeros((1, 1)), jnp.zeros((1, 1, 1)), jnp.ones((1, 1, 1))),
        *(jnp.zeros((1, 1)) for _ in range(3)),
    ),
    state=None,
    grown=False,
    seconds=0.0,
)


@pytest.fixture
def chunk(stacked_info):
    return partial(chunk_of, stacked_info)


def info_of(stacked_info, spawned, removed=None, alarm=None) -> Info:
    """One cluster, more of them where told, and fewer where they are removed."""
    spawned = np.array(spawned)
    removed, alarm = (
        np.zeros_like(spawned) if told is None else np.array(told) for told in (removed, alarm)
    )
    clusters = 1 + np.cumsum(spawned.astype(int) - removed, axis=1)
    return stacked_info(
        np.full(spawned.shape, 2.0),
        np.zeros((*spawned.shape, 1)),
        np.ones((*spawned.shape, 1, 4)) / 4,
        np.arange(4) < clusters[..., None],
        spawned,
        alarm,
        np.zeros(spawned.shape),
    )


def chunk_of(stacked_info, stop: int, *told, **further) -> Chunk:
    info = info_of(stacked_info, *told, **further)
    return dataclasses.replace(EMPTY, iteration=stop, info=info, seconds=float(stop))


def printed(seeds, chunks, **console) -> str:
    screen = io.StringIO()
    progress = TrainingProgress(Console(file=screen, width=120, **console), "ours", seeds, 40)
    with progress:
        for one in chunks:
            progress.update(one)
    return screen.getvalue()


QUIET_CHUNK = [[False, False]]


def test_spawn_gets_a_line(chunk):
    text = printed([0], [chunk(10, [[False, True]])])
    assert "ours: iteration 9: new cluster, now 2\n" in text


def test_spawn_among_several_seeds_names_the_seed(chunk):
    text = printed([4, 5], [chunk(10, [[False, False], [True, False]])])
    assert "ours, seed 5: iteration 8: new cluster, now 2\n" in text


def test_alarm_gets_a_line_when_it_begins(chunk):
    text = printed([0], [chunk(4, [[False] * 4], alarm=[[False, True, True, False]])])
    assert text.count("alarm") == 1
    assert "ours: iteration 1: alarm: tasks that fit nothing known\n" in text


def test_alarm_that_goes_on_in_the_next_chunk_is_no_new_one(chunk):
    chunks = [chunk(stop, [[False] * 2], alarm=[[True, True]]) for stop in (2, 4)]
    assert printed([0], chunks).count("alarm") == 1


def test_removal_gets_a_line(chunk):
    text = printed([0], [chunk(2, [[True, False]], removed=[[False, True]])])
    assert "ours: iteration 1: cluster removed, now 1\n" in text


def test_so_many_alarms_at_once_are_told_together(chunk):
    text = printed([0], [chunk(40, [[False] * 40], alarm=[[True, False] * 20])])
    assert text.count("alarm:") == 10
    assert "10 more alarms" in text


def pause_of(chunk: Chunk) -> Pause:
    return Pause(chunk.iteration, Given(chunk.info, None, None), None, False, chunk.seconds)


def test_birth_is_told_at_the_next_pause_and_not_again(chunk):
    spawned = [[False, True, False, True]]
    pauses = [pause_of(chunk(stop, [spawned[0][:stop]])) for stop in (1, 2, 3)]
    told = printed([0], pauses[:2])
    assert told.count("new cluster") == 1
    assert told in printed([0], [*pauses, chunk(4, spawned)])
    assert printed([0], [*pauses, chunk(4, spawned)]).count("new cluster") == 2


def test_what_was_told_before_an_interruption_is_not_told_again(chunk):
    screen = io.StringIO()
    progress = TrainingProgress(Console(file=screen, width=120), "ours", [0], 40)
    progress.resume(3, 1.0)
    progress.update(chunk(4, [[False, True, False, True]]))
    assert "iteration 1:" not in screen.getvalue()
    assert "iteration 3: new cluster, now 3" in screen.getvalue()


def test_plain_output_has_at_most_ten_lines(chunk):
    assert len(printed([0], [chunk(n, QUIET_CHUNK) for n in range(2, 41, 2)]).splitlines()) == 10


def test_clusters_of_several_seeds_are_a_range(chunk):
    text = printed([4, 5], [chunk(10, [[False, False], [True, True]])])
    assert "clusters 1-3" in text


@pytest.mark.parametrize("fact", ["40/40", "clusters 1", "loss 2.000", "iterations/s"])
def test_bar_shows(chunk, fact):
    text = printed([0], [chunk(40, QUIET_CHUNK)], force_terminal=True)
    assert fact in text


def test_quiet_console_prints_nothing(chunk):
    assert printed([0], [chunk(10, [[False, True]])], quiet=True) == ""
