import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.adaptation import BayesianHead, Gradient
from taskmix.mixture import PaperMixture
from taskmix.mixture.adapted_prior import log_adapted_prior, log_adapted_priors

KEY = jax.random.key(0)


def test_term_is_the_log_density_of_a_normal_but_for_its_constant(parts, batches):
    task_model = Gradient(**parts)
    params = task_model.init(KEY)
    support = jax.tree.map(lambda leaf: leaf[0], batches[0].support)
    adapted = task_model.adapt(params, support)
    flat = [
        np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(t)]) for t in (adapted, params)
    ]
    density = jax.scipy.stats.norm.logpdf(flat[0], flat[1], 0.5).sum()
    constant = flat[0].size * jax.scipy.stats.norm.logpdf(0.0, 0.0, 0.5)
    found = log_adapted_prior(task_model, 4.0, params, support)
    assert found < 0
    np.testing.assert_allclose(found, density - constant, rtol=1e-3)


def test_terms_of_a_batch_are_those_of_its_tasks(parts, batches, three_paper):
    task_model, clusters = Gradient(**parts), three_paper.clusters
    every = log_adapted_priors(task_model, 1.0, clusters.params, batches[0], clusters.alive)
    second = jax.tree.map(lambda leaf: leaf[1], clusters.params)
    third = jax.tree.map(lambda leaf: leaf[2], batches[0].support)
    np.testing.assert_allclose(
        every[2, 1], log_adapted_prior(task_model, 1.0, second, third), rtol=1e-5
    )


def test_term_takes_responsibility_from_clusters_that_have_to_move_far(parts, batches, three_paper):
    """gamma is proportional to p(data | adapted) p(adapted | cluster), the counts being equal."""
    learner = PaperMixture(Gradient(**parts), threshold=3.9, coefficient=0.0)
    strict = PaperMixture(Gradient(**parts), threshold=3.9, coefficient=0.0, adapted_precision=50.0)
    batch, clusters = batches[5], three_paper.clusters
    _, plain = jax.jit(learner.step)(three_paper, batch, KEY)
    _, held = jax.jit(strict.step)(three_paper, batch, KEY)
    terms = log_adapted_priors(strict.task_model, 50.0, clusters.params, batch, clusters.alive)
    expected = plain.responsibilities[:, :3] * jnp.exp(terms[:, :3])
    expected = expected / expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(held.responsibilities[:, :3], expected, rtol=1e-2, atol=1e-4)


def test_exact_evidence_has_the_term_within():
    with pytest.raises(ValueError, match="adapted_precision"):
        PaperMixture(BayesianHead(), adapted_precision=1.0)
