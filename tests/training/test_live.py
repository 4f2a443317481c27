"""Task batches of any iterator are followed one by one."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import taskmix as tm
from taskmix.training.lock import owning

STREAM = tm.streams.regression(("linear", "step"), (6, 4), tasks=3)
SMALL = tm.MAML(tm.MLP(hidden=(4,)), adaptation=tm.Adaptation(steps=1))


def batches(count: int):
    for number in range(count):
        yield STREAM.batch(jax.random.key(0), number)


def test_a_batch_is_taken_when_the_one_before_it_has_been_learned_from():
    live = tm.Live(SMALL)
    taken = []

    def watched():
        for number, batch in enumerate(batches(3)):
            taken.append((number, live.batches))
            yield batch

    assert all(np.isfinite(info.loss) for info in live.follow(watched()))
    assert taken == [(0, 0), (1, 1), (2, 2)]


def test_the_same_batches_and_seed_give_the_same_bits():
    one, other = tm.Live(SMALL, seed=3), tm.Live(SMALL, seed=3)
    list(one.follow(batches(2)))
    for batch in batches(2):
        other.learn(batch)
    jax.tree.map(np.testing.assert_array_equal, one.state, other.state)


def test_a_batch_with_fewer_tasks_compiles_nothing():
    traced = []

    def run(params, x):
        traced.append(x.shape)
        return x @ params

    learner = tm.MAML(tm.Pair(lambda key: jax.random.normal(key, (1, 1)), run))
    live = tm.Live(learner)
    list(live.follow(batches(2)))
    before = len(traced)
    live.learn(next(batches(1)).take(jnp.arange(2)))
    assert len(traced) == before > 0


def test_a_batch_that_is_none_is_refused_and_changes_nothing():
    live = tm.Live(SMALL)
    live.learn(next(batches(1)))
    before = live.state
    spoiled = next(batches(1))
    spoiled = eqx.tree_at(lambda batch: batch.support.x, spoiled, spoiled.support.x * jnp.nan)
    with pytest.raises(ValueError, match="support"):
        live.learn(spoiled)
    assert live.state is before


def test_asking_before_anything_was_learned_says_so():
    with pytest.raises(ValueError, match="Nothing has been learned yet"):
        tm.Live(SMALL).predict(next(batches(1)).task(0).support, jnp.zeros((1, 1)))


def test_a_mixture_that_grows_is_given_room():
    learner = tm.PaperMixture(task_model=tm.Gradient(tm.MLP(hidden=(4,))))
    live = tm.Live(learner)
    list(live.follow(batches(2)))
    task = next(batches(1)).task(0)
    assert live.predict(task.support, task.query.x).mean.shape == task.query.y.shape


def test_what_was_saved_goes_on_with_the_same_bits(tmp_path):
    whole = tm.Live(SMALL, seed=3)
    list(whole.follow(batches(4)))
    one = tm.Live(SMALL, seed=3)
    for batch in batches(2):
        one.learn(batch)
        one.save(tmp_path / "live")
    other = tm.Live.load(SMALL, tmp_path / "live")
    assert other.batches == 2
    for number in (2, 3):
        other.learn(STREAM.batch(jax.random.key(0), number))
    jax.tree.map(np.testing.assert_array_equal, whole.state, other.state)


def test_a_loaded_one_can_be_asked_at_once_and_is_padded_as_before(tmp_path):
    live = tm.Live(SMALL)
    live.learn(next(batches(1)))
    live.save(tmp_path / "live")
    loaded, task = tm.Live.load(SMALL, tmp_path / "live"), next(batches(1)).task(0)
    one, other = (each.predict(task.support, task.query.x).mean for each in (live, loaded))
    np.testing.assert_array_equal(one, other)
    for each in (live, loaded):
        each.learn(next(batches(1)).take(jnp.arange(2)))
    jax.tree.map(np.testing.assert_array_equal, live.state, loaded.state)


def test_a_damaged_one_is_replaced_by_the_one_before(tmp_path):
    live = tm.Live(SMALL)
    for batch in batches(2):
        live.learn(batch)
        live.save(tmp_path / "live")
    newest = max((tmp_path / "live" / "checkpoints").iterdir()) / "checkpoint.safetensors"
    newest.write_bytes(newest.read_bytes()[:-4])
    assert tm.Live.load(SMALL, tmp_path / "live").batches == 1


def test_another_learner_is_refused_on_both_ways(tmp_path):
    live, other = tm.Live(SMALL), tm.MAML(tm.MLP(hidden=(5,)))
    with pytest.raises(ValueError, match="nothing to save"):
        live.save(tmp_path / "live")
    live.learn(next(batches(1)))
    live.save(tmp_path / "live")
    with pytest.raises(ValueError, match="belongs to another run"):
        tm.Live.load(other, tmp_path / "live")
    strange = tm.Live(other)
    strange.learn(next(batches(1)))
    with pytest.raises(ValueError, match="begun with other settings"):
        strange.save(tmp_path / "live")
    with pytest.raises(ValueError, match="holds nothing that was saved"):
        tm.Live.load(SMALL, tmp_path / "none")


def test_two_of_them_are_not_saved_into_one_folder_at_once(tmp_path):
    live = tm.Live(SMALL)
    live.learn(next(batches(1)))
    live.save(tmp_path)
    with owning(tmp_path), pytest.raises(ValueError, match="written by another process"):
        live.save(tmp_path)
