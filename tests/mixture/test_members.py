import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np

from taskmix.mixture.members import Member, changed, of_living, row, with_row
from taskmix.mixture.reference import Reference
from taskmix.mixture.reservoir import Reservoir
from taskmix.tasks import Examples, TaskBatch

TREE = {"a": jnp.arange(8.0).reshape(4, 2), "b": jnp.arange(4)}
SOME = jnp.array([True, False, True, False])


def test_row_is_that_of_every_leaf():
    chex.assert_trees_all_equal(row(TREE, 2), {"a": jnp.array([4.0, 5.0]), "b": jnp.asarray(2)})


def test_several_rows_come_in_the_order_asked_for():
    np.testing.assert_array_equal(row(TREE, jnp.array([3, 0]))["b"], [3, 0])


def test_with_row_changes_no_other_row():
    found = with_row(TREE, jnp.asarray(1), row(TREE, 3))
    np.testing.assert_array_equal(found["b"], [0, 3, 2, 3])


def test_living_rows_have_the_value_of_the_function_and_others_zero():
    found = of_living(lambda index: {"twice": 2.0 * index + 1, "odd": index % 2 == 1}, SOME)
    np.testing.assert_array_equal(found["twice"], [1, 0, 5, 0])
    np.testing.assert_array_equal(found["odd"], False)


def test_the_function_is_called_for_living_rows_only():
    called = []

    def function(index):
        jax.debug.callback(lambda index: called.append(int(index)), index)
        return index

    jax.block_until_ready(jax.jit(lambda living: of_living(function, living))(SOME))
    jax.effects_barrier()
    assert sorted(called) == [0, 2]


def test_nothing_living_gives_zeros():
    assert not of_living(lambda index: index + 1, jnp.zeros(3, dtype=bool)).any()


def members_of(params) -> Member:
    """Members of which only the parameters matter."""
    y = jnp.zeros((1, 1, 1))
    example = TaskBatch(Examples.full(y, y), Examples.full(y, y))
    rows = params.shape[0]
    reservoir, reference = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (rows, *leaf.shape)),
        (Reservoir.empty(example, 1), Reference.empty(example, 1)),
    )
    return Member(params, None, params, reservoir, reference, jnp.zeros(rows))


def doubled(index, member: Member) -> Member:
    return dataclasses.replace(member, params=2 * member.params + index)


def test_rows_that_are_asked_for_are_changed_by_their_number():
    found = changed(members_of(jnp.array([1.0, 2.0, 3.0, 4.0])), doubled, SOME)
    np.testing.assert_array_equal(found.params, [2, 2, 8, 4])


def test_rows_that_are_not_asked_for_keep_every_bit():
    before = members_of(jnp.array([1.0, jnp.nan, 3.0, -0.0]))
    found = changed(before, doubled, SOME)
    bits = np.asarray(found.params).view(np.int32)[[1, 3]]
    np.testing.assert_array_equal(bits, np.asarray(before.params).view(np.int32)[[1, 3]])
