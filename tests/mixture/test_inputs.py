import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from taskmix.mixture.inputs import BREADTH, RATE, SMALLEST_VARIANCE, Inputs

KEY = jax.random.key(0)


def known() -> Inputs:
    """Two rows and that of all tasks, each of which has seen something."""
    mean = jnp.array([[0.0, 1.0], [2.0, -1.0], [1.0, 0.0]])
    variance = jnp.array([[1.0, 0.5], [2.0, 0.1], [3.0, 1.0]])
    return Inputs(mean, variance, jnp.array([3.0, 50.0, 9.0]))


def weights_of(*rows: list[float]) -> jax.Array:
    return jnp.asarray(rows)


def test_density_is_normal_with_a_floor_under_the_variance():
    inputs, statistics = known(), np.array([0.3, -0.7])
    found = inputs.log_density(jnp.asarray(statistics))
    for row in range(2):
        deviation = np.sqrt(np.asarray(inputs.variance[row]) + SMALLEST_VARIANCE)
        expected = scipy.stats.norm.logpdf(statistics, inputs.mean[row], deviation).sum()
        np.testing.assert_allclose(found[row], expected, rtol=1e-5)


def test_background_is_broader_than_all_tasks_together():
    inputs, statistics = known(), np.array([0.3, -0.7])
    deviation = np.sqrt(BREADTH * (np.asarray(inputs.variance[-1]) + SMALLEST_VARIANCE))
    expected = scipy.stats.norm.logpdf(statistics, inputs.mean[-1], deviation).sum()
    np.testing.assert_allclose(inputs.log_density(jnp.asarray(statistics))[-1], expected, rtol=1e-5)


def test_a_row_that_has_seen_nothing_says_nothing():
    assert not Inputs.begin(3, 2).log_density(jnp.array([5.0, -9.0])).any()


def test_without_statistics_every_row_says_nothing():
    inputs = Inputs.begin(3, 0).observe(jnp.zeros((4, 0)), jnp.ones((4, 3)))
    assert not inputs.log_density(jnp.zeros((4, 0))).any()


def test_first_batch_gives_the_mean():
    statistics = jnp.array([[1.0], [3.0], [9.0]])
    found = Inputs.begin(1, 1).observe(statistics, weights_of([1.0], [1.0], [0.0]))
    np.testing.assert_allclose(found.mean, 2.0)


def test_a_row_without_tasks_stays_as_it_is():
    before = known()
    after = before.observe(jnp.full((2, 2), 7.0), weights_of([0.0, 1.0, 1.0], [0.3, 1.0, 1.0]))
    for name in ("mean", "variance", "seen"):
        np.testing.assert_array_equal(getattr(after, name)[0], getattr(before, name)[0])


def test_an_old_row_follows_at_the_least_rate():
    after = known().observe(jnp.full((1, 2), 12.0), weights_of([0.0, 1.0, 0.0]))
    np.testing.assert_allclose(after.mean[1], [2 + RATE * 10, -1 + RATE * 13], rtol=1e-6)


def test_descriptions_come_to_the_mean_and_variance_of_the_tasks():
    statistics = 3 + 2 * jax.random.normal(KEY, (2000, 5, 1))

    @jax.jit
    def followed(inputs, batches):
        def follow(inputs, batch):
            inputs = inputs.observe(batch, jnp.ones((5, 1)))
            return inputs, inputs

        return jax.lax.scan(follow, inputs, batches)[1]

    found = followed(Inputs.begin(1, 1), statistics)
    np.testing.assert_allclose(jnp.mean(found.mean[500:]), 3, atol=0.1)
    np.testing.assert_allclose(jnp.mean(found.variance[500:]), 4, rtol=0.05)
