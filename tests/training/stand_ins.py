"""A small stream, learners that do as a test needs, and training with them."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from taskmix.adaptation import Adaptation
from taskmix.learner import Info, Prediction, Told
from taskmix.likelihood import Gaussian
from taskmix.models import MLP
from taskmix.streams import Phase
from taskmix.tasks import Examples, Hints, TaskBatch
from taskmix.training import Chunk, Settings, Start, train


@dataclasses.dataclass(frozen=True)
class Lines:
    """Two lines a batch, rising and then falling: a stream that compiles fast."""

    turn: int = 13
    stop: int = 21
    broken: tuple[int, int] = (-1, 0)
    """Iteration and task of a target that is not a number."""
    families = ("rising", "falling")

    @property
    def phases(self) -> tuple[Phase, ...]:
        return Phase(0, self.turn, ("rising",)), Phase(self.turn, self.stop, ("falling",))

    def batch(self, key, iteration) -> TaskBatch:
        falling = jnp.asarray(iteration) >= self.turn
        batch = _lines(jax.random.fold_in(key, iteration), jnp.full(2, falling, dtype=int))
        at, task = self.broken
        y = batch.query.y.at[task].add(jnp.where(iteration == at, jnp.nan, 0.0))
        # The first input tells the iteration, so that a learner can be made to fail there.
        x = batch.query.x.at[0, 0, 0].set(iteration)
        return dataclasses.replace(batch, query=Examples(x, y, batch.query.mask))

    def test_tasks(self, key, family, tasks) -> TaskBatch:
        return _lines(key, jnp.full(tasks, family))

    def load(self, drawn: TaskBatch) -> TaskBatch:
        return drawn


def _lines(key, family) -> TaskBatch:
    x = jax.random.normal(key, (len(family), 4, 1))
    examples = Examples.full(x, x * jnp.where(family == 0, 1.0, -1.0)[:, None, None])
    return TaskBatch(examples, examples, Hints(family, jnp.asarray(False)))


STREAM = Lines()
SETTINGS = Settings(evaluate_every=5, test_tasks=3)
PARTS = {"model": MLP(hidden=(4,)), "adaptation": Adaptation(steps=1)}


def trained(learner, seeds, settings=SETTINGS, stream=STREAM) -> tuple[object, list[Chunk]]:
    seen: list[Chunk] = []
    state = train(learner, stream, seeds, settings, seen.append)
    return state, seen


class Tally(eqx.Module):
    """What the stand-in has learned: how many batches, and idle capacity."""

    done: Int[Array, ""]
    lot: Float[Array, ""]
    room: Float[Array, " room"]


@dataclasses.dataclass(frozen=True)
class StandIn:
    """A learner that only counts, so that the loop alone is under test.

    It opens a cluster with every eighth batch that it learns from.
    """

    told: Told = Told.NOTHING
    breaks_at: int = -1
    """Iteration at which the loss of the seeds with a high lot is not a number."""
    broken_batches: tuple[int, ...] = ()
    """Iterations whose first task spoils the state, told by the task itself."""
    broken_pairs: tuple[int, ...] = ()
    """Iterations whose tasks spoil it together, but none of them alone."""
    room: int = 100
    likelihood: Gaussian = Gaussian()
    one_at_a_time: bool = False
    hints: list = dataclasses.field(default_factory=list)
    """What each trace of the step was given as hints."""

    def init(self, key, example):
        return Tally(jnp.asarray(0), jax.random.uniform(key), jnp.zeros(self.room))

    def step(self, state, batch, key):
        self.hints.append(batch.hints)
        broken = (state.done == self.breaks_at) & (state.lot > 0.5)
        broken |= jnp.any(~jnp.isfinite(batch.query.y))
        tasks = batch.query.x.shape[0]
        at_fault = self.broken_batches + self.broken_pairs * (tasks == 2)
        spoilt = jnp.isin(batch.query.x[0, 0, 0], jnp.asarray(at_fault, float))
        info = Info(
            loss=jnp.where(broken, jnp.nan, 1.0),
            error=jnp.ones(tasks),
            responsibilities=jnp.ones((tasks, self.room)) / self.room,
            alive=jnp.arange(self.room) < 1 + (state.done + 1) // 8,
            spawned=state.done % 8 == 7,
            alarm=jnp.asarray(False),
            suspicion=jnp.asarray(0.0),
        )
        lot = jnp.where(spoilt, jnp.nan, state.lot)
        return Tally(state.done + 1, lot, state.room), info

    def predict(self, state, support, query_x, hints=None, query_mask=None):
        zero = jnp.zeros_like(query_x)
        return Prediction(zero, zero[None], jnp.ones(1))

    def has_room(self, state, iterations):
        return state.done + iterations <= state.room.shape[0]

    def grow(self, state):
        return Tally(state.done, state.lot, jnp.zeros(2 * state.room.shape[0]))

    def parameters(self, state):
        return 1


def resumed(learner, seeds, chunk: Chunk) -> tuple[object, list[Chunk]]:
    """What training comes to that goes on from a chunk, by way of the host's memory."""
    state = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), chunk.state)
    alive = chunk.info.alive[:, -1]
    start = Start(chunk.iteration, state, chunk.seconds, (0,) * len(seeds), alive=alive)
    seen: list[Chunk] = []
    return train(learner, STREAM, seeds, SETTINGS, seen.append, start), seen


def assert_same(one: Chunk, other: Chunk) -> None:
    assert (one.iteration, one.grown) == (other.iteration, other.grown)
    jax.tree.map(
        np.testing.assert_array_equal,
        (one.info, one.families, one.evaluation, one.state, one.skips),
        (other.info, other.families, other.evaluation, other.state, other.skips),
    )
