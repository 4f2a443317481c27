"""Examples, masks and the check of batches that enter from outside."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.tasks import Examples, Hints, TaskBatch, check_batch


def examples(tasks=3, count=4):
    x = jnp.arange(tasks * count, dtype=jnp.float32).reshape(tasks, count, 1)
    return Examples.full(x, 2 * x)


def batch():
    return TaskBatch(examples(count=4), examples(count=5))


def test_full_examples_have_no_padding():
    np.testing.assert_array_equal(examples().mask, np.ones((3, 4), bool))


@pytest.mark.parametrize("tasks", [(), (3,), (2, 3)])
def test_full_examples_may_be_images(tasks):
    found = Examples.full(jnp.zeros((*tasks, 4, 8, 8, 3)), jnp.zeros((*tasks, 4), int), 3)
    np.testing.assert_array_equal(found.mask, np.ones((*tasks, 4), bool))


def test_count_is_the_number_of_real_examples_of_each_task():
    mask = jnp.array([[True, False, True], [False, False, True]])
    ragged = Examples(jnp.zeros((2, 3, 1)), jnp.zeros((2, 3, 1)), mask)
    np.testing.assert_array_equal(ragged.count(), [2, 1])


def test_without_padding_values_zeroes_padding_and_keeps_the_rest():
    mask = jnp.array([[True, False], [False, True]])
    x = jnp.array([[[1.0, 2.0], [jnp.nan, 3.0]], [[jnp.inf, 4.0], [5.0, 6.0]]])
    clean = Examples(x, x[..., :1], mask).without_padding_values()
    np.testing.assert_array_equal(clean.x, [[[1, 2], [0, 0]], [[0, 0], [5, 6]]])
    np.testing.assert_array_equal(clean.y, [[[1], [0]], [[0], [5]]])
    np.testing.assert_array_equal(clean.mask, mask)


def test_without_padding_values_keeps_integer_targets_integer():
    labels = jnp.array([[1, 2]])
    ragged = Examples(jnp.ones((1, 2, 1)), labels, jnp.array([[True, False]]))
    clean = ragged.without_padding_values()
    assert clean.y.dtype == labels.dtype
    np.testing.assert_array_equal(clean.y, [[1, 0]])


def test_without_padding_values_zeroes_whole_images():
    images = Examples(jnp.ones((2, 4, 4, 3)), jnp.array([1, 2]), jnp.array([False, True]))
    clean = images.without_padding_values()
    assert not clean.x[0].any()
    np.testing.assert_array_equal(clean.x[1], images.x[1])
    np.testing.assert_array_equal(clean.y, [0, 2])


def test_gradient_past_a_padded_nan_is_finite():
    mask = jnp.array([[True, False]])
    x = jnp.array([[[2.0], [jnp.nan]]])

    def total(weight):
        clean = Examples(x, x, mask).without_padding_values()
        return jnp.sum(jnp.square(weight * clean.x))

    np.testing.assert_allclose(jax.grad(total)(1.0), 8.0)


def test_without_hints_drops_the_hints_only():
    hinted = TaskBatch(examples(), examples(), Hints(jnp.zeros(3, int), jnp.asarray(True)))
    assert hinted.without_hints().hints is None
    np.testing.assert_array_equal(hinted.without_hints().query.x, hinted.query.x)


def test_batch_without_padding_values_keeps_its_hints():
    hints = Hints(jnp.arange(3), jnp.asarray(True))
    cleaned = TaskBatch(examples(), examples(), hints).without_padding_values()
    np.testing.assert_array_equal(cleaned.hints.family, [0, 1, 2])


def test_good_batch_passes_the_check_unchanged():
    good = batch()
    assert check_batch(good) is good


def test_ragged_batch_with_nan_in_its_padding_passes_the_check():
    ragged = eqx.tree_at(
        lambda b: (b.query.mask, b.query.x, b.query.y),
        batch(),
        replace_fn=lambda leaf: leaf.at[1, 2].set(False if leaf.dtype == bool else jnp.nan),
    )
    assert check_batch(ragged) is ragged


def family_hints(tasks=3):
    return Hints(1 + jnp.arange(tasks), jnp.asarray(True))


@pytest.mark.parametrize("hints", [None, family_hints()])
def test_padded_batch_begins_with_the_tasks_it_had(hints):
    small = TaskBatch(examples(count=4), examples(count=5), hints)
    filled = small.padded(7)
    np.testing.assert_array_equal(filled.real, [True] * 3 + [False] * 4)
    jax.tree.map(np.testing.assert_array_equal, filled.take(jnp.arange(3)), small)
    assert check_batch(filled) is filled


def test_padding_keeps_the_types_of_targets():
    images = Examples(jnp.ones((2, 4, 8, 8, 3)), jnp.ones((2, 4), int), jnp.ones((2, 4), bool))
    filled = TaskBatch(images, images).padded(3)
    assert filled.support.x.shape == (3, 4, 8, 8, 3)
    assert filled.support.y.dtype == images.y.dtype


def test_batch_that_is_full_is_not_padded():
    jax.tree.map(np.testing.assert_array_equal, batch().padded(3), batch())


def test_batch_cannot_be_padded_to_fewer_tasks():
    with pytest.raises(ValueError, match="has 3 tasks, too many to be padded to 2"):
        batch().padded(2)


def test_task_with_any_example_is_real():
    mask = jnp.array([[True, False], [False, False], [False, False]])
    lone = Examples(jnp.zeros((3, 2, 1)), jnp.zeros((3, 2, 1)), mask)
    other = Examples(lone.x, lone.y, jnp.roll(mask, 1, axis=0))
    np.testing.assert_array_equal(TaskBatch(lone, other).real, [True, True, False])


def set_at(where, task, example, value):
    return lambda: eqx.tree_at(where, batch(), replace_fn=lambda a: a.at[task, example].set(value))


def replaced(where, value):
    return lambda: eqx.tree_at(where, batch(), value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            replaced(lambda b: b.support.mask, jnp.ones(3, bool)),
            r"support.mask is bool of shape \(3,\); a task batch needs bool \(tasks, examples\)",
        ),
        (
            replaced(lambda b: b.query.x, jnp.ones((3, 5))),
            r"query.x has shape \(3, 5\).*needs \(tasks, examples, features\)",
        ),
        (
            replaced(lambda b: b.query.mask, jnp.ones((3, 6), bool)),
            r"query.x has shape \(3, 5, 1\); with a mask of shape \(3, 6\)",
        ),
        (
            replaced(lambda b: b.query.x, jnp.ones((3, 4, 1))),
            r"query.x has shape \(3, 4, 1\); with a mask of shape \(3, 5\)",
        ),
        (
            replaced(lambda b: b.support.y, jnp.ones((2, 4, 1))),
            r"support.y has shape \(2, 4, 1\); its first two axes must be \(3, 4\)",
        ),
        (
            set_at(lambda b: b.query.mask, 2, slice(None), False),
            "Task 2 has no query example; drop the task",
        ),
        (
            set_at(lambda b: b.support.mask, 1, slice(None), False),
            "Task 1 has no support example; drop the task",
        ),
        (
            lambda: eqx.tree_at(
                lambda b: (b.support.mask, b.query.mask), batch(), replace_fn=jnp.zeros_like
            ),
            "at least one real task",
        ),
        (
            set_at(lambda b: b.support.x, 1, 3, jnp.nan),
            "support.x of task 1, example 3 is not finite",
        ),
        (
            set_at(lambda b: b.query.y, 0, 2, -jnp.inf),
            "query.y of task 0, example 2 is not finite.*; remove the example or set its mask",
        ),
        (
            lambda: TaskBatch(examples(tasks=3), examples(tasks=2)),
            "3 support sets but 2 query sets",
        ),
    ],
    ids=[
        "mask without example axis",
        "x without feature axis",
        "mask of another size",
        "x of another size",
        "y of another size",
        "task without query",
        "task without support",
        "padding only",
        "NaN in x",
        "infinity in y",
        "unpaired sets",
    ],
)
def test_check_names_what_is_wrong(make, message):
    with pytest.raises(ValueError, match=message):
        check_batch(make())
