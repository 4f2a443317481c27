"""A learner of your own, checked against the contract and compared with others.

It fits a ridge regression on a few fixed bumps to each task, and learns one thing for good: how
strongly to shrink. That is what a strong but simple rival looks like.

    python examples/own_learner.py
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

import taskmix as tm
from taskmix.adaptation.means import task_weights, weighted_mean
from taskmix.baselines.single import single_info, single_prediction
from taskmix.likelihood import masked_mean

CENTRES = jnp.linspace(-5, 5, 9)


class RidgeState(eqx.Module):
    log_shrinkage: Array


@dataclasses.dataclass(frozen=True)
class Ridge:
    """Ridge regression on bumps, per task; the shrinkage follows the gradient of the query loss."""

    likelihood: tm.Likelihood = tm.Gaussian()
    meta_rate: float = 0.05
    """Rate at which the logarithm of the shrinkage is learned."""

    told = tm.Told.NOTHING
    one_at_a_time = False

    def init(self, key, example):
        return RidgeState(jnp.zeros(()))

    @tm.protected
    def step(self, state, batch, key):
        batch = batch.without_padding_values()

        def judged(log_shrinkage):
            predicted = jax.vmap(fitted, (None, 0, 0))(log_shrinkage, batch.support, batch.query.x)
            each = masked_mean(self.likelihood.loss(predicted, batch.query.y), batch.query.mask)
            errors = masked_mean(self.likelihood.error(predicted, batch.query.y), batch.query.mask)
            return weighted_mean(each, task_weights(batch)), (each, errors)

        slope, (losses, errors) = jax.grad(judged, has_aux=True)(state.log_shrinkage)
        moved = state.log_shrinkage - self.meta_rate * jnp.clip(slope, -1, 1)
        return RidgeState(moved), single_info(losses, errors, batch)

    def predict(self, state, support, query_x, hints=None, query_mask=None):
        support = support.without_padding_values()
        return single_prediction(fitted(state.log_shrinkage, support, query_x))

    def parameters(self, state):
        return 1


def bumps(x: Array) -> Array:
    return jnp.append(
        jnp.exp(-0.5 * jnp.square(x - CENTRES)), jnp.ones((*x.shape[:-1], 1)), axis=-1
    )


def fitted(log_shrinkage: Array, support: tm.Examples, query_x: Array) -> Array:
    """The ridge regression of one task; examples that are padding weigh nothing."""
    design = bumps(support.x) * support.mask[:, None]
    gram = design.T @ design + jnp.exp(log_shrinkage) * jnp.eye(design.shape[1])
    return bumps(query_x) @ jnp.linalg.solve(gram, design.T @ support.y)


def main() -> None:
    tm.testing.check_learner(Ridge())
    print("the contract is kept")
    tm.register("learner", "ridge", Ridge)
    stream = tm.streams.regression(("sinusoid", "linear"), (200, 200))
    settings = tm.Settings(evaluate_every=200, test_tasks=50)
    found = tm.compare(["ridge", "ridge:meta_rate=0.5"], stream, seeds=[0], settings=settings)
    for name, method in found["methods"].items():
        errors = {family: round(cell["mean"], 2) for family, cell in method["final"].items()}
        print(f"{name}: {errors}")


if __name__ == "__main__":
    main()
