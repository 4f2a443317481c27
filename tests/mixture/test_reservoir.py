import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.mixture.members import row as one_of
from taskmix.mixture.reservoir import Reservoir, offered
from taskmix.tasks import Examples, Hints, TaskBatch

KEY = jax.random.key(0)
OFFER = jax.jit(Reservoir.offer)


def numbered(*numbers: float) -> TaskBatch:
    """Tasks of one example that holds the task's number."""
    y = jnp.asarray(numbers)[:, None, None]
    examples = Examples.full(y, y)
    return TaskBatch(examples, examples)


def all_of(count: int) -> jax.Array:
    return jnp.ones(count, dtype=bool)


def kept(reservoir: Reservoir) -> list[float]:
    return sorted(reservoir.tasks.query.y[:, 0, 0][reservoir.filled].tolist())


def filled(places: int, *numbers: float) -> Reservoir:
    empty = Reservoir.empty(numbered(0.0), places)
    return OFFER(empty, numbered(*numbers), all_of(len(numbers)), KEY)[0]


def test_tasks_are_all_kept_while_there_is_room():
    assert kept(filled(4, 1.0, 2.0, 3.0)) == [1.0, 2.0, 3.0]


@pytest.fixture(scope="module")
def often():
    """The tasks kept of 12, offered four at a time to five places, for 4000 keys."""

    @jax.jit
    @jax.vmap
    def once(key):
        reservoir = Reservoir.empty(numbered(0.0), 5)
        for turn, one in enumerate(jax.random.split(key, 3)):
            batch = numbered(*range(4 * turn, 4 * turn + 4))
            reservoir, _ = reservoir.offer(batch, all_of(4), one)
        return reservoir.tasks.query.y[:, 0, 0], reservoir.filled

    numbers, full = once(jax.random.split(KEY, 4000))
    assert full.all()
    return np.asarray(numbers).astype(int)


def test_each_task_offered_is_kept_with_the_same_chance(often):
    counts = np.bincount(often.ravel(), minlength=12)
    chance = 5 / 12
    deviation = np.sqrt(4000 * chance * (1 - chance))
    np.testing.assert_array_less(np.abs(counts - 4000 * chance) / deviation, 4)


def test_no_task_is_kept_twice(often):
    assert (np.diff(np.sort(often, axis=1), axis=1) > 0).all()


def test_tasks_that_are_not_asked_for_are_not_kept():
    where = jnp.array([True, False, True, False])
    empty = Reservoir.empty(numbered(0.0), 6)
    reservoir, _ = OFFER(empty, numbered(1.0, 2.0, 3.0, 4.0), where, KEY)
    assert kept(reservoir) == [1.0, 3.0]
    assert reservoir.offered == 2


def test_offer_says_to_which_place_each_task_came():
    batch = numbered(1.0, 2.0, 3.0, 4.0, 5.0)
    reservoir, place = OFFER(filled(3, 7.0, 8.0, 9.0), batch, all_of(5), KEY)
    came = np.asarray(place) < 3
    assert came.any()
    assert len(set(np.asarray(place)[came])) == came.sum()
    np.testing.assert_array_equal(
        reservoir.tasks.query.y[place[came], 0, 0], batch.query.y[came, 0, 0]
    )
    assert sum(number in (7.0, 8.0, 9.0) for number in kept(reservoir)) == 3 - came.sum()


def test_of_two_tasks_that_come_to_one_place_the_later_one_stays():
    """With one place the last task that is drawn into it is there, whatever came before."""
    for seed in range(5):
        key = jax.random.key(seed)
        empty = Reservoir.empty(numbered(0.0), 1)
        reservoir, _ = OFFER(empty, numbered(1.0, 2.0, 3.0), all_of(3), key)
        drawn = np.floor(np.asarray(jax.random.uniform(key, (3,))) * np.arange(1, 4)) == 0
        assert kept(reservoir) == [1.0 + np.flatnonzero(drawn | [True, False, False])[-1]]


def test_a_task_comes_with_its_masks():
    batch = numbered(1.0, 2.0)
    ragged = Examples(batch.support.x, batch.support.y, jnp.array([[True], [False]]))
    told = TaskBatch(ragged, batch.query)
    reservoir, source = OFFER(Reservoir.empty(batch, 4), told, all_of(2), KEY)
    np.testing.assert_array_equal(reservoir.tasks.support.mask[:2, 0], source[:2] == 0)
    assert not reservoir.tasks.query.mask[2:].any()


def test_hints_are_not_kept():
    batch = numbered(1.0, 2.0)
    hints = Hints(jnp.array([3, 4]), jnp.asarray(True))
    told = TaskBatch(batch.support, batch.query, hints)
    assert OFFER(Reservoir.empty(told, 2), told, all_of(2), KEY)[0].tasks.hints is None


def test_no_task_is_drawn_twice():
    tasks, real = filled(6, *range(6)).draw(KEY, 6)
    assert real.all()
    assert sorted(tasks.query.y[:, 0, 0].tolist()) == list(range(6))


def test_where_too_few_are_kept_the_others_are_padding():
    tasks, real = filled(6, 1.0, 2.0).draw(KEY, 4)
    assert real.tolist() == [True, True, False, False]
    assert tasks.real.tolist() == [True, True, False, False]


def test_places_that_are_left_out_are_not_drawn():
    reservoir = filled(4, 1.0, 2.0, 3.0, 4.0)
    wanted = reservoir.tasks.query.y[:, 0, 0] > 2.5
    tasks, real = reservoir.draw(KEY, 4, wanted)
    assert sorted(tasks.query.y[real, 0, 0].tolist()) == [3.0, 4.0]


def test_each_task_kept_is_drawn_with_the_same_chance():
    reservoir = filled(8, *range(5))
    draw = jax.jit(jax.vmap(lambda key: reservoir.draw(key, 2)[0].query.y[:, 0, 0]))
    counts = np.bincount(np.asarray(draw(jax.random.split(KEY, 3000))).astype(int).ravel())
    np.testing.assert_array_less(np.abs(counts - 1200) / np.sqrt(3000 * 0.4 * 0.6), 4)


def test_what_is_dropped_is_not_drawn():
    reservoir = filled(4, 1.0, 2.0, 3.0, 4.0)
    assert kept(reservoir.drop(reservoir.tasks.query.y[:, 0, 0] < 2.5)) == [3.0, 4.0]


def test_dropping_takes_its_share_of_the_tasks_offered():
    """40 offered, 3 of 4 places left: they stand for 30."""
    reservoir = filled(4, *range(40))
    assert reservoir.drop(jnp.array([True, False, False, False])).offered == 30


def test_dropping_a_kind_leaves_the_number_offered_of_the_other_on_average():
    """Six of the 12 tasks offered are even, and about as many are left after the odd ones go."""

    @jax.jit
    @jax.vmap
    def once(key):
        empty = Reservoir.empty(numbered(0.0), 5)
        reservoir, _ = empty.offer(numbered(*range(12)), all_of(12), key)
        return reservoir.drop(reservoir.tasks.query.y[:, 0, 0] % 2 == 1).offered

    found = np.asarray(once(jax.random.split(KEY, 2000)))
    np.testing.assert_allclose(found.mean(), 6, atol=4 * found.std() / np.sqrt(found.size))


def test_a_place_that_was_dropped_is_filled_first():
    reservoir = filled(3, 1.0, 2.0, 3.0)
    emptied = reservoir.drop(reservoir.tasks.query.y[:, 0, 0] == 2.0)
    assert kept(OFFER(emptied, numbered(9.0), all_of(1), KEY)[0]) == [1.0, 3.0, 9.0]


def test_samples_of_several_rows_are_each_as_if_it_were_offered_to_alone():
    """One with room, one that is full, and one to which nothing is offered."""
    rows = [filled(4, 7.0), filled(4, 3.0, 4.0, 5.0, 6.0), filled(4, 8.0, 9.0)]
    every = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)
    batch, keys = numbered(1.0, 2.0, 3.0, 4.0, 5.0), jax.random.split(jax.random.key(3), 3)
    where = jnp.array([[1, 1, 1, 1, 1], [1, 1, 0, 1, 1], [0, 0, 0, 0, 0]], dtype=bool)
    beside, new = jnp.zeros((3, 4)), 10.0 * jnp.arange(1, 6) + jnp.zeros((3, 1))
    found, numbers = jax.jit(offered)(every, beside, batch, new, where, keys)
    for row, alone in enumerate(rows):
        expected, place = OFFER(alone, batch, where[row], keys[row])
        jax.tree.map(np.testing.assert_array_equal, one_of(found, row), expected)
        came = np.asarray(place) < 4
        np.testing.assert_array_equal(numbers[row][place[came]], new[row][came])
