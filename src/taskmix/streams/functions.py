"""Families of real functions for few-shot regression.

A task is one function of a family, seen at a few points x ~ U(-5, 5). The scales are such
that predicting zero costs a mean square of the same order (2 to 8) in every family, so that
no family dominates a mean over families; the literal polynomial and the loud sinusoid are the
exceptions. With E u^2 = c^2/3 for u ~ U(-c, c), each docstring states that number.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from taskmix.names import unknown

Ranges = tuple[tuple[float, float], ...]


@dataclasses.dataclass(frozen=True)
class Family:
    """Functions that share a formula; each parameter is uniform over its own range."""

    name: str
    ranges: Ranges
    evaluate: Callable[[Float[Array, " parameters"], Float[Array, "*points"]], Array]
    end: Ranges | None = None
    """The ranges to which those of a drifting family move; None: they stay."""
    noise: float | None = None
    """Standard deviation of the noise on its targets; None: that of the stream."""

    def sample(
        self, key: Key[Array, ""], progress: Float[Array, ""] | float = 0.0
    ) -> Float[Array, " parameters"]:
        """Parameters of one function, after that part (0 to 1) of the family's drift."""
        low, high = jnp.array(self.ranges).reshape(-1, 2).T
        if self.end is not None:
            last_low, last_high = jnp.array(self.end).reshape(-1, 2).T
            low, high = low + progress * (last_low - low), high + progress * (last_high - high)
        return jax.random.uniform(key, low.shape, minval=low, maxval=high)


def polynomial(
    parameters: Float[Array, " parameters"], x: Float[Array, "*points"]
) -> Float[Array, "*points"]:
    """y = sum_p a_p (x/5)^p for p = 1, 2, 3 and a_p ~ U(-5, 5); zero costs 5.63.

    The paper names no powers. Dividing x by its range keeps the cube from dwarfing the
    other families, as the generator of MT-net (Lee and Choi, ICML 2018) does.
    """
    one, two, three = parameters
    t = x / 5
    return t * (one + t * (two + t * three))


def linear(
    parameters: Float[Array, " parameters"], x: Float[Array, "*points"]
) -> Float[Array, "*points"]:
    """y = a + b x; with a ~ U(-3, 3) and b ~ U(-1, 1) zero costs 3 + 25/9 = 5.78.

    The literal polynomial is the same formula with a, b ~ U(-5, 5), the powers (0, 1) of an
    unscaled x: the only integer powers whose loss (77.8) fits the paper's figure.
    """
    offset, slope = parameters
    return offset + slope * x


def quadratic(
    parameters: Float[Array, " parameters"], x: Float[Array, "*points"]
) -> Float[Array, "*points"]:
    """y = a + b x + c x^2; a ~ U(-2, 2), b ~ U(-0.5, 0.5), c ~ U(-0.3, 0.3).

    Zero costs 4/3 + 25/36 + 0.03 * 125 = 5.78.
    """
    offset, slope, curvature = parameters
    return offset + x * (slope + x * curvature)


def sinusoid(
    parameters: Float[Array, " parameters"], x: Float[Array, "*points"]
) -> Float[Array, "*points"]:
    """y = a sin(x - phi), a ~ U(0.1, 5), phi ~ U(0, pi); zero costs E a^2 / 2 = 4.25."""
    amplitude, phase = parameters
    return amplitude * jnp.sin(x - phase)


def sawtooth(
    parameters: Float[Array, " parameters"], x: Float[Array, "*points"]
) -> Float[Array, "*points"]:
    """y = -(2a/pi) arctan(cot(pi x / phi)), a ~ U(0.1, 5), phi ~ U(0.001, pi).

    Computed as 2a (t - floor(t)) - a with t = x/phi, which is the same function without the
    poles of the cotangent: it rises from -a to a over each period phi. Zero costs close to
    E a^2 / 3 = 2.83.
    """
    amplitude, period = parameters
    t = x / period
    return 2 * amplitude * (t - jnp.floor(t)) - amplitude


def absolute_value(
    parameters: Float[Array, " parameters"], x: Float[Array, "*points"]
) -> Float[Array, "*points"]:
    """y = a |x - c|, a ~ U(-1, 1), c ~ U(-3, 3); zero costs (25/3 + 3)/3 = 3.78."""
    slope, corner = parameters
    return slope * jnp.abs(x - corner)


def step(
    parameters: Float[Array, " parameters"], x: Float[Array, "*points"]
) -> Float[Array, "*points"]:
    """y = a left of c and b from c on; a, b ~ U(-4, 4), c ~ U(-3, 3); zero costs 16/3 = 5.33."""
    left, right, edge = parameters
    return jnp.where(x < edge, left, right)


def bump(
    parameters: Float[Array, " parameters"], x: Float[Array, "*points"]
) -> Float[Array, "*points"]:
    """y = a exp(-(x - c)^2 / 2w^2), a ~ U(-6, 6), c ~ U(-3, 3), w ~ U(1, 2).

    Were x unbounded zero would cost 12 sqrt(pi) E w / 10 = 3.19; the tails beyond 5 take
    that down to 3.17.
    """
    height, centre, width = parameters
    return height * jnp.exp(-jnp.square((x - centre) / width) / 2)


def nothing(
    parameters: Float[Array, " parameters"], x: Float[Array, "*points"]
) -> Float[Array, "*points"]:
    """y = 0, whatever x is: what there is to see of the family is its noise.

    Its standard deviation of 2 makes zero cost 4, as in other families, so that the size of the
    targets gives nothing away.
    """
    return jnp.zeros_like(x)


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("polynomial", ((-5.0, 5.0),) * 3, polynomial),
        Family("sinusoid", ((0.1, 5.0), (0.0, math.pi)), sinusoid),
        Family("sawtooth", ((0.1, 5.0), (1e-3, math.pi)), sawtooth),
        Family("absolute-value", ((-1.0, 1.0), (-3.0, 3.0)), absolute_value),
        Family("step", ((-4.0, 4.0), (-4.0, 4.0), (-3.0, 3.0)), step),
        Family("bump", ((-6.0, 6.0), (-3.0, 3.0), (1.0, 2.0)), bump),
        Family("linear", ((-3.0, 3.0), (-1.0, 1.0)), linear),
        Family("quadratic", ((-2.0, 2.0), (-0.5, 0.5), (-0.3, 0.3)), quadratic),
        Family("literal-polynomial", ((-5.0, 5.0), (-5.0, 5.0)), linear),
        # Amplitudes half as large again: zero costs 9.56.
        Family("loud-sinusoid", ((0.15, 7.5), (0.0, math.pi)), sinusoid),
        Family("noisy-sinusoid", ((0.1, 5.0), (0.0, math.pi)), sinusoid, noise=0.3),
        # A sinusoid at first; at the end one upside down, which no task was at first.
        Family(
            "drifting-sinusoid",
            ((0.1, 5.0), (0.0, math.pi)),
            sinusoid,
            end=((0.1, 5.0), (math.pi, 2 * math.pi)),
        ),
        Family("noise", (), nothing, noise=2.0),
    )
}
"""Every family by its name."""


def family(name: str) -> Family:
    """The family of that name.

    >>> family("sinusoid").ranges[0]
    (0.1, 5.0)
    """
    if name not in FAMILIES:
        raise unknown("function family", name, FAMILIES)
    return FAMILIES[name]
