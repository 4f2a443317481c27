"""The curvature of a network, layer by layer, as Kronecker products.

The Fisher information of a layer's weights W (inputs x outputs, rows one after the other) is
taken to be A (x) G: A the second moment of what goes into the layer, G that of the gradients
with respect to what comes out. Layers are taken to be independent of each other.

J. Martens, R. Grosse: Optimizing neural networks with Kronecker-factored approximate
curvature. ICML 2015. For convolutions: R. Grosse, J. Martens: A Kronecker-factored
approximate Fisher matrix for convolution layers. ICML 2016.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from taskmix.models.conv4 import Block
from taskmix.models.convolution import patches
from taskmix.models.mlp import Linear
from taskmix.models.model import Model, TappedModel

# Power iterations converge at the rate of the ratio of two singular values.
_ITERATIONS = 20

Weights = Float[Array, "inputs outputs"]


class Factors(eqx.Module):
    """The curvature A (x) G of one layer."""

    inputs: Float[Array, "inputs inputs"]
    """A. The last input of a linear layer is the 1 that its bias multiplies."""
    outputs: Float[Array, "outputs outputs"]
    """G."""


def checked_tapped(model: Model) -> TappedModel:
    """The model, or a ``ValueError`` if its layers cannot be seen."""
    if isinstance(model, TappedModel):
        return model
    raise ValueError(f"model is {model}; it must be one whose layers can be seen: MLP or Conv4.")


def fisher_factors(
    model: TappedModel,
    params: PyTree,
    x: Array,
    mask: Bool[Array, " examples"],
    score: Callable[[Array], Array],
) -> tuple[Array, tuple[Factors, ...]]:
    """Outputs of the network for some examples, and the factors of every layer.

    ``score`` gives, for the outputs, a random vector whose second moment is their Fisher
    information. The factors are means over the real examples; padding may hold any finite
    numbers. Batch normalisation ties examples together: the gradient at an example then is
    that of all examples' scores.
    """

    def run(nudges: list[Array]) -> tuple[Array, list[Any]]:
        seen: list[Any] = []

        def tap(layer: PyTree, inputs: Array, outputs: Array) -> Array:
            seen.append((layer, inputs))
            return outputs + nudges[len(seen) - 1]

        return model.apply_tapped(params, x, mask, tap), seen

    # The gradient with respect to outputs is that with respect to zeros added to them.
    nudges = [jnp.zeros(shape.shape, shape.dtype) for shape in _output_shapes(model, params, x)]
    outputs, pull_back, seen = jax.vjp(run, nudges, has_aux=True)
    (gradients,) = pull_back(jnp.where(mask[:, None], score(outputs), 0))
    factors = tuple(
        _factors(layer, inputs, gradient, mask)
        for (layer, inputs), gradient in zip(seen, gradients, strict=True)
    )
    return outputs, factors


def no_curvature(params: PyTree) -> tuple[Factors, ...]:
    """Factors of zeros for every layer."""
    sizes = [matrix.shape for matrix in weight_matrices(params)]
    return tuple(Factors(jnp.zeros((a, a)), jnp.zeros((g, g))) for a, g in sizes)


def weight_matrices(params: PyTree) -> tuple[Weights, ...]:
    """The weights of each layer as its factors order them."""
    nodes = jax.tree.leaves(params, is_leaf=_is_layer)
    return tuple(_matrix(node) for node in nodes if _is_layer(node))


def log_determinant(factors: tuple[Factors, ...], damping: float) -> Float[Array, ""]:
    """log det of the whole curvature with sqrt(damping) added to the diagonal of each factor.

    For a block A (a x a) (x) G (g x g) it is g log det A + a log det G.
    """
    root = damping**0.5
    total = jnp.zeros(())
    for layer in factors:
        a, g = len(layer.inputs), len(layer.outputs)
        total += g * _log_determinant(layer.inputs + root * jnp.eye(a))
        total += a * _log_determinant(layer.outputs + root * jnp.eye(g))
    return total


def quadratic(factors: tuple[Factors, ...], params: PyTree) -> Float[Array, ""]:
    """vec(W)' (A (x) G) vec(W) = sum of W * (A W G), over all layers."""
    return jnp.stack(
        [
            jnp.sum(weights * (layer.inputs @ weights @ layer.outputs))
            for layer, weights in zip(factors, weight_matrices(params), strict=True)
        ]
    ).sum()


def nearest_sum(first: Factors, second: Factors) -> Factors:
    """The Kronecker product nearest to the sum of two, in the Frobenius norm.

    It is (a1 A1 + a2 A2) (x) (g1 G1 + g2 G2); with one factor given, the best other one is a
    linear regression, so the two are found in turn. With the inner products P of the A and Q
    of the G, a = Qg / g'Qg and then g = Pa / a'Pa. All of them are 0 or more, so the result
    is again positive semi-definite. If one of the two is zero, it is the other one.

    C. Van Loan, N. Pitsianis: Approximation with Kronecker products. 1993.
    """
    p = _inner_products(first.inputs, second.inputs)
    q = _inner_products(first.outputs, second.outputs)

    def improve(_: Int[Array, ""], found: tuple[Array, Array]) -> tuple[Array, Array]:
        g = found[1]
        a = _over(q @ g, g @ q @ g)
        return a, _over(p @ a, a @ p @ a)

    a, g = jax.lax.fori_loop(0, _ITERATIONS, improve, (jnp.ones(2), jnp.ones(2)))
    return Factors(
        a[0] * first.inputs + a[1] * second.inputs, g[0] * first.outputs + g[1] * second.outputs
    )


def _output_shapes(model: TappedModel, params: PyTree, x: Array) -> list[jax.ShapeDtypeStruct]:
    def run(params: PyTree, x: Array) -> list[Array]:
        shapes: list[Array] = []

        def tap(layer: PyTree, inputs: Array, outputs: Array) -> Array:
            shapes.append(outputs)
            return outputs

        model.apply_tapped(params, x, None, tap)
        return shapes

    shapes: list[jax.ShapeDtypeStruct] = jax.eval_shape(run, params, x)
    return shapes


def _is_layer(node: Any) -> bool:
    return isinstance(node, Linear | Block)


def _matrix(layer: Linear | Block) -> Weights:
    """A block's bias is left out: its mean subtraction cancels it, so it has no curvature."""
    if isinstance(layer, Linear):
        return jnp.concatenate([layer.weight, layer.bias[None]])
    return layer.kernel.reshape(-1, layer.kernel.shape[-1])


def _factors(
    layer: Linear | Block, inputs: Array, gradient: Array, mask: Bool[Array, " examples"]
) -> Factors:
    """Second moments: of a linear layer over examples, of a convolution over pixels as well.

    A convolution sums its T pixels, so A is the sum over pixels and G their mean: then A (x) G
    is the information if pixels are alike and their gradients uncorrelated.
    """
    real = mask.astype(inputs.dtype)
    count = jnp.maximum(jnp.sum(real), 1)
    # Real and padded examples are told apart before the product: 0 * inf is no number.
    inputs, gradient = (
        jnp.where(mask.reshape(-1, *(1,) * (values.ndim - 1)), values, 0)
        for values in (inputs, gradient)
    )
    gradient_rows = gradient.reshape(-1, gradient.shape[-1])
    rows = gradient_rows.shape[0] // mask.shape[0]
    moment = _gram(gradient_rows.T) / (rows * count)
    if isinstance(layer, Linear):
        columns = jnp.concatenate([inputs, real[:, None]], axis=1).T
    else:
        columns = patches(inputs, layer.kernel.shape[0])
    return Factors(_gram(columns) / count, moment)


@jax.custom_vjp
def _gram(columns: Float[Array, "rows columns"]) -> Float[Array, "rows rows"]:
    """C C', with one product in its derivative, (U + U') C, where JAX has U C and U' C."""
    return columns @ columns.T


_gram.defvjp(
    lambda columns: (columns @ columns.T, columns),
    lambda columns, upstream: ((upstream + upstream.T) @ columns,),
)


def _log_determinant(matrix: Float[Array, "n n"]) -> Float[Array, ""]:
    return 2 * jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(matrix))))


def _inner_products(first: Array, second: Array) -> Float[Array, "2 2"]:
    both = jnp.stack([first.ravel(), second.ravel()])
    return both @ both.T


def _over(values: Array, divisor: Float[Array, ""]) -> Array:
    """Zero where the divisor is."""
    return jnp.where(divisor > 0, values / jnp.where(divisor > 0, divisor, 1), 0)
