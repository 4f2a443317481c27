"""What must not matter: the order of the clusters, and rows that hold no cluster."""

import dataclasses

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

KEY = jax.random.key(7)
ORDER = jnp.array([2, 0, 1, 3])


def rows(tree, order):
    return jax.tree.map(lambda leaf: leaf[order], tree)


def permuted_finite(state):
    return rows(state, ORDER[:3])


def permuted_paper(state):
    counts = eqx.tree_at(lambda c: c.window, state.counts, state.counts.window[:, ORDER])
    return dataclasses.replace(
        state,
        clusters=rows(state.clusters, ORDER),
        counts=counts,
        sizes=state.sizes[ORDER],
        born=state.born[ORDER],
        recent=state.recent[ORDER],
        newest=jnp.argmax(state.newest == ORDER),
    )


PERMUTED = {"finite": permuted_finite, "paper": permuted_paper}


@pytest.fixture(scope="module", params=PERMUTED)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def learner(request, kind):
    return request.getfixturevalue(kind)


@pytest.fixture(scope="module")
def step(learner):
    return jax.jit(learner.step)


@pytest.fixture(scope="module")
def predict(learner):
    return jax.jit(learner.predict)


@pytest.fixture(scope="module")
def state(request, kind, step, batches):
    """Three clusters that have moved a little, so that no optimiser divides by nothing."""
    state = request.getfixturevalue(f"three_{kind}")
    for batch in batches[:3]:
        state, info = step(state, batch, KEY)
        assert not info.spawned
    return state


def task_of(batch):
    return jax.tree.map(lambda leaf: leaf[0], (batch.support, batch.query.x))


def assert_close(a, b):
    chex.assert_trees_all_close(a, b, rtol=1e-4, atol=1e-5)


def test_permuting_the_clusters_permutes_the_next_state(kind, step, state, batches):
    after, _ = step(state, batches[5], KEY)
    of_permuted, _ = step(PERMUTED[kind](state), batches[5], KEY)
    assert_close(of_permuted, PERMUTED[kind](after))


def test_permuting_the_clusters_permutes_the_responsibilities(kind, step, state, batches):
    _, info = step(state, batches[5], KEY)
    _, of_permuted = step(PERMUTED[kind](state), batches[5], KEY)
    order = ORDER[: info.responsibilities.shape[1]]
    assert_close(of_permuted.responsibilities, info.responsibilities[:, order])
    assert_close((of_permuted.loss, of_permuted.error), (info.loss, info.error))


def test_permuting_the_clusters_permutes_the_components_of_a_prediction(
    kind, predict, state, batches
):
    prediction = predict(state, *task_of(batches[5]))
    of_permuted = predict(PERMUTED[kind](state), *task_of(batches[5]))
    order = ORDER[: prediction.responsibilities.shape[0]]
    assert_close(of_permuted.components, prediction.components[order])
    assert_close(of_permuted.responsibilities, prediction.responsibilities[order])
    assert_close((of_permuted.mean, of_permuted.variance), (prediction.mean, prediction.variance))


def living(state, count):
    """What a state knows of its first clusters."""
    return jax.tree.map(lambda leaf: leaf[:count], state.clusters)


def with_garbage(state):
    """The dead rows of the clusters are not a number."""
    dead = ~state.clusters.alive

    def broken(leaf):
        where = dead.reshape(-1, *(1,) * (leaf.ndim - 1))
        return jnp.where(where, jnp.full_like(leaf, jnp.nan), leaf)

    clusters = dataclasses.replace(
        state.clusters, params=jax.tree.map(broken, state.clusters.params)
    )
    return dataclasses.replace(state, clusters=clusters)


@pytest.fixture(params=["garbage in dead rows", "more capacity"])
def padded(request, kind, learner, state):
    """The same clusters beside other padding."""
    if kind == "finite":
        pytest.skip("a finite mixture has no dead clusters")
    return with_garbage(state) if request.param.startswith("garbage") else learner.grow(state)


def test_dead_rows_change_no_bit_of_the_living(step, state, padded, batches):
    after, _ = step(state, batches[5], KEY)
    beside_other_padding, _ = step(padded, batches[5], KEY)
    chex.assert_trees_all_equal(living(beside_other_padding, 3), living(after, 3))


def test_dead_rows_change_no_bit_of_what_a_step_tells(step, state, padded, batches):
    _, info = step(state, batches[5], KEY)
    _, other = step(padded, batches[5], KEY)
    assert not other.responsibilities[:, 3:].any()
    same = [
        (i.loss, i.error, i.responsibilities[:, :3], i.clusters, i.spawned, i.suspicion)
        for i in (info, other)
    ]
    chex.assert_trees_all_equal(*same)


def test_dead_rows_change_no_bit_of_a_prediction(predict, state, padded, batches):
    predictions = [predict(s, *task_of(batches[5])) for s in (state, padded)]
    same = [
        (p.mean, p.variance, p.components[:3], p.responsibilities[:3], p.novelty)
        for p in predictions
    ]
    chex.assert_trees_all_equal(*same)


def test_dead_rows_do_not_enter_the_global_prior(paper, three_paper, batches):
    due = dataclasses.replace(three_paper, iteration=jnp.asarray(1000))
    step = jax.jit(paper.step)
    expected = step(due, batches[5], KEY)[0].global_prior
    chex.assert_trees_all_equal(step(with_garbage(due), batches[5], KEY)[0].global_prior, expected)


def test_first_clusters_of_a_longer_run_are_the_same_bits_twice(step, state, batches):
    def run():
        now = state
        for batch in batches[5:10]:
            now, _ = step(now, batch, KEY)
        return jax.tree.map(np.asarray, now)

    chex.assert_trees_all_equal(run(), run())
