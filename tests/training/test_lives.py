"""Clusters that come and go, in rows that are used again."""

import json
from functools import partial

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmix.training.lives import NOBODY, Happening, Lives


def info_of(stacked_info, alive, alarm=None, spawned=None):
    """Of one seed; a row that comes alive was spawned, but for the first iteration."""
    alive = np.array(alive, dtype=bool)
    length = len(alive)
    new = np.diff(alive.astype(int), axis=0, prepend=alive[:1].astype(int)).max(axis=1) > 0
    return stacked_info(
        np.zeros(length),
        np.zeros((length, 1)),
        np.zeros((length, 1, alive.shape[1])),
        alive,
        new if spawned is None else np.array(spawned),
        np.zeros(length, dtype=bool) if alarm is None else np.array(alarm),
        np.zeros(length),
    )


@pytest.fixture(scope="module")
def info(stacked_info):
    return partial(info_of, stacked_info)


ONE = np.array([True, False, False])


def test_row_that_is_used_again_holds_another_cluster(info):
    lives = Lives.begin(ONE)
    rows = [[1, 0, 0], [1, 1, 0], [1, 0, 0], [1, 1, 0]]
    held, happenings = lives.follow(info(rows))
    # In the iteration that removes it, a cluster still has its share of the tasks.
    np.testing.assert_array_equal(held, [[0, -1, -1], [0, 1, -1], [0, 1, -1], [0, 2, -1]])
    assert happenings == [
        Happening(1, "spawned", 2, 1),
        Happening(2, "removed", 1, 1),
        Happening(3, "spawned", 2, 2),
    ]
    assert (lives.ids, lives.born) == ([0, 2], 3)


def test_birth_and_removal_of_one_iteration_are_told_apart(info):
    lives = Lives.begin(np.array([True, True, False]))
    held, happenings = lives.follow(info([[1, 0, 1]], spawned=[True]))
    np.testing.assert_array_equal(held, [[0, 1, 2]])
    assert happenings == [Happening(0, "removed", 2, 1), Happening(0, "spawned", 2, 2)]


def test_birth_in_no_new_row_is_told_without_a_number(info):
    _, happenings = Lives.begin(ONE).follow(info([[1, 0, 0]], spawned=[True]))
    assert happenings == [Happening(0, "spawned", 1, None)]


def test_rows_that_capacity_adds_are_empty(info):
    lives = Lives.begin(np.array([True]))
    lives.follow(info([[1, 0, 0, 1]], spawned=[True]))
    np.testing.assert_array_equal(lives.rows, [0, NOBODY, NOBODY, 1])


def test_alarms_of_batches_in_a_row_are_one(info):
    lives = Lives.begin(ONE)
    told = [
        lives.follow(info([ONE] * len(alarm), alarm=alarm))[1]
        for alarm in ([False, True, True], [True, False, True], [False, True])
    ]
    assert [[one.offset for one in some] for some in told] == [[1], [2], [1]]


def slow_numbers(first, alive):
    """By the words of the definition, row by row and iteration by iteration."""
    rows, born = [NOBODY] * len(first), 0
    after = []
    for iteration in [first, *alive]:
        for row, living in enumerate(iteration):
            if not living:
                rows[row] = NOBODY
            elif rows[row] == NOBODY:
                rows[row], born = born, born + 1
        after.append(list(rows))
    return after[1:]


LIVING = st.lists(st.tuples(*[st.booleans()] * 3), min_size=2, max_size=12)


@given(LIVING, st.data())
def test_numbers_do_not_depend_on_the_chunks_nor_on_an_interruption(info, living, data):
    first, *alive = living
    cut = data.draw(st.integers(0, len(alive)))
    shares = np.arange(1.0, 1 + 6 * len(alive)).reshape(-1, 2, 3)
    lives = Lives.begin(np.array(first))
    found = []
    for part in (alive[:cut], alive[cut:]):
        if not part:
            continue
        held, _ = lives.follow(info(part))
        clusters, of_each = lives.shares(held, shares[: len(part)])
        assert clusters.tolist() == sorted(set(held.ravel().tolist()) - {NOBODY})
        assert of_each.shape == (len(part), 2, len(clusters))
        found += np.where(np.array(part), held, NOBODY).tolist()
        lives = Lives.restored(json.loads(json.dumps(lives.facts())))
    assert found == slow_numbers(first, alive)


def test_shares_are_those_of_the_cluster_and_not_of_its_row(info):
    lives = Lives.begin(ONE)
    held, _ = lives.follow(info([[1, 1, 0], [1, 0, 0], [1, 1, 0], [1, 1, 0]], spawned=[True] * 4))
    clusters, shares = lives.shares(held, np.array([[[0.5, 0.3, 0.0]]] * 4))
    assert clusters.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(
        shares[:, 0], [[0.5, 0.3, 0.0], [0.5, 0.3, 0.0], [0.5, 0.0, 0.3], [0.5, 0.0, 0.3]]
    )


def test_clusters_that_are_gone_take_no_room(info):
    """After a million births and removals there is as much to look at as after two."""
    lives = Lives(np.array([7, 999_999, NOBODY]), born=1_000_000)
    held, _ = lives.follow(info([[1, 1, 0], [1, 0, 1]], spawned=[False, True]))
    clusters, shares = lives.shares(held, np.array([[[0.5, 0.3, 0.0]], [[0.5, 0.0, 0.4]]]))
    assert clusters.tolist() == [7, 999_999, 1_000_000]
    np.testing.assert_array_equal(shares[:, 0], [[0.5, 0.3, 0.0], [0.5, 0.0, 0.4]])


def test_following_does_not_change_what_it_is_told(info):
    told = info([[1, 0, 0], [1, 1, 0]])
    before = jax.tree.map(np.copy, told)
    Lives.begin(ONE).follow(told)
    jax.tree.map(np.testing.assert_array_equal, told, before)
