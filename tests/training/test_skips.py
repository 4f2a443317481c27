"""Batches and tasks that leave numbers that are not finite."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.training.stand_ins import PARTS, STREAM, Lines, StandIn, assert_same, resumed, trained

from taskmix.baselines import MAML
from taskmix.training import Chunk, Settings, Start, train
from taskmix.training.moments import run_keys


def test_task_that_is_not_finite_is_left_out_of_its_batch():
    _, chunks = trained(StandIn(broken_batches=(6, 16)), [0, 1])
    by_end = {chunk.iteration: chunk for chunk in chunks}
    assert [n for n, chunk in by_end.items() if chunk.skips is not None] == [10, 20]
    for stop in (10, 20):
        skips, info = by_end[stop].skips, by_end[stop].info
        np.testing.assert_array_equal(np.argwhere(skips.task), [[0, 1, 0], [1, 1, 0]])
        assert not skips.batch.any()
        np.testing.assert_array_equal(np.isnan(info.error), skips.task)
        np.testing.assert_array_equal(info.responsibilities[..., 0] == 0, skips.task)
        assert np.isfinite(info.loss).all()
    assert int(chunks[-1].state.done[0]) == 21


def test_batch_of_which_no_task_is_at_fault_is_skipped_and_leaves_the_state_alone():
    _, chunks = trained(StandIn(broken_pairs=(6, 16)), [0, 1])
    skipped = {chunk.iteration: chunk.skips for chunk in chunks}
    assert [n for n, skips in skipped.items() if skips is not None] == [10, 20]
    np.testing.assert_array_equal(skipped[10].batch, [[False, True, False, False, False]] * 2)
    np.testing.assert_array_equal(skipped[20].batch, [[False, True, False, False, False]] * 2)
    assert int(chunks[-1].state.done[0]) == 19
    assert not skipped[10].task.any()
    assert np.isnan(chunks[2].info.error[:, 1]).all()


def test_batch_that_is_skipped_opens_no_cluster():
    _, chunks = trained(StandIn(broken_pairs=(7,)), [0, 1])
    infos = [chunk.info for chunk in chunks[1:]]
    clusters = np.concatenate([info.alive.sum(axis=-1) for info in infos], axis=1)
    np.testing.assert_array_equal(clusters, [[1] * 8 + [2] * 8 + [3] * 5] * 2)
    spawned = np.concatenate([info.spawned for info in infos], axis=1)
    np.testing.assert_array_equal(np.argwhere(spawned[0]), [[8], [16]])


def test_batch_that_is_skipped_right_after_an_interruption_opens_no_cluster():
    learner = StandIn(broken_pairs=(15,))
    _, chunks = trained(learner, [0, 1])
    _, rest = resumed(learner, [0, 1], chunks[4])
    for one, other in zip(rest, chunks[5:], strict=True):
        assert_same(one, other)
    assert rest[0].info.alive[0, 0].sum() == 2


def test_learner_learns_from_the_other_tasks_alone():
    """Against a plain loop of steps, one of which gets only the good task."""
    learner, stream = MAML(**PARTS), Lines(broken=(6, 1))
    state, chunks = trained(learner, [3, 7], stream=stream)
    (skips,) = [chunk.skips for chunk in chunks if chunk.skips is not None]
    np.testing.assert_array_equal(np.argwhere(skips.task), [[0, 1, 1], [1, 1, 1]])
    keys = run_keys(7)
    expected = learner.init(keys.init, stream.batch(keys.stream, 0))
    step = jax.jit(learner.step)
    for iteration in range(stream.stop):
        batch = stream.batch(keys.stream, iteration)
        batch = batch.take(jnp.array([0])) if iteration == 6 else batch
        expected, _ = step(expected, batch, jax.random.fold_in(keys.step, iteration))
    jax.tree.map(
        lambda found, one: np.testing.assert_allclose(found[1], one, rtol=1e-4, atol=1e-6),
        state,
        expected,
    )


def test_seed_beside_one_with_a_bad_task_keeps_its_bits():
    state, _ = trained(StandIn(), range(8))
    safe, broken = int(np.argmin(state.lot)), int(np.argmax(state.lot))
    expected, _ = trained(StandIn(), [safe, broken])
    found, chunks = trained(StandIn(breaks_at=20), [safe, broken])
    (skips,) = [chunk.skips for chunk in chunks if chunk.skips is not None]
    np.testing.assert_array_equal(np.argwhere(skips.batch), [[1, 0]])
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        np.testing.assert_array_equal(one[0], other[0])


def test_losses_that_stay_not_finite_name_seed_and_iteration():
    state, _ = trained(StandIn(), range(8))
    safe, broken = int(np.argmin(state.lot)), int(np.argmax(state.lot))
    settings = Settings(evaluate_every=5, test_tasks=3, skips_in_a_row=4)
    with pytest.raises(ValueError, match=f"seed {broken} .* at iteration 7 and in each of the 4"):
        trained(StandIn(breaks_at=7), [safe, broken], settings)


def test_skips_are_counted_across_an_interruption():
    settings = Settings(evaluate_every=5, test_tasks=3, skips_in_a_row=4)
    learner = StandIn(broken_batches=(8, 9, 10, 11))
    seen: list[Chunk] = []
    with pytest.raises(ValueError, match="at iteration 8 and in each of the 4 batches"):
        train(learner, STREAM, [0], settings, seen.append)
    state = seen[2].state
    with pytest.raises(ValueError, match="at iteration 8 and in each of the 4 batches"):
        train(learner, STREAM, [0], settings, print, Start(10, state, 0.0, (2,)))
