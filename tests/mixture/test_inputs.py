import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from taskmix.mixture.inputs import (
    BREADTH,
    LEAST_FREEDOM,
    MEMORY,
    PRIOR_TASKS,
    PRIOR_VARIANCE,
    SUPPORT,
    WHOLE,
    Description,
    Inputs,
)

KEY = jax.random.key(0)
observe = jax.jit(Inputs.observe)


def told(support, whole, within=None, freedom=0.0) -> Description:
    """Tasks with these means in both views, whose classes tell the covariance ``within``."""
    mean = jnp.stack([jnp.asarray(support), jnp.asarray(whole)], axis=1)
    square = jnp.zeros((*mean.shape, mean.shape[-1])) if within is None else within
    return Description(mean, square, jnp.full(len(mean), freedom))


def known() -> Inputs:
    """Two rows and that of all tasks, each of which has seen something."""
    mean = jnp.array([[0.0, 1.0], [2.0, -1.0], [1.0, 0.0]])
    scatter = jnp.array([[[1.0, 0.2], [0.2, 0.5]], [[2.0, 0], [0, 0.1]], [[3.0, 0.3], [0.3, 1.0]]])
    count, freedom = jnp.array([30.0, 50.0, 80.0]), jnp.array([120.0, 200.0, 320.0])
    within = 0.9 * scatter + 0.1 * jnp.eye(2)
    return Inputs(
        jnp.stack([mean, mean + 1], axis=1),
        jnp.stack([scatter, scatter / 2], axis=1),
        count,
        jnp.stack([within, within / 2], axis=1),
        freedom,
    )


def covariance(scatter, count):
    """Shrunk towards independent statistics by two, the number of statistics, over all seen."""
    told, kept = count / (count + PRIOR_TASKS), count / (count + 2)
    variance = told * np.diag(scatter) + (1 - told) * PRIOR_VARIANCE
    return np.where(np.eye(2), np.diag(variance + 1e-2 * PRIOR_VARIANCE), kept * scatter)


def student(statistics, mean, spread, count):
    freedom = LEAST_FREEDOM + count
    shape = spread * (freedom - 2) / freedom
    return scipy.stats.multivariate_t(mean, shape, df=freedom).logpdf(statistics)


@pytest.mark.parametrize("view", [SUPPORT, WHOLE])
def test_density_is_a_t_with_what_tasks_and_classes_tell_of_the_covariance(view):
    inputs, statistics = known(), np.array([0.3, -0.7])
    scatter, within = (
        np.asarray(leaf[:, view], np.float64) for leaf in (inputs.scatter, inputs.within)
    )
    found = inputs.log_density(jnp.asarray(statistics), view)
    for row, count, freedom in ((0, 30, 120), (1, 50, 200)):
        seen = 320 + freedom + count
        whole = 320 * within[2] + freedom * within[row] + count * scatter[row]
        spread = (1 + 1 / count) * covariance(whole / seen, seen)
        expected = student(statistics, inputs.mean[row, view], spread, seen)
        np.testing.assert_allclose(found[row], expected, rtol=1e-5)
    blank = BREADTH * covariance(scatter[2], 80)
    expected = student(statistics, inputs.mean[2, view], blank, 80)
    np.testing.assert_allclose(found[2], expected, rtol=1e-5)


def pictures(rng, tasks, classes=4, images=3, kind=0.0):
    """Statistics of images: a level of their kind, one of each class, and one of each image."""
    mixing = np.array([[1.0, 0.0], [0.8, 0.3]])
    of_class = rng.normal(size=(tasks, classes, 1, 2)) @ mixing.T
    each = kind + of_class + 0.5 * rng.normal(size=(tasks, classes, images, 2))
    classes = np.broadcast_to(np.arange(classes)[:, None], each.shape[1:3])
    kinds = np.broadcast_to(classes.ravel(), (tasks, classes.size))
    return jnp.asarray(each.reshape(tasks, -1, 2)), jnp.asarray(kinds)


def test_classes_of_a_task_tell_how_much_the_means_of_tasks_vary():
    each, kind = pictures(np.random.default_rng(0), 4000)
    first = jnp.broadcast_to(jnp.arange(each.shape[1]) % 3 == 0, kind.shape)
    found = jax.jit(Description.of)(each, kind, first, jnp.ones_like(first))
    for view, mask in ((SUPPORT, first), (WHOLE, jnp.ones_like(first))):
        means = [np.asarray(x[m]).mean(axis=0) for x, m in zip(each, mask, strict=True)]
        np.testing.assert_allclose(found.mean[:, view], means, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            found.within[:, view].mean(axis=0), np.cov(np.array(means).T), rtol=0.1
        )
    np.testing.assert_array_equal(found.freedom, 3)


def test_padding_and_a_single_class_tell_nothing():
    each, kind = pictures(np.random.default_rng(0), 2)
    few = jnp.broadcast_to(jnp.arange(12) < 6, kind.shape)
    spoiled = jnp.where(few[..., None], each, jnp.nan)
    found = Description.of(spoiled, kind, few, few)
    expected = Description.of(each[:, :6], kind[:, :6], few[:, :6], few[:, :6])
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    alone = Description.of(each, 0 * kind, few, few)
    assert not alone.freedom.any()
    np.testing.assert_allclose(alone.within, 0, atol=1e-6)


def test_a_cluster_of_two_kinds_leaves_room_for_one_that_has_one_of_them():
    """However far its tasks are spread, a row that follows the nearer half of them gains by it."""
    rng, inputs = np.random.default_rng(0), Inputs.begin(3, 2)
    for turn in range(40):
        each, kind = pictures(rng, 4, kind=20.0 * (turn % 2))
        tasks = Description.of(each, kind, *[jnp.ones(kind.shape, bool)] * 2)
        weights = jnp.array([[1.0, turn % 2, 1.0]] * 4)
        inputs = observe(inputs, tasks, weights)
    each, _ = pictures(rng, 50, kind=20.0)
    found = inputs.log_density(each.mean(axis=1), WHOLE)
    assert np.mean(found[:, 1] - found[:, 0]) > 3


@pytest.mark.parametrize("view", [SUPPORT, WHOLE])
def test_density_under_one_cluster_is_that_among_all(view):
    statistics = jnp.array([[0.3, -0.7], [2.0, 0.1]])
    inputs = known()
    for one in (inputs, eqx.tree_at(lambda some: some.count, inputs, jnp.array([0.0, 50, 80]))):
        found = one.log_density(statistics, view)
        for index in (0, 1):
            alone = one.log_density_of(statistics, view, jnp.asarray(index))
            # The logarithm of a gamma function of hundreds is rounded, compiled or not.
            np.testing.assert_allclose(alone, found[:, index], atol=1e-3)


def test_before_anything_is_seen_nothing_is_said():
    assert not Inputs.begin(3, 2).log_density(jnp.array([5.0, -9.0]), WHOLE).any()


def test_a_row_that_has_seen_nothing_is_as_the_background():
    statistics = jnp.array([[0.0, 1.0], [1.0, 1.0]])
    inputs = Inputs.begin(3, 2).observe(told(statistics, statistics), jnp.array([[1.0, 0, 1]] * 2))
    found = inputs.log_density(jnp.array([0.2, 0.4]), SUPPORT)
    assert found[1] == found[2]
    assert found[0] != found[2]


def test_without_statistics_every_row_says_nothing():
    nothing = jnp.zeros((4, 0))
    inputs = Inputs.begin(3, 0).observe(told(nothing, nothing), jnp.ones((4, 3)))
    assert not inputs.log_density(nothing, SUPPORT).any()


def test_a_row_without_tasks_stays_as_it_is():
    before, far = known(), jnp.full((2, 2), 7.0)
    after = observe(
        before, told(far, far, freedom=2.0), jnp.array([[0.0, 1.0, 1.0], [0.3, 1.0, 1.0]])
    )
    for name in ("mean", "scatter", "count", "within", "freedom"):
        np.testing.assert_array_equal(getattr(after, name)[0], getattr(before, name)[0])
        assert np.any(getattr(after, name)[1] != getattr(before, name)[1])


def test_moments_are_those_of_all_tasks_together_whatever_the_batches():
    drawn = np.random.default_rng(0).normal(size=(60, 3)) * [1, 2, 3] + [5, 0, 0]
    inputs, halves = Inputs.begin(1, 3), drawn / 2
    for first in range(0, 60, 5):
        some = slice(first, first + 5)
        inputs = observe(inputs, told(drawn[some], halves[some]), jnp.ones((5, 1)))
    np.testing.assert_allclose(inputs.mean[0, SUPPORT], drawn.mean(axis=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        inputs.scatter[0, SUPPORT], np.cov(drawn.T, bias=True), rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(inputs.mean[0, WHOLE], halves.mean(axis=0), rtol=1e-4, atol=1e-5)
    assert inputs.count[0] == 60


def test_old_tasks_are_forgotten_after_as_many_as_are_remembered():
    inputs = Inputs.begin(1, 1)
    for level in (0.0, 3.0):
        for _ in range(3):
            tasks = jnp.full((1000, 1), level)
            inputs = observe(inputs, told(tasks, tasks), jnp.ones((1000, 1)))
    assert inputs.count[0] == MEMORY
    np.testing.assert_allclose(inputs.mean[0], 3.0, rtol=1e-4)


def test_far_more_statistics_than_tasks_still_tell_two_kinds_apart():
    """The first batches have fewer tasks than statistics; the covariance is then singular."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(100, 100)) / 5
    kinds = np.array([np.zeros(100), np.tile([1.0, -1.0], 50)])
    labels = jnp.broadcast_to(jnp.arange(5), (6, 5))

    def tasks(kind, count):
        return jnp.asarray(kinds[kind] + rng.normal(size=(count, 5, 100)) @ mixing)

    inputs = Inputs.begin(3, 100)
    for kind in (0, 1):
        some = Description.of(tasks(kind, 6), labels, *[jnp.ones((6, 5), bool)] * 2)
        weights = jnp.zeros((6, 3)).at[:, kind].set(1).at[:, 2].set(1)
        inputs = observe(inputs, some, weights)
    for kind in (0, 1):
        found = inputs.log_density(tasks(kind, 50).mean(axis=1), SUPPORT)
        assert np.isfinite(found).all()
        assert np.mean(np.argmax(found[:, :2], axis=1) == kind) > 0.95
