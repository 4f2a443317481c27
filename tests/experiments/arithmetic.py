"""A learner, a stream and a loop of plain arithmetic, to interrupt runs without training any.

They keep the contracts of the real ones, as far as a run folder can tell.
"""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int, Key
from rich.console import Console

from taskmix.evaluation import Evaluation
from taskmix.experiments import run
from taskmix.experiments.group import Keeping
from taskmix.learner import Info, Prediction, Told
from taskmix.likelihood import Gaussian
from taskmix.streams import Phase
from taskmix.tasks import Examples, Hints, TaskBatch
from taskmix.training import Chunk, Pause, Settings
from taskmix.training.moments import Given, joined
from taskmix.training.skips import Skips

STOPS = (3, 6, 8, 11)
"""Where chunks end: every third iteration, and at the end of the phases."""
PAUSES = (5, 10)
"""Where a run can be kept on the way."""
SEEDS = (4, 9)


@dataclasses.dataclass(frozen=True)
class Lines:
    """A stream of which only the shapes are looked at."""

    families = ("rising", "falling")
    phases = (Phase(0, 8, ("rising",)), Phase(8, 11, ("falling",)))

    def batch(self, key, iteration) -> TaskBatch:
        examples = Examples.full(jnp.zeros((2, 4, 1)), jnp.zeros((2, 4, 1)))
        return TaskBatch(examples, examples, Hints(jnp.zeros(2, dtype=int), jnp.asarray(False)))

    def test_tasks(self, key, family, tasks) -> TaskBatch:
        return self.batch(key, 0)

    def load(self, drawn: TaskBatch) -> TaskBatch:
        return drawn


class Parts(eqx.Module):
    """A state with every kind of leaf that a learner may have."""

    weights: Float[Array, "*seeds capacity 2"]
    coarse: Float[Array, "*seeds 2"]
    steps: Int[Array, "*seeds"]
    key: Key[Array, "*seeds"]


@dataclasses.dataclass(frozen=True)
class Arithmetic:
    """A learner that only says what its state looks like."""

    rate: float = 0.5
    likelihood: Gaussian = Gaussian()
    one_at_a_time: bool = False
    told: Told = Told.NOTHING

    def init(self, key, example) -> Parts:
        coarse = jnp.zeros(2, dtype=jnp.bfloat16)
        return Parts(jnp.ones((1, 2)), coarse, jnp.asarray(0), jax.random.key(0))

    def grow(self, state: Parts) -> Parts:
        weights = jnp.concatenate([state.weights, jnp.ones_like(state.weights)], axis=-2)
        return dataclasses.replace(state, weights=weights)

    def step(self, state, batch, key) -> tuple[Any, Info]:
        raise NotImplementedError

    def predict(self, state, support, query_x, hints=None, query_mask=None) -> Prediction:
        raise NotImplementedError

    def has_room(self, state, iterations):
        raise NotImplementedError

    def parameters(self, state) -> int:
        return 2


@dataclasses.dataclass(frozen=True)
class Experiment:
    noise: float = 0.0

    def stream(self) -> Lines:
        return Lines()

    def shared(self):
        raise NotImplementedError

    def training(self) -> Settings:
        return Settings()

    def facts(self) -> dict[str, Any]:
        return {"data": {"source": "here", "fingerprint": "1234"}}


def train(
    learner, stream, seeds, settings, observer, start=None, pause=None, *more, **named
) -> None:
    """Every number depends on the seed and on all numbers before it; the second chunk grows.

    The cluster that is born then is removed in iteration 6, and another takes its row in 9;
    there are alarms from 7 to 9.
    """
    rows = np.arange(len(seeds))
    state = start.state if start else first_states(seeds)
    seconds = start.seconds if start else 0.0
    if start is None:
        observer(chunk_of(0, None, state, False, 0.0))
    begin = start.iteration if start else 0
    for first, stop in zip((0, *STOPS[:-1]), STOPS, strict=True):
        if stop <= begin:
            continue
        since, grown = (start.since, start.grown) if first < begin else (None, first == 3)
        if grown and first >= begin:
            state = jax.vmap(learner.grow)(state)
        for iteration in range(max(first, begin), stop):
            weights = np.asarray(state.weights)
            weights = np.float32(0.9) * weights + np.float32(learner.rate) * np.sin(
                weights.sum(axis=(1, 2), keepdims=True) + iteration
            )
            state = Parts(
                jnp.asarray(weights),
                jnp.asarray(weights[rows, 0]).astype(jnp.bfloat16),
                state.steps + 1,
                state.key,
            )
            since = joined(since, given_of(iteration, weights, grown and iteration == first))
            seconds += 1.0
            if pause and iteration + 1 in PAUSES:
                pause(Pause(iteration + 1, since, state, grown, seconds))
        observer(chunk_of(stop, since, state, grown, seconds))


def given_of(iteration: int, weights, grown: bool) -> Given:
    seeds, capacity = weights.shape[:2]
    alive = np.arange(capacity) < (1 if iteration in (6, 7, 8) else 2)
    loss = np.square(weights).sum(axis=(1, 2))[:, None]
    leaves = (
        loss,
        np.stack([loss, 2 * loss], axis=2),
        np.full((seeds, 1, 2, capacity), 1 / capacity),
        np.tile(alive, (seeds, 1, 1)),
        np.full((seeds, 1), grown or iteration == 9),
        np.full((seeds, 1), 7 <= iteration <= 9),
        np.zeros((seeds, 1)),
    )
    info = jax.tree.unflatten(jax.tree.structure(INFO), leaves)
    skips = Skips.none((seeds, 1, 2)) if iteration == 9 else None
    return Given(info, np.full((seeds, 1, 2), int(iteration >= 8)), skips)


def first_states(seeds) -> Parts:
    return Parts(
        jnp.asarray(seeds, dtype=jnp.float32)[:, None, None] * jnp.ones((1, 1, 2)),
        jnp.zeros((len(seeds), 2), dtype=jnp.bfloat16),
        jnp.zeros(len(seeds), dtype=int),
        jax.vmap(jax.random.key)(jnp.asarray(seeds)),
    )


INFO = Info(
    jnp.asarray(0.0),
    jnp.zeros(1),
    jnp.zeros((1, 1)),
    jnp.ones(1, dtype=bool),
    jnp.asarray(False),
    jnp.asarray(False),
    jnp.zeros(()),
)


def chunk_of(stop: int, since: Given | None, state: Parts, grown: bool, seconds: float) -> Chunk:
    seeds, capacity = state.weights.shape[:2]
    error = np.abs(np.asarray(state.weights))[:, :, :1].mean(axis=1, keepdims=True)
    error = np.broadcast_to(error, (seeds, 2, 3))
    shares = np.full((seeds, 2, 3, capacity), 1 / capacity)
    components = np.broadcast_to(error[..., None], shares.shape)
    unknown = np.full_like(error, np.nan)
    leaves = (error, components, shares, unknown, np.zeros_like(error), unknown)
    evaluation = Evaluation(*map(jnp.asarray, leaves))
    info, families, skips = since or (None, None, None)
    return Chunk(stop, info, families, evaluation, state, grown, seconds, skips)


OURS = Arithmetic()
OFTEN = Keeping(checkpoint_minutes=0.0)


def run_all(out: Path, keeping: Keeping = OFTEN, request=None, learner=OURS, seeds=SEEDS) -> str:
    """Train both seeds into ``out``; what was said meanwhile."""
    screen = io.StringIO()
    run.run_method(
        Experiment(),
        {"experiment": "lines", "method": "arithmetic"},
        learner,
        seeds,
        lambda seed: out / f"seed-{seed}",
        Settings(),
        Console(file=screen, width=400),
        keeping,
        request,
    )
    return screen.getvalue()


def results(out: Path) -> dict[str, bytes]:
    """Every file that must be the same however often a run was interrupted."""
    paths = [path for path in sorted(out.rglob("*")) if path.is_file()]
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in paths
        if path.name != "journal.jsonl"
    }


@pytest.fixture
def by_arithmetic(monkeypatch):
    monkeypatch.setattr(run, "train", train)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "train", train)
        run_all(out)
    return results(out)
