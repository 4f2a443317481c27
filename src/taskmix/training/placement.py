"""Which devices compute a run, and which processes do so together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from taskmix.spread import SEEDS, TASKS


class Placement:
    """The devices of a run: seeds go to different ones as far as that divides them evenly.

    The rest of the devices share the tasks of every batch. What goes into a program and comes out
    of it is the same on all of them; one device is a run as if there were no other.

    Parameters
    ----------
    devices
        How many, of all processes together; 0 for all there are.
    seeds
        How many are trained side by side.
    """

    def __init__(self, devices: int = 1, seeds: int = 1) -> None:
        self.devices = check_devices(devices)
        self.processes = jax.process_count()
        self._mesh: Mesh | None = None
        if self.devices > 1 or self.processes > 1:
            apart = math.gcd(self.devices, seeds)
            grid = np.array(_chosen(self.devices)).reshape(apart, self.devices // apart)
            self._mesh = Mesh(grid, (SEEDS, TASKS))

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files."""
        return jax.process_index() == 0

    def compiled(
        self,
        program: Callable[..., Any],
        seeded: Sequence[bool],
        out: bool,
        options: dict[str, bool | int] | None = None,
    ) -> Any:
        """A program for these devices, compiled with some ``options``.

        ``seeded`` says which arguments have a first axis of seeds, and ``out`` whether the results
        have: of these a device takes and gives its own part.
        """
        if self._mesh is None:
            return jax.jit(program, compiler_options=options)
        whole, of_seeds = PartitionSpec(), PartitionSpec(SEEDS)
        shared = jax.shard_map(
            program,
            mesh=self._mesh,
            in_specs=tuple(of_seeds if one else whole for one in seeded),
            out_specs=of_seeds if out else whole,
            # What all devices compute alike is the same on all; JAX cannot know that.
            check_vma=False,
        )
        shardings = NamedSharding(self._mesh, whole)
        run = jax.jit(shared, out_shardings=shardings, compiler_options=options)
        return lambda *arguments: run(*self.placed(arguments))

    def placed(self, tree: Any) -> Any:
        """The same arrays on every device."""
        if self._mesh is None:
            return tree
        everywhere = NamedSharding(self._mesh, PartitionSpec())

        def place(leaf: Any) -> Any:
            if isinstance(leaf, jax.Array) and leaf.sharding == everywhere:
                return leaf
            if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                bits = place(jax.random.key_data(leaf))
                return jax.random.wrap_key_data(bits, impl=jax.random.key_impl(leaf))
            known = np.asarray(leaf)
            return jax.make_array_from_callback(known.shape, everywhere, lambda at: known[at])

        return jax.tree.map(place, tree)

    def local(self, tree: Any) -> Any:
        """The same arrays on a single device of this process."""
        if self._mesh is None:
            return tree
        return jax.tree.map(_on_one, tree)

    def agreed(self, *values: int) -> tuple[tuple[int, ...], ...]:
        """The values of every process, in the order of the processes."""
        if self.processes == 1:
            return (values,)
        found = np.asarray(multihost_utils.process_allgather(np.asarray(values, np.int64)))
        return tuple(tuple(map(int, row)) for row in found)

    def told(self, content: bytes) -> bytes:
        """What the first process has to say; the ``content`` of the others is not looked at."""
        if self.processes == 1:
            return content
        (size, *_), *_ = self.agreed(len(content))
        message = np.zeros(size, np.uint8)
        if self.first:
            message[:] = np.frombuffer(content, np.uint8)
        return np.asarray(multihost_utils.broadcast_one_to_all(message)).tobytes()


def check_devices(devices: int) -> int:
    """How many devices that means, or a ``ValueError`` if there are not so many."""
    if devices == 1 and jax.process_count() == 1:
        return 1
    there = jax.device_count()
    if devices < 0 or devices > there:
        raise ValueError(
            f"devices is {devices}; it must be 0 (all) to {there}, which is how many JAX has. On a "
            f"CPU, the environment variable JAX_NUM_CPU_DEVICES says how many that are."
        )
    found = devices or there
    if found % jax.process_count():
        raise ValueError(
            f"devices is {found}; {jax.process_count()} processes must have as many each."
        )
    return found


def _chosen(devices: int) -> list[Any]:
    """As many of each process, in the order of the processes."""
    processes = jax.process_count()
    chosen = []
    for process in range(processes):
        own = [one for one in jax.devices() if one.process_index == process]
        chosen += own[: devices // processes]
    if len(chosen) < devices:
        raise ValueError(f"devices is {devices}, but some process has fewer than its part of them.")
    return chosen


def _on_one(leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array) or len(leaf.sharding.device_set) == 1:
        return leaf
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        bits = _on_one(jax.random.key_data(leaf))
        return jax.random.wrap_key_data(bits, impl=jax.random.key_impl(leaf))
    return leaf.addressable_data(0)
