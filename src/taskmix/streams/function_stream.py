"""A stream of few-shot regression tasks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from taskmix.streams.functions import family
from taskmix.streams.schedule import Schedule, consecutive
from taskmix.streams.stream import Phase
from taskmix.tasks import Examples, Hints, TaskBatch

# Folded into the caller's key first, so that no iteration can give a test task.
_TRAINING, _TESTING = 0, 1


@dataclasses.dataclass(frozen=True)
class FunctionStream:
    """Tasks that are functions, y = f(x) + noise * N(0, 1) with x ~ U(-x_limit, x_limit).

    A drifting family moves from its first appearance on, and its test tasks are of the end of
    the drift: how a learner does on the way is what the prequential error tells.

    >>> stream = FunctionStream(consecutive(("sinusoid", "step"), (40, 30)))
    >>> stream.batch(jax.random.key(0), 12).support.x.shape
    (10, 5, 1)
    """

    schedule: Schedule
    """Which families are active when."""
    tasks: int = 10
    """Per batch."""
    support: int = 5
    """Points of a task to adapt on."""
    query: int = 10
    """Points of a task to be judged on."""
    noise: float = 0.0
    """Of the targets of every family that has no noise of its own."""
    x_limit: float = 5.0
    """Inputs lie between minus this and this."""
    drift: int = 2000
    """Iterations that a drifting family takes from its first ranges to its last."""

    def __post_init__(self) -> None:
        for name in ("tasks", "support", "query", "drift"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be 1 or more.")
        if not 0 <= self.noise < float("inf"):
            raise ValueError(f"noise is {self.noise}; it must be finite and 0 or more.")
        if not 0 < self.x_limit < float("inf"):
            raise ValueError(f"x_limit is {self.x_limit}; it must be finite and positive.")
        for name in self.families:
            family(name)

    @property
    def families(self) -> tuple[str, ...]:
        return self.schedule.families

    @property
    def phases(self) -> tuple[Phase, ...]:
        return self.schedule.phases

    def batch(self, key: Key[Array, ""], iteration: Int[Array, ""] | int) -> TaskBatch:
        key = jax.random.fold_in(jax.random.fold_in(key, _TRAINING), iteration)
        family_key, task_key = jax.random.split(key)
        drawn = self.schedule.draw(family_key, iteration, self.tasks)
        elapsed = iteration - jnp.asarray(self.schedule.appearances)
        progress = jnp.clip(elapsed / self.drift, 0, 1)
        return self._tasks(task_key, drawn, self.schedule.boundary(iteration), progress)

    def test_tasks(self, key: Key[Array, ""], family: int, tasks: int) -> TaskBatch:
        if not 0 <= family < len(self.families):
            raise ValueError(
                f"family is {family}; it must be an index into {', '.join(self.families)}."
            )
        key = jax.random.fold_in(jax.random.fold_in(key, _TESTING), family)
        progress = jnp.ones(len(self.families))
        return self._tasks(key, jnp.full(tasks, family), jnp.asarray(False), progress)

    def load(self, drawn: TaskBatch) -> TaskBatch:
        return drawn

    def _tasks(
        self,
        key: Key[Array, ""],
        drawn: Int[Array, " tasks"],
        boundary: Bool[Array, ""],
        progress: Float[Array, " families"],
    ) -> TaskBatch:
        x_key, function_key, noise_key = jax.random.split(key, 3)
        tasks = drawn.shape[0]
        shape = (tasks, self.support + self.query, 1)
        x = jax.random.uniform(x_key, shape, minval=-self.x_limit, maxval=self.x_limit)
        function_keys = jax.random.split(function_key, tasks)
        y = self._evaluate(drawn, function_keys, progress, x)
        noise = self._noise()
        if noise.any():
            scale = jnp.asarray(noise)[drawn][:, None, None]
            y += scale * jax.random.normal(noise_key, shape)
        return TaskBatch(
            support=Examples.full(x[:, : self.support], y[:, : self.support]),
            query=Examples.full(x[:, self.support :], y[:, self.support :]),
            hints=Hints(drawn, boundary),
        )

    def _evaluate(
        self,
        chosen: Int[Array, " tasks"],
        keys: Key[Array, " tasks"],
        progress: Float[Array, " families"],
        x: Float[Array, "tasks points 1"],
    ) -> Float[Array, "tasks points 1"]:
        # Under a vmap a branch costs as much as all branches do; a function is cheap.
        every = [
            jax.vmap(kind.evaluate)(jax.vmap(kind.sample, (0, None))(keys, progress[f]), x)
            for f, kind in enumerate(map(family, self.families))
        ]
        return jax.lax.select_n(jnp.broadcast_to(chosen[:, None, None], x.shape), *every)

    def _noise(self) -> Float[np.ndarray, " families"]:
        """Standard deviation of the noise on each family's targets."""
        own = [family(name).noise for name in self.families]
        return np.array([self.noise if one is None else one for one in own], np.float32)


def regression(
    families: Sequence[str] = ("polynomial", "sinusoid", "sawtooth"),
    lengths: Sequence[int] = (4000, 3000, 2500),
    *,
    tasks: int = 10,
    support: int = 5,
    query: int = 10,
    noise: float = 0.0,
) -> FunctionStream:
    """Few-shot regression, one family of functions after the other; by default the paper's.

    Parameters
    ----------
    families
        Names of ``taskmix.streams.FAMILIES``, in the order in which they appear.
    lengths
        Iterations of each family's phase.
    tasks, support, query
        Tasks of a batch, and examples of each task to adapt on and to be judged on.
    noise
        Standard deviation of the noise on every target.

    Returns
    -------
    FunctionStream
        Other schedules than one after the other are ``FunctionStream(schedule)``.

    Examples
    --------
    >>> regression(("linear", "step"), (40, 30)).phases[1].start
    40
    """
    schedule = consecutive(tuple(families), tuple(lengths))
    return FunctionStream(schedule, tasks, support, query, noise)


def paper_stream() -> FunctionStream:
    """The continual regression of the paper: polynomial, then sinusoid, then sawtooth."""
    return regression()
