import dataclasses
import io
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from taskmix.evaluation import Evaluation
from taskmix.training import Chunk, TrainingProgress

EMPTY = Chunk(
    iteration=0,
    info=None,
    families=None,
    evaluation=Evaluation(
        jnp.zeros((1, 1)), jnp.zeros((1, 1, 1)), jnp.ones((1, 1, 1)), jnp.zeros((1, 1))
    ),
    state=None,
    grown=False,
    seconds=0.0,
)


@pytest.fixture
def chunk(stacked_info):
    return partial(chunk_of, stacked_info)


def chunk_of(stacked_info, stop: int, spawned: list[list[bool]]) -> Chunk:
    spawned = np.array(spawned)
    info = stacked_info(
        np.full(spawned.shape, 2.0),
        np.zeros((*spawned.shape, 1)),
        np.ones((*spawned.shape, 1, 1)),
        1 + np.cumsum(spawned, axis=1),
        spawned,
        np.zeros(spawned.shape),
    )
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
