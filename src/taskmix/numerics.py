"""Canaries: what compiled programs compute on this machine is what was asked for.

jaxlib 0.10.2 and 0.11.0 compute some compiled reductions wrongly on a CPU, silently and by less
than a person would notice (jax issue 39103). So the programs here are compiled and compared with
NumPy's float64, and whoever trains is warned if one is wrong.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from taskmix.compiled import versioned_folder
from taskmix.files import read_bytes, write_json

TOLERANCE = 1e-4
"""Largest relative error of float32; the fault that this is about has 1e-2."""


@dataclasses.dataclass(frozen=True)
class Canary:
    """A small program whose result is known."""

    name: str
    compiled: Callable[[], np.ndarray]
    known: Callable[[], np.ndarray]

    def error(self) -> float:
        """The largest error, relative to the largest number of the known result."""
        known = self.known()
        wrong = np.abs(np.asarray(self.compiled(), dtype=np.float64) - known)
        largest = float(np.max(wrong) / np.max(np.abs(known)))
        return largest if np.isfinite(largest) else float("inf")


def _rows() -> np.ndarray:
    """More rows than fit in the tiles of a faulty library, which end at 32,768."""
    first = np.arange(40_001, dtype=np.float32) % 4096
    return np.stack([first, np.zeros_like(first), np.zeros_like(first)], axis=1)


def _product_then_sum() -> np.ndarray:
    def squared(row: jax.Array) -> jax.Array:
        return jnp.sum(jnp.square(jnp.eye(3) @ row))

    return np.asarray(jax.jit(jax.vmap(squared))(_rows()))


def _matrices() -> np.ndarray:
    random = np.random.default_rng(0)
    factor = random.normal(size=(40, 12, 12))
    return (factor @ factor.swapaxes(1, 2) + 3 * np.eye(12)).astype(np.float32)


def _factors() -> np.ndarray:
    return np.asarray(jax.jit(jnp.linalg.cholesky)(_matrices()))


def _layers() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    x, first, second = (random.normal(size=shape) for shape in ((1700, 10), (10, 40), (40, 1)))
    return x.astype(np.float32), first.astype(np.float32), second.astype(np.float32)


def _network_gradient() -> np.ndarray:
    x, first, second = _layers()

    def loss(first: jax.Array) -> jax.Array:
        return jnp.mean(jnp.square(jax.nn.tanh(x @ first) @ second))

    return np.asarray(jax.jit(jax.grad(loss))(first))


def _known_gradient() -> np.ndarray:
    x, first, second = (part.astype(np.float64) for part in _layers())
    hidden = np.tanh(x @ first)
    outward = 2 * (hidden @ second) / len(x)
    return x.T @ ((outward @ second.T) * (1 - hidden**2))


CANARIES = (
    Canary(
        "a reduction after a product",
        _product_then_sum,
        lambda: np.sum(np.square(_rows().astype(np.float64)), axis=1),
    ),
    Canary(
        "factors of a batch of matrices",
        _factors,
        lambda: np.linalg.cholesky(_matrices().astype(np.float64)),
    ),
    Canary("the gradient of a network", _network_gradient, _known_gradient),
)


def canary_errors() -> dict[str, float]:
    """The relative error of every canary, computed now; more than ``TOLERANCE`` is a fault.

    Examples
    --------
    >>> all(error < TOLERANCE for error in canary_errors().values())
    True
    """
    return {canary.name: canary.error() for canary in CANARIES}


def faults(errors: Mapping[str, float]) -> list[str]:
    """A sentence for each canary that failed."""
    return [
        f"this installation of JAX {jax.__version__} computes {name} wrongly (by {error:.1g}): "
        f"do not trust results; install another version of jax and jaxlib, and see taskmix doctor"
        for name, error in errors.items()
        if not error <= TOLERANCE
    ]


def known_faults() -> list[str]:
    """``faults`` of this machine; computed once per version, processor and XLA_FLAGS.

    It takes half a second the first time, and no time afterwards.
    """
    file = _kept_in()
    if file is not None:
        with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
            kept = json.loads(read_bytes(file))
            if set(kept) == {canary.name for canary in CANARIES}:
                return faults({name: float(error) for name, error in kept.items()})
    errors = canary_errors()
    if file is not None and all(np.isfinite(list(errors.values()))):
        with contextlib.suppress(OSError, ValueError):
            write_json(file, errors)
    return faults(errors)


def _kept_in() -> Path | None:
    folder = versioned_folder()
    told = f"{jax.default_backend()} {os.environ.get('XLA_FLAGS', '')}"
    digest = hashlib.sha256(told.encode()).hexdigest()[:12]
    return None if folder is None else folder / f"canaries-{digest}.json"
