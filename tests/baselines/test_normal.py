"""Normal distributions over parameters, against integrals and numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import integrate, stats

from taskmix.baselines.normal import DiagonalNormal

KEY = jax.random.key(0)


def normal(mean, log_variance):
    return DiagonalNormal(jnp.asarray(mean), jnp.asarray(log_variance))


def test_divergence_of_a_wider_and_shifted_normal_by_hand():
    # (log(1/4) + (4 + 1^2) / 1 - 1) / 2
    found = normal([1.0], [np.log(4.0)]).divergence(normal([0.0], [0.0]))
    np.testing.assert_allclose(found, 2 - np.log(2), rtol=1e-6)


def test_divergence_from_a_wider_normal_by_hand():
    # log(3/2) + (4 + 1) / 18 - 1/2
    found = normal([1.0], [np.log(4.0)]).divergence(normal([2.0], [np.log(9.0)]))
    np.testing.assert_allclose(found, np.log(1.5) + 5 / 18 - 0.5, rtol=1e-5)


def test_divergence_between_equals_vanishes():
    one = normal([1.0, -3.0], [-8.0, 2.0])
    np.testing.assert_allclose(one.divergence(one), 0, atol=1e-6)


def test_divergence_is_the_integral_summed_over_the_tree():
    means, scales = (0.3, -0.5), (0.8, 1.7)
    other_means, other_scales = (-0.2, 0.4), (1.1, 0.9)
    expected = 0.0
    for m, s, n, t in zip(means, scales, other_means, other_scales, strict=True):
        p, q = stats.norm(n, t), stats.norm(m, s)
        expected += integrate.quad(
            lambda x, p=p, q=q: q.pdf(x) * (q.logpdf(x) - p.logpdf(x)), -20, 20
        )[0]

    def tree(means, scales):
        as_tree = [{"a": jnp.asarray(v[0]), "b": jnp.asarray(v[1])} for v in (means, scales)]
        return DiagonalNormal(as_tree[0], jax.tree.map(lambda s: 2 * jnp.log(s), as_tree[1]))

    found = tree(means, scales).divergence(tree(other_means, other_scales))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_sample_has_the_moments_of_the_distribution():
    drawn = normal(np.full(40_000, 2.0, np.float32), np.full(40_000, np.log(9), np.float32))
    sample = drawn.sample(KEY)
    # Within three standard errors: 3 / 200 of the mean, 3 / sqrt(2) / 200 of the deviation.
    np.testing.assert_allclose(sample.mean(), 2, atol=0.045)
    np.testing.assert_allclose(sample.std(), 3, atol=0.032)
