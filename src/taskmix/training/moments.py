"""What is known of a run at some moment: its settings, what happened since, where to go on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Key, Shaped

from taskmix.evaluation import Evaluation
from taskmix.learner import Info, State
from taskmix.training.skips import Skips

Alive = Shaped[Array | np.ndarray, "*seeds clusters"]
"""Which clusters there are, on the host."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a run is watched; what it learns from follows from the stream.

    Examples
    --------
    >>> Settings(evaluate_every=100).test_tasks
    200
    """

    evaluate_every: int = 250
    """Iterations between two evaluations; the end of a phase is one in any case."""
    test_tasks: int = 200
    """Fixed test tasks of each family."""
    skips_in_a_row: int = 10
    """Batches in a row with tasks that had to be left out, as not finite, that end the run."""

    def __post_init__(self) -> None:
        for name in ("evaluate_every", "test_tasks", "skips_in_a_row"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1.")


class Given(NamedTuple):
    """What some iterations gave, with axes (seeds, iterations, ...)."""

    info: Info
    families: Shaped[Array | np.ndarray, "*seeds_iterations tasks"]
    skips: Skips | None


@dataclasses.dataclass(frozen=True)
class Chunk:
    """What happened since the last evaluation; arrays are numpy, their first axis the seeds."""

    iteration: int
    """Iterations done so far."""
    info: Info | None
    """Axes (seeds, iterations, ...); None before the first iteration."""
    families: Shaped[np.ndarray, "seeds iterations tasks"] | None
    """The true family of every task of the stream, for measures only."""
    evaluation: Evaluation
    state: State
    """The learner's, on the device."""
    grown: bool
    """Whether the learner had to be given more capacity before this chunk."""
    seconds: float
    """Since the start, for all seeds together; time between interruptions does not count."""
    skips: Skips | None = None
    """None where every batch could be learned from, as it should be."""
    test: dict[str, np.ndarray] | None = None
    """The first test tasks of every family, by the names of their parts, as streams draw them."""


@dataclasses.dataclass(frozen=True)
class Pause:
    """A moment between two evaluations, at which a run can be kept and stopped."""

    iteration: int
    """Iterations done so far."""
    since: Given
    """What they gave since the last evaluation, on the host."""
    state: State
    grown: bool
    """Whether the learner had to be given more capacity after the last evaluation."""
    seconds: float


@dataclasses.dataclass(frozen=True)
class Start:
    """Where to go on: what a run had come to at the end of a chunk, or at a pause."""

    iteration: int
    state: State
    """Stacked over the seeds, as ``Chunk.state``."""
    seconds: float
    skipped: tuple[int, ...]
    """How many batches of each seed, just before the last evaluation and in a row, had tasks
    left out."""
    since: Given | None = None
    """Of a pause; None at the end of a chunk."""
    grown: bool = False
    """Of a pause."""
    alive: Alive | None = None
    """Which clusters there were at the end of a chunk; a pause tells it itself."""


class RunKeys(NamedTuple):
    """Independent sources of randomness of one run."""

    init: Key[Array, "*seeds"]
    stream: Key[Array, "*seeds"]
    step: Key[Array, "*seeds"]
    test: Key[Array, "*seeds"]


def check_seeds(seeds: Sequence[int]) -> None:
    """Raise a ``ValueError`` unless every seed can be one, and occurs once."""
    if not seeds or len(set(seeds)) != len(seeds):
        raise ValueError(f"seeds are {list(seeds)}; give at least one, and each once.")
    for seed in seeds:
        if not 0 <= seed < 2**32:
            raise ValueError(f"seed is {seed}; it must lie between 0 and 2^32 - 1.")


def run_keys(seed: int) -> RunKeys:
    """Every key of a run, from its seed alone."""
    key = jax.random.key(seed)
    return RunKeys(*(jax.random.fold_in(key, purpose) for purpose in range(4)))


def joined(before: Given | None, after: Given) -> Given:
    """What two stretches gave, one after the other."""
    if before is None:
        return after
    if before.skips or after.skips:
        before, after = (
            part._replace(skips=part.skips or Skips.none(part.info.error.shape))
            for part in (before, after)
        )
    return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), before, after)
