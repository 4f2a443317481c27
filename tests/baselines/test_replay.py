import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from taskmix.adaptation import Adaptation
from taskmix.baselines import MAML, Replay
from taskmix.baselines.replay import reservoir
from taskmix.models import MLP
from taskmix.tasks import Examples, TaskBatch

KEY = jax.random.key(0)
PARTS = {"model": MLP(hidden=(6,)), "adaptation": Adaptation(steps=1, rate=0.05)}
TASKS = 3


def batch_of(seed: int) -> TaskBatch:
    x = jax.random.normal(jax.random.key(seed), (TASKS, 8, 1))
    y = jnp.sin(x + seed)
    return TaskBatch(Examples.full(x[:, :4], y[:, :4]), Examples.full(x[:, 4:], y[:, 4:]))


def fill(key: jax.Array, size: int, tasks: int, batches: int) -> jax.Array:
    """The numbers of the tasks kept after some batches."""
    kept = jnp.full(size, -1)
    for batch in range(batches):
        seen = jnp.asarray(batch * tasks)
        source = reservoir(jax.random.fold_in(key, batch), seen, size, tasks)
        kept = jnp.where(source >= 0, seen + source, kept)
    return kept


@pytest.fixture(scope="module")
def kept():
    """Six of twenty tasks, for many keys."""
    keys = jax.random.split(KEY, 4000)
    return np.asarray(jax.jit(jax.vmap(lambda key: fill(key, 6, 4, 5)))(keys))


def test_reservoir_keeps_every_task_with_the_same_probability(kept):
    counts = np.bincount(kept.ravel(), minlength=20)
    assert counts.sum() == 6 * 4000
    # Kept or not, with probability 6/20 each; without replacement the counts vary less
    # than independent ones by (20 - 6) / (20 - 1).
    statistic = np.sum((counts - 1200) ** 2 / 1200) * 19 / 14
    assert stats.chi2.sf(statistic, 19) > 1e-3


def test_reservoir_keeps_no_task_twice(kept):
    assert all(len(set(row)) == 6 for row in kept)


def test_first_tasks_fill_the_reservoir_in_their_order():
    np.testing.assert_array_equal(reservoir(KEY, jnp.asarray(0), 6, 4), [0, 1, 2, 3, -1, -1])


def test_tasks_kept_are_tasks_seen_whole():
    learner = Replay(**PARTS, size=4)
    step = jax.jit(learner.step)
    state = learner.init(KEY, batch_of(0))
    for seed in range(4):
        state, _ = step(state, batch_of(seed), jax.random.key(seed))
    assert state.seen == 4 * TASKS
    seen = [
        jax.tree.map(lambda leaf, j=j: leaf[j], batch_of(s)) for s in range(4) for j in range(3)
    ]
    for place in range(4):
        one = jax.tree.map(lambda leaf, i=place: leaf[i], state.kept)
        same = [
            all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(task))) for task in seen
        ]
        assert sum(same) == 1


def test_with_nothing_kept_a_step_is_that_of_maml():
    learner, maml = Replay(**PARTS), MAML(**PARTS)
    state, info = jax.jit(learner.step)(learner.init(KEY, batch_of(0)), batch_of(0), KEY)
    expected, expected_info = jax.jit(maml.step)(maml.init(KEY, batch_of(0)), batch_of(0), KEY)
    chex.assert_trees_all_close(state.params, expected.params, rtol=1e-6)
    chex.assert_trees_all_close(info, expected_info, rtol=1e-6)


@pytest.mark.parametrize("size", [TASKS, 2])
def test_step_is_that_of_maml_on_the_batch_and_the_tasks_kept(size):
    """With no more places than tasks in a batch, all that is kept is replayed."""
    learner, maml = Replay(**PARTS, size=size), MAML(**PARTS)
    state, _ = jax.jit(learner.step)(learner.init(KEY, batch_of(0)), batch_of(0), KEY)
    after, info = jax.jit(learner.step)(state, batch_of(1), KEY)
    both = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), batch_of(1), state.kept)
    same = type(maml.init(KEY, both))(state.params, state.optimiser)
    expected, expected_info = jax.jit(maml.step)(same, both, KEY)
    chex.assert_trees_all_close(after.params, expected.params, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(info.error, expected_info.error[:TASKS], rtol=1e-5)


def test_size_must_be_positive():
    with pytest.raises(ValueError, match=r"^size is 0;"):
        Replay(size=0)
