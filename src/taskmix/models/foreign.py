"""Networks of other libraries: any Equinox module, any Flax module, any (init, apply) pair."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Key, PyTree


@dataclasses.dataclass(frozen=True)
class Pair:
    """A network that is two functions.

    Parameters
    ----------
    begin
        From a key to parameters, a pytree of arrays.
    run
        From parameters and the inputs of one task, with an axis of examples, to outputs.
    one_at_a_time
        Whether tasks are faster one after the other, as they are with convolutions on a CPU.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> def begin(key):
    ...     return {"slope": jax.random.normal(key, (1, 1))}
    >>> def run(params, x):
    ...     return x @ params["slope"]
    >>> network = Pair(begin, run)
    >>> network.apply(network.init(jax.random.key(0)), jnp.ones((5, 1))).shape
    (5, 1)
    """

    begin: Callable[[Any], PyTree]
    run: Callable[[PyTree, Array], Array]
    one_at_a_time: bool = False

    def init(self, key: Key[Array, ""]) -> PyTree:
        return self.begin(key)

    def apply(
        self, params: PyTree, x: Array, mask: Bool[Array, " examples"] | None = None
    ) -> Array:
        return self.run(params, x)

    def adaptable(self, params: PyTree) -> PyTree:
        return jax.tree.map(lambda _: True, params)


@dataclasses.dataclass(frozen=True)
class EquinoxModel:
    """An Equinox module, which sees one example at a time, as Equinox has it.

    Parameters
    ----------
    build
        From a key to the module. Its floating arrays are learned; what else it holds stays.
    one_at_a_time
        Whether tasks are faster one after the other, as they are with convolutions on a CPU.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> def build(key):
    ...     return eqx.nn.MLP(2, 1, width_size=8, depth=1, key=key)
    >>> network = EquinoxModel(build)
    >>> network.apply(network.init(jax.random.key(0)), jnp.ones((5, 2))).shape
    (5, 1)
    """

    build: Callable[[Any], Any]
    one_at_a_time: bool = False

    def init(self, key: Key[Array, ""]) -> PyTree:
        return eqx.filter(self.build(key), eqx.is_inexact_array)

    def apply(
        self, params: PyTree, x: Array, mask: Bool[Array, " examples"] | None = None
    ) -> Array:
        # What is not learned does not depend on the key, or it would be.
        rest = eqx.filter(self.build(jax.random.key(0)), eqx.is_inexact_array, inverse=True)
        outputs: Array = jax.vmap(eqx.combine(params, rest))(x)
        return outputs

    def adaptable(self, params: PyTree) -> PyTree:
        return jax.tree.map(lambda _: True, params)


@dataclasses.dataclass(frozen=True)
class FlaxModel:
    """A module of Flax's ``linen``: anything with ``init(key, x)`` and ``apply(params, x)``.

    Parameters
    ----------
    module
        The module, whose only variables are parameters: running statistics have no place in
        the parameters of a task.
    shape
        Of one input.
    one_at_a_time
        Whether tasks are faster one after the other, as they are with convolutions on a CPU.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> class Scale:
    ...     def init(self, key, x):
    ...         return {"params": {"scale": jax.random.normal(key, x.shape[-1:])}}
    ...     def apply(self, variables, x):
    ...         return x * variables["params"]["scale"]
    >>> network = FlaxModel(Scale(), (3,))
    >>> network.apply(network.init(jax.random.key(0)), jnp.ones((5, 3))).shape
    (5, 3)
    """

    module: Any
    shape: tuple[int, ...]
    one_at_a_time: bool = False

    def init(self, key: Key[Array, ""]) -> PyTree:
        variables = self.module.init(key, jax.numpy.zeros((1, *self.shape)))
        others = sorted(set(variables) - {"params"})
        if others:
            raise ValueError(
                f"{type(self.module).__name__} has variables {', '.join(others)} beside its "
                f"parameters; use layers without running statistics."
            )
        return variables["params"]

    def apply(
        self, params: PyTree, x: Array, mask: Bool[Array, " examples"] | None = None
    ) -> Array:
        outputs: Array = self.module.apply({"params": params}, x)
        return outputs

    def adaptable(self, params: PyTree) -> PyTree:
        return jax.tree.map(lambda _: True, params)
