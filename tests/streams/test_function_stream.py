"""The function stream: purity, families, hints, noise and errors."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.streams import (
    FunctionStream,
    consecutive,
    family,
    gradual,
    interleaved,
    paper_stream,
    recurring,
)

KEY = jax.random.key(0)
SMALL = FunctionStream(recurring(("sinusoid", "step"), (4, 3)), tasks=3, support=2, query=4)


@pytest.fixture(scope="module")
def batches():
    """The fourteen batches of SMALL, stacked, as a compiled loop gives them."""
    return jax.lax.scan(lambda _, i: (None, SMALL.batch(KEY, i)), None, jnp.arange(14))[1]


@pytest.fixture(scope="module")
def paper_families():
    """The families that make up the batch of each iteration of the paper's stream."""
    drawn = jax.jit(lambda i: paper_stream().batch(KEY, i).hints.family)
    return lambda i: {paper_stream().families[index] for index in np.asarray(drawn(i))}


def test_paper_stream_has_the_phases_of_the_paper():
    phases = [(phase.start, phase.stop, *phase.families) for phase in paper_stream().phases]
    assert phases == [
        (0, 4000, "polynomial"),
        (4000, 7000, "sinusoid"),
        (7000, 9500, "sawtooth"),
    ]


@pytest.mark.parametrize(
    ("iteration", "active"),
    [
        (0, "polynomial"),
        (3999, "polynomial"),
        (4000, "sinusoid"),
        (6999, "sinusoid"),
        (7000, "sawtooth"),
        (9499, "sawtooth"),
    ],
)
def test_paper_stream_changes_family_at_the_very_iteration(paper_families, iteration, active):
    assert paper_families(iteration) == {active}


def test_batch_has_the_shapes_asked_for(batches):
    chex.assert_shape([batches.support.x, batches.support.y], (14, 3, 2, 1))
    chex.assert_shape([batches.query.x, batches.query.y], (14, 3, 4, 1))
    assert batches.support.mask.all()
    assert batches.query.mask.all()


@pytest.mark.parametrize("iteration", [0, 4, 13])
def test_batch_alone_is_the_batch_inside_a_compiled_loop(batches, iteration):
    alone = SMALL.batch(KEY, iteration)
    looped = jax.tree.map(lambda leaf: leaf[iteration], batches)
    chex.assert_trees_all_equal(alone.hints, looped.hints)
    chex.assert_trees_all_equal(alone.support.x, looped.support.x)
    chex.assert_trees_all_close(alone, looped, atol=1e-5)


def test_batch_depends_on_nothing_drawn_before():
    first = SMALL.batch(KEY, 5)
    SMALL.batch(jax.random.key(5), 3)
    chex.assert_trees_all_equal(SMALL.batch(jax.random.key(0), 5), first)


def test_no_two_iterations_share_a_task(batches):
    assert len(np.unique(batches.query.x.reshape(-1, 4), axis=0)) == 14 * 3


def test_keys_give_different_batches():
    assert not np.any(SMALL.batch(KEY, 0).query.x == SMALL.batch(jax.random.key(1), 0).query.x)


@pytest.mark.parametrize("iteration", [0, 4])
def test_support_and_query_of_a_task_are_of_one_function(iteration):
    """Two points determine a line; all the others have to lie on it."""
    schedule = consecutive(("linear", "literal-polynomial"), (4, 4))
    batch = FunctionStream(schedule, support=2).batch(KEY, iteration)
    (x0, x1), (y0, y1) = batch.support.x.swapaxes(0, 1), batch.support.y.swapaxes(0, 1)
    slope = ((y1 - y0) / (x1 - x0))[:, None]
    line = y0[:, None] + slope * (batch.query.x - x0[:, None])
    np.testing.assert_allclose(batch.query.y, line, rtol=1e-3, atol=1e-3)


def test_hint_names_the_family_that_made_each_task():
    stream = FunctionStream(interleaved(("step", "linear"), 10), tasks=50, query=20)
    batch = stream.batch(KEY, 0)
    levels = np.array([len(np.unique(y)) for y in np.asarray(batch.query.y)])
    np.testing.assert_array_equal(levels <= 2, batch.hints.family == 0)


def test_boundary_hint_is_true_on_the_first_iteration_of_later_phases_only(batches):
    assert np.flatnonzero(batches.hints.boundary).tolist() == [4, 7, 11]


def test_recurring_family_comes_back_with_its_index(batches):
    expected = [0] * 4 + [1] * 3 + [0] * 4 + [1] * 3
    np.testing.assert_array_equal(batches.hints.family, np.tile(expected, (3, 1)).T)


def test_gradual_stream_mixes_families_during_the_transition_only():
    stream = FunctionStream(gradual(("sinusoid", "step"), (5, 20), transition=9), tasks=200)
    drawn = jax.lax.map(lambda i: stream.batch(KEY, i).hints.family, jnp.arange(25))
    mixed = np.any(drawn != drawn[:, :1], axis=1)
    assert np.flatnonzero(mixed).tolist() == list(range(5, 14))


def test_test_tasks_are_of_the_family_asked_for():
    test = SMALL.test_tasks(KEY, 1, 20)
    np.testing.assert_array_equal(test.hints.family, np.ones(20))
    assert all(len(np.unique(y)) <= 2 for y in np.asarray(test.query.y))


def test_test_tasks_are_apart_from_training_tasks_and_each_other(batches):
    tested = [SMALL.test_tasks(KEY, index, 20).query.x.reshape(-1, 4) for index in (0, 1)]
    everything = np.concatenate([batches.query.x.reshape(-1, 4), *tested])
    assert len(np.unique(everything, axis=0)) == 14 * 3 + 2 * 20


def test_tasks_of_a_batch_are_different_functions():
    levels = SMALL.test_tasks(KEY, 1, 20).query.y[:, 0, 0]
    assert len(np.unique(levels)) == 20


def test_noise_is_added_with_the_standard_deviation_asked_for():
    schedule = consecutive(("sinusoid",), (1,))
    clean = FunctionStream(schedule, tasks=200, query=45).batch(KEY, 0).query.y
    noisy = FunctionStream(schedule, tasks=200, query=45, noise=0.3).batch(KEY, 0).query.y
    difference = np.asarray(noisy - clean)
    np.testing.assert_allclose([difference.mean(), difference.std()], [0, 0.3], atol=0.01)


def test_family_with_noise_of_its_own_has_that_instead_of_the_streams():
    schedule = consecutive(("sinusoid", "noisy-sinusoid"), (1, 1))
    stream = FunctionStream(schedule, tasks=200, query=45, noise=0.1)
    for iteration, expected in ((0, 0.1), (1, 0.3)):
        batch = stream.batch(KEY, iteration)
        residuals = np.concatenate([*map(sinusoid_residuals, batch.query.x, batch.query.y)])
        np.testing.assert_allclose(residuals.std(), expected, rtol=0.05)


def sinusoid_residuals(x, y):
    """What is left of a task's targets after the best a sin x + b cos x."""
    design = np.stack([np.sin(x[:, 0]), np.cos(x[:, 0])], axis=1)
    coefficients, *_ = np.linalg.lstsq(design, np.asarray(y[:, 0]))
    return design @ coefficients - y[:, 0]


def test_tasks_of_pure_noise_have_nothing_in_common_but_their_scale():
    stream = FunctionStream(consecutive(("noise",), (1,)), tasks=300, query=45)
    y = np.asarray(stream.batch(KEY, 0).query.y[..., 0])
    np.testing.assert_allclose([y.mean(), y.std()], [0, 2], atol=0.05)
    np.testing.assert_allclose(y.mean(axis=1).std(), 2 / np.sqrt(45), rtol=0.15)


def phases_of(batch):
    """phi of each task's a sin(x - phi), up to whole turns."""
    x, y = np.asarray(batch.query.x[..., 0]), np.asarray(batch.query.y)
    design = np.stack([np.sin(x), np.cos(x)], axis=-1)
    sine, cosine = (np.linalg.pinv(design) @ y)[..., 0].T
    return np.arctan2(-cosine, sine)


DRIFTING = FunctionStream(
    consecutive(("sinusoid", "drifting-sinusoid"), (10, 40)), tasks=500, query=9, drift=20
)


@pytest.mark.parametrize(
    ("iteration", "lowest", "highest"),
    [(9, 0, 1), (10, 0, 1), (20, 0.5, 1.5), (30, 1, 2), (49, 1, 2)],
)
def test_drift_begins_with_the_family_and_ends_after_its_time(iteration, lowest, highest):
    batch = jax.jit(DRIFTING.batch)(KEY, iteration)
    assert_in_turns(phases_of(batch), lowest, highest)


def assert_in_turns(phases, lowest, highest):
    """The phases, which are known up to whole turns, fill a range given in units of pi."""
    turned = (phases / np.pi - lowest + 0.01) % 2
    assert turned.max() < highest - lowest + 0.02
    assert turned.max() - turned.min() > 0.95 * (highest - lowest)


def test_test_tasks_of_a_drifting_family_are_of_the_end_of_the_drift():
    test = DRIFTING.test_tasks(KEY, 1, 500)
    assert_in_turns(phases_of(test), 1, 2)


def test_x_fills_the_range_asked_for():
    stream = FunctionStream(consecutive(("sinusoid",), (1,)), tasks=500, x_limit=2.0)
    x = stream.batch(KEY, 0).query.x
    np.testing.assert_allclose([x.min(), x.max()], [-2, 2], atol=0.01)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"support": 0}, "support is 0; it must be 1 or more"),
        ({"query": 0}, "query is 0"),
        ({"tasks": -1}, "tasks is -1"),
        ({"noise": -0.1}, "noise is -0.1"),
        ({"noise": float("nan")}, "noise is nan"),
        ({"x_limit": 0.0}, "x_limit is 0.0"),
        ({"drift": 0}, "drift is 0"),
    ],
)
def test_error_names_the_setting(settings, message):
    with pytest.raises(ValueError, match=message):
        FunctionStream(consecutive(("step",), (3,)), **settings)


def test_unknown_family_is_refused_with_a_suggestion():
    with pytest.raises(ValueError, match="Did you mean 'sawtooth'"):
        FunctionStream(consecutive(("sawtoth",), (3,)))


@pytest.mark.parametrize("index", [-1, 2])
def test_test_tasks_of_a_family_that_does_not_occur_are_refused(index):
    with pytest.raises(ValueError, match="index into sinusoid, step"):
        SMALL.test_tasks(KEY, index, 5)


def test_values_are_those_of_a_function_of_the_family():
    """A sinusoid is determined by two points: a sin x + b cos x."""
    batch = FunctionStream(consecutive(("sinusoid",), (1,)), support=5).batch(KEY, 0)
    low, high = family("sinusoid").ranges[0]
    for x, y in zip(batch.support.x[..., 0], batch.support.y[..., 0], strict=True):
        design = np.stack([np.sin(x), np.cos(x)], axis=1)
        coefficients, *_ = np.linalg.lstsq(design, np.asarray(y))
        np.testing.assert_allclose(design @ coefficients, y, atol=1e-4)
        assert low <= np.linalg.norm(coefficients) <= high
