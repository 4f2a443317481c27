"""Adaptation: hand-computed steps, and meta-gradients against finite differences."""

import dataclasses
import functools
import math

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

from taskmix.adaptation import (
    Adaptation,
    TaskModel,
    annealed_optimiser,
    mean_gradient,
    meta_gradient,
    task_loss,
)
from taskmix.adaptation.calibrated import CalibratedGradient, CalibratedParams
from taskmix.adaptation.gradient import Gradient
from taskmix.likelihood import Categorical, Gaussian
from taskmix.models import MLP
from taskmix.models.mlp import Linear
from taskmix.tasks import Examples, TaskBatch

LINE, LIKELIHOOD = MLP(hidden=()), Gaussian()
SLOPE_2 = (Linear(jnp.array([[2.0]]), jnp.zeros(1)),)
# y = 0 at x = 1: the loss is 4 and its gradient (4, 4), of norm sqrt(32).
POINT = Examples.full(jnp.ones((1, 1)), jnp.zeros((1, 1)))

# The code that users get: a gradient may be right in one kind of code and wrong in another.
as_users_do = functools.partial(jax.jit, compiler_options={"xla_cpu_use_fusion_emitters": True})


class FixedBias(MLP):
    """A network whose first bias only the outer loop may change."""

    def adaptable(self, params):
        everything = super().adaptable(params)
        return eqx.tree_at(lambda layers: layers[0].bias, everything, False)


def adapted(adaptation: Adaptation, support: Examples = POINT, line: MLP = LINE) -> list[float]:
    (layer,) = adaptation(line, LIKELIHOOD, SLOPE_2, support)
    return [layer.weight.item(), layer.bias.item()]


def test_one_step_follows_the_gradient():
    np.testing.assert_allclose(adapted(Adaptation(steps=1, rate=0.1)), [1.6, -0.4], rtol=1e-6)


def test_second_step_follows_the_gradient_where_the_first_ended():
    # The residual is now 1.2, so the gradient is (2.4, 2.4).
    np.testing.assert_allclose(adapted(Adaptation(steps=2, rate=0.1)), [1.36, -0.64], rtol=1e-5)


def test_long_gradient_is_cut_to_the_norm():
    step = 0.1 * 2 / math.sqrt(2)
    np.testing.assert_allclose(
        adapted(Adaptation(steps=1, rate=0.1, clip=2.0)), [2 - step, -step], rtol=1e-6
    )


def test_no_step_changes_nothing():
    assert adapted(Adaptation(steps=0)) == [2.0, 0.0]


def test_infinite_clip_cuts_nothing():
    np.testing.assert_allclose(
        adapted(Adaptation(steps=1, rate=0.1, clip=math.inf)), [1.6, -0.4], rtol=1e-6
    )


def test_what_is_not_adaptable_stays_and_does_not_lengthen_the_gradient():
    # The gradient is 4 for the slope alone: a clip of 4 leaves it whole, one of 2 halves it.
    line = FixedBias(hidden=())
    assert adapted(Adaptation(steps=1, rate=0.125, clip=4.0), line=line) == [1.5, 0.0]
    assert adapted(Adaptation(steps=1, rate=0.125, clip=2.0), line=line) == [1.75, 0.0]


def test_empty_support_set_changes_nothing():
    nothing = Examples(POINT.x, POINT.y, jnp.zeros(1, dtype=bool))
    assert adapted(Adaptation(steps=3), nothing) == [2.0, 0.0]


def test_gradient_is_finite_where_a_task_is_fitted_exactly():
    fitted = Examples.full(jnp.ones((1, 1)), jnp.full((1, 1), 2.0))

    def loss(params):
        return task_loss(LINE, LIKELIHOOD, Adaptation()(LINE, LIKELIHOOD, params, fitted), POINT)

    chex.assert_tree_all_finite(jax.grad(loss)(SLOPE_2))


MODEL = MLP(hidden=(6,), init_scale=0.7)
FIXED_BIAS = FixedBias(hidden=(6,), init_scale=0.7)


def meta_loss(adaptation: Adaptation, flat, unravel, support, query, model=MODEL):
    params = adaptation(model, LIKELIHOOD, unravel(flat), support)
    return task_loss(model, LIKELIHOOD, params, query)


def task():
    """Parameters and one task, in the precision that is in force."""
    x = jnp.linspace(-2.1, 2.3, 9)[:, None]
    y = 3 * jnp.sin(x)
    flat, unravel = ravel_pytree(MODEL.init(jax.random.key(1)))
    return flat, unravel, Examples.full(x[::2], y[::2]), Examples.full(x[1::2], y[1::2])


@pytest.mark.parametrize("steps", [1, 3, 5])
@pytest.mark.parametrize("clip", [0.5, 1e3], ids=["clipped", "unclipped"])
def test_jitted_second_order_gradient_is_that_of_finite_differences(steps, clip):
    assert_gradient_is_that_of_finite_differences(
        Adaptation(steps=steps, rate=0.05, clip=clip), MODEL
    )


@pytest.mark.parametrize("clip", [0.5, 1e3], ids=["clipped", "unclipped"])
def test_gradient_is_that_of_finite_differences_also_for_what_is_not_adapted(clip):
    assert_gradient_is_that_of_finite_differences(
        Adaptation(steps=3, rate=0.05, clip=clip), FIXED_BIAS
    )


def assert_gradient_is_that_of_finite_differences(adaptation: Adaptation, model: MLP) -> None:
    with jax.enable_x64(True):
        flat, unravel, support, query = task()

        def loss(flat):
            return meta_loss(adaptation, flat, unravel, support, query, model)

        gradient = as_users_do(jax.grad(loss))(flat)
        assert gradient.dtype == jnp.float64
        assert gradient.all()
        # Eager on purpose, all points at once: nothing here is shared with the compiled code.
        points = flat + 1e-6 * jnp.concatenate([jnp.eye(flat.size), -jnp.eye(flat.size)])
        ahead, behind = jax.vmap(loss)(points).reshape(2, -1)
        differences = np.asarray((ahead - behind) / 2e-6)
    np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-7)


def test_what_is_not_adaptable_stays_bit_for_bit_and_the_rest_moves():
    flat, unravel, support, _ = task()
    before = unravel(flat)
    after = Adaptation(steps=3, rate=0.05)(FIXED_BIAS, LIKELIHOOD, before, support)
    same = jax.tree.map(lambda a, b: bool((a == b).all()), after, before)
    assert jax.tree.leaves(same) == [False, True, False, False]


def test_first_order_gradient_is_that_at_the_adapted_parameters():
    flat, unravel, support, query = task()
    second = Adaptation(steps=3, rate=0.05)
    first = dataclasses.replace(second, first_order=True)

    def gradient_by(adaptation):
        loss = functools.partial(
            meta_loss, adaptation, unravel=unravel, support=support, query=query
        )
        return jax.jit(jax.grad(loss))(flat)

    gradient = gradient_by(first)
    adapt = jax.jit(functools.partial(first, MODEL, LIKELIHOOD))
    end = ravel_pytree(adapt(unravel(flat), support))[0]
    expected = jax.grad(lambda flat: task_loss(MODEL, LIKELIHOOD, unravel(flat), query))(end)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)
    assert not np.allclose(gradient_by(second), gradient, rtol=1e-2)


def test_meta_gradient_is_the_mean_of_the_tasks_and_tells_how_each_did():
    adaptation = Adaptation(steps=2, rate=0.05)
    flat, unravel, support, query = task()
    flipped = [Examples.full(-examples.x, examples.y) for examples in (support, query)]
    tasks = [(support, query), tuple(flipped)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *tasks)
    compiled = jax.jit(functools.partial(meta_gradient, MODEL, LIKELIHOOD, adaptation))
    gradient, result = compiled(unravel(flat), TaskBatch(*stacked))
    losses, gradients = zip(
        *(
            jax.jit(jax.value_and_grad(lambda f, t=t: meta_loss(adaptation, f, unravel, *t)))(flat)
            for t in tasks
        ),
        strict=True,
    )
    np.testing.assert_allclose(
        ravel_pytree(gradient)[0], (gradients[0] + gradients[1]) / 2, rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(result.loss, losses, rtol=1e-5)
    np.testing.assert_allclose(
        np.square(result.predicted - stacked[1].y).mean(axis=(1, 2)), losses, rtol=1e-5
    )


def test_annealed_rate_falls_along_a_cosine_to_nothing():
    """Adam's first steps along a constant gradient are as long as its rate."""
    optimiser = annealed_optimiser(0.1, anneal_over=4)
    params = jnp.zeros(1)
    state, steps = optimiser.init(params), []
    for _ in range(6):
        update, state = optimiser.update(jnp.ones(1), state)
        steps.append(float(-update[0]))
    expected = [0.05 * (1 + math.cos(math.pi * min(k, 4) / 4)) for k in range(6)]
    np.testing.assert_allclose(steps, expected, atol=1e-6)


def test_rate_without_an_end_stays():
    update, _ = annealed_optimiser(0.1).update(
        jnp.ones(1), annealed_optimiser(0.1).init(jnp.zeros(1))
    )
    np.testing.assert_allclose(update, -0.1, rtol=1e-5)


def test_negative_length_of_annealing_is_refused():
    with pytest.raises(ValueError, match="anneal_over is -1"):
        annealed_optimiser(0.1, -1)


def test_clipped_optimiser_cuts_the_norm_of_all_gradients_together():
    """Adam's second moment after one step is a thousandth of the squared gradient it saw."""
    optimiser = annealed_optimiser(0.1, clip=1.0)
    gradient = (jnp.array([3.0]), jnp.array([4.0]))
    _, state = optimiser.update(gradient, optimiser.init(gradient))
    seen = jnp.sqrt(1000 * jnp.concatenate(state[1][0].nu))
    np.testing.assert_allclose(seen, [0.6, 0.8], rtol=1e-4)


@pytest.mark.parametrize("in_turn", [False, True])
def test_mean_gradient_weighs_the_tasks(in_turn):
    """Of w p with slopes 1, 5, and one without weight that is not a number: (1 + 2.5) / 1.5."""

    class Paced:
        one_at_a_time = in_turn

    slopes, weights = jnp.array([1.0, 5.0, jnp.nan]), jnp.array([1.0, 0.5, 0.0])

    def task_loss(params, slope):
        # A gradient turns 0 * NaN into NaN, so that callers make padding of such a task.
        return params * jnp.where(jnp.isnan(slope), 0, slope), slope

    gradient, seen = mean_gradient(Paced(), task_loss, jnp.asarray(2.0), slopes, weights=weights)
    np.testing.assert_allclose(gradient, 3.5 / 1.5, rtol=1e-6)
    np.testing.assert_array_equal(seen, slopes)


# Of a line with the slope 2 on noisy points of another, in batches with padding.
ADAPTATION = Adaptation(steps=2, rate=0.1, clip=1.5)
RNG = np.random.default_rng(0)
X = RNG.normal(size=12)
Y = 1.0 - X + 0.3 * RNG.normal(size=12)
MASK = np.array([True] * 4 + [False] + [True] * 2 + [True] * 4 + [False])
SUPPORT, QUERY = slice(0, 7), slice(7, 12)
CALIBRATED = CalibratedGradient(LINE, LIKELIHOOD, ADAPTATION, parts=3)
PARAMS = CalibratedParams(SLOPE_2, jnp.asarray(0.4), jnp.asarray(1.1))


def examples_of(part: slice) -> Examples:
    x, y = (jnp.asarray(a[part, None], dtype=jnp.float32) for a in (X, Y))
    return Examples(x, y, jnp.asarray(MASK[part])).without_padding_values()


def slow_line(x, y, slope=2.0, bias=0.0):
    """Slope and bias after two clipped gradient steps on the mean squared error."""
    for _ in range(ADAPTATION.steps):
        residual = slope * x + bias - y
        gradient = 2 * np.array([np.sum(residual * x), np.sum(residual)]) / max(len(x), 1)
        gradient *= min(1, ADAPTATION.clip / max(np.linalg.norm(gradient), 1e-30))
        slope, bias = np.array([slope, bias]) - ADAPTATION.rate * gradient
    return slope, bias


def real(part: slice) -> tuple[np.ndarray, np.ndarray]:
    return X[part][MASK[part]], Y[part][MASK[part]]


def slow_held_out(x, y, parts: int) -> np.ndarray:
    """Residuals of every point after adaptation to the points of the other parts."""
    residuals = []
    for i in range(len(x)):
        others = [j for j in range(len(x)) if j % parts != i % parts]
        slope, bias = slow_line(x[others], y[others])
        residuals.append(y[i] - slope * x[i] - bias)
    return np.array(residuals)


def slow_density(residuals: np.ndarray, log_scale: float, log_freedom: float) -> float:
    return stats.multivariate_t.logpdf(
        residuals,
        shape=np.exp(2 * log_scale) * np.eye(len(residuals)),
        df=2.1 + np.exp(log_freedom),
    )


@pytest.mark.parametrize("model", [Gradient(), CalibratedGradient()])
def test_task_models_meet_the_contract_and_say_that_their_evidence_is_no_probability(model):
    assert isinstance(model, TaskModel)
    assert not model.exact


def test_evidence_of_gradient_steps_is_the_fit_of_what_they_were_taken_on():
    (x, y), model = real(SUPPORT), Gradient(LINE, Gaussian(0.5), ADAPTATION)
    slope, bias = slow_line(x, y)
    expected = -np.sum(np.square(y - slope * x - bias)) / (2 * 0.5)
    support, query = examples_of(SUPPORT), examples_of(QUERY)
    np.testing.assert_allclose(model.evidence(SLOPE_2, support), expected, rtol=1e-5)
    judged = model.judge(SLOPE_2, support, query)
    np.testing.assert_allclose(judged.support, expected, rtol=1e-5)
    x, y = real(QUERY)
    whole = expected - np.sum(np.square(y - slope * x - bias)) / (2 * 0.5)
    np.testing.assert_allclose(judged.whole, whole, rtol=1e-5)
    assert judged.predictive.variance is None
    loss, result = model.loss(SLOPE_2, support, query)
    np.testing.assert_allclose(loss, np.mean(np.square(y - slope * x - bias)), rtol=1e-5)
    np.testing.assert_allclose(result.evidence, expected, rtol=1e-5)


def test_calibrated_evidence_is_that_of_held_out_residuals():
    expected = slow_density(slow_held_out(*real(SUPPORT), parts=3), 0.4, 1.1)
    found = CALIBRATED.evidence(PARAMS, examples_of(SUPPORT))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_calibrated_judgement_adds_the_residuals_of_the_query():
    known = slow_density(slow_held_out(*real(SUPPORT), parts=3), 0.4, 1.1)
    slope, bias = slow_line(*real(SUPPORT))
    x, y = real(QUERY)
    judged = CALIBRATED.judge(PARAMS, examples_of(SUPPORT), examples_of(QUERY))
    np.testing.assert_allclose(judged.support, known, rtol=1e-5)
    whole = known + slow_density(y - slope * x - bias, 0.4, 1.1)
    np.testing.assert_allclose(judged.whole, whole, rtol=1e-5)
    np.testing.assert_allclose(judged.predictive.mean[:4, 0], slope * x + bias, rtol=1e-5)


def test_calibrated_loss_is_the_query_loss_and_minus_the_density_per_example():
    slope, bias = slow_line(*real(SUPPORT))
    x, y = real(QUERY)
    residuals = y - slope * x - bias
    expected = np.mean(residuals**2) - slow_density(residuals, 0.4, 1.1) / len(residuals)
    loss, _ = CALIBRATED.loss(PARAMS, examples_of(SUPPORT), examples_of(QUERY))
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_calibrated_noise_is_the_variance_of_the_density():
    predictive = CALIBRATED.predict(PARAMS, examples_of(QUERY).x)
    freedom = 2.1 + math.exp(1.1)
    np.testing.assert_allclose(
        predictive.variance, math.exp(0.8) * freedom / (freedom - 2), rtol=1e-5
    )
    np.testing.assert_array_equal(predictive.uncertainty, 0)


def test_set_of_a_single_example_is_judged_by_the_initialisation():
    one = Examples.full(jnp.full((1, 1), 0.5), jnp.full((1, 1), 3.0))
    expected = slow_density(np.array([3.0 - 2.0 * 0.5]), 0.4, 1.1)
    np.testing.assert_allclose(CALIBRATED.evidence(PARAMS, one), expected, rtol=1e-5)


def test_evidence_of_no_examples_is_nothing():
    none = Examples(jnp.zeros((3, 1)), jnp.zeros((3, 1)), jnp.zeros(3, dtype=bool))
    np.testing.assert_allclose(CALIBRATED.evidence(PARAMS, none), 0, atol=1e-6)


@pytest.mark.parametrize("likelihood", [Gaussian(), Categorical()])
def test_diverged_adaptation_has_no_evidence_and_spoils_no_scale(likelihood):
    network = MLP(hidden=(), outputs=2)
    model = CalibratedGradient(network, likelihood, Adaptation(steps=2, clip=math.inf))
    broken = jax.tree.map(
        lambda leaf: jnp.full_like(leaf, jnp.inf), network.init(jax.random.key(0))
    )
    params = CalibratedParams(broken, jnp.zeros(()), jnp.zeros(()))
    y = jnp.zeros(3, dtype=int) if isinstance(likelihood, Categorical) else jnp.ones((3, 2))
    examples = Examples.full(jnp.ones((3, 1)), y)
    judged = model.judge(params, examples, examples)
    assert model.evidence(params, examples) == -jnp.inf
    assert judged.support == judged.whole == -jnp.inf
    gradient, _ = jax.grad(model.loss, has_aux=True)(params, examples, examples)
    assert jnp.isfinite(gradient.log_scale)
    assert jnp.isfinite(gradient.log_freedom)


def test_evidence_of_labels_is_the_log_likelihood_of_held_out_ones():
    """Without steps every label is predicted by the initialisation."""
    network = MLP(hidden=(), outputs=3)
    model = CalibratedGradient(network, Categorical(), Adaptation(steps=0))
    params = model.init(jax.random.key(0))
    x, y = jnp.asarray(X[:6, None], dtype=jnp.float32), jnp.array([0, 1, 2, 2, 1, 0])
    outputs = np.asarray(network.apply(params.network, x))
    expected = np.sum(outputs[np.arange(6), y]) - np.sum(np.log(np.exp(outputs).sum(axis=1)))
    np.testing.assert_allclose(model.evidence(params, Examples.full(x, y)), expected, rtol=1e-5)


def learned_networks(clip: float) -> list:
    """Networks after some steps of the same optimiser, without and with a calibration."""
    parts = (MODEL, LIKELIHOOD, Adaptation(steps=2, rate=0.05))
    _, _, support, query = task()
    networks = []
    for model in (Gradient(*parts), CalibratedGradient(*parts)):
        optimiser = annealed_optimiser(1e-2, clip=clip)
        params = model.init(jax.random.key(1))
        state = optimiser.init(params)

        @jax.jit
        def step(params, state, model=model, optimiser=optimiser):
            gradient, _ = jax.grad(model.loss, has_aux=True)(params, support, query)
            updates, state = optimiser.update(gradient, state, params)
            return jax.tree.map(jnp.add, params, updates), state

        for _ in range(5):
            params, state = step(params, state)
        networks.append(params)
    return networks


def test_calibration_moves_no_bit_of_the_network_unless_gradients_are_clipped_together():
    plain, calibrated = learned_networks(math.inf)
    chex.assert_trees_all_equal(calibrated.network, plain)
    assert calibrated.log_scale != 0
    clipped, calibrated = learned_networks(0.1)
    assert not jax.tree.all(
        jax.tree.map(lambda a, b: bool((a == b).all()), calibrated.network, clipped)
    )


def test_scale_comes_to_that_of_the_residuals():
    """Whatever the freedom, s^2 is most probable where it is the mean squared residual."""
    x = jnp.asarray(RNG.normal(size=(200, 1)), dtype=jnp.float32)
    query = Examples.full(x, 2 * x + 0.5 * jnp.asarray(RNG.normal(size=(200, 1)), jnp.float32))
    model = CalibratedGradient(LINE, LIKELIHOOD, Adaptation(steps=0))
    params = CalibratedParams(SLOPE_2, jnp.asarray(1.0), jnp.asarray(3.0))
    optimiser = annealed_optimiser(0.05)

    def step(carry, _):
        params, state = carry
        gradient, _ = jax.grad(model.loss, has_aux=True)(params, query, query)
        updates, state = optimiser.update(gradient, state, params)
        # The network stays where it is.
        return (
            CalibratedParams(
                params.network,
                params.log_scale + updates.log_scale,
                params.log_freedom + updates.log_freedom,
            ),
            state,
        ), None

    (params, _), _ = jax.lax.scan(step, (params, optimiser.init(params)), length=300)
    squared = np.mean(np.square(query.y - 2 * x))
    np.testing.assert_allclose(np.exp(2 * params.log_scale), squared, rtol=0.05)


def test_parts_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="parts is 1"):
        CalibratedGradient(parts=1)
