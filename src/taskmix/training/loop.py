"""The training loop: many seeds side by side, many iterations per dispatch."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, Shaped

from taskmix.evaluation import Evaluation, evaluate
from taskmix.learner import Info, Learner, State, Told
from taskmix.models import Model, for_each
from taskmix.streams import Phase, Stream
from taskmix.tasks import TaskBatch
from taskmix.training.skips import Skips, check_skips, healthy, if_learned, suspects


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a run is watched; what it learns from follows from the stream."""

    evaluate_every: int = 250
    """Iterations between two evaluations; the end of a phase is one in any case."""
    test_tasks: int = 200
    """Fixed test tasks of each family."""
    skips_in_a_row: int = 10
    """Batches without finite numbers, one after the other, that end the run."""

    def __post_init__(self) -> None:
        for name in ("evaluate_every", "test_tasks", "skips_in_a_row"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1.")


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


@dataclasses.dataclass(frozen=True)
class Start:
    """Where to go on: what a run had come to at the end of a chunk."""

    iteration: int
    state: State
    """Stacked over the seeds, as ``Chunk.state``."""
    seconds: float
    skipped: tuple[int, ...]
    """How many batches of each seed were skipped just before, one after the other."""


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


def train(
    learner: Learner,
    stream: Stream,
    seeds: Sequence[int],
    settings: Settings,
    observer: Callable[[Chunk], None],
    start: Start | None = None,
) -> State:
    """Train ``learner`` on ``stream`` once per seed and return the final states, stacked.

    ``observer`` is called before the first iteration and after every chunk. A run depends
    on its own seed only, up to rounding: the seeds share compiled code, nothing else.
    From a ``start`` it goes on as if it had never stopped, bit for bit.
    """
    check_seeds(seeds)
    started = time.perf_counter() - (start.seconds if start else 0.0)
    keys = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(run_keys, seeds))
    # Data of a stream are an argument: as part of the program they would be compiled into it.
    data, recipe = eqx.partition(stream, eqx.is_array)
    stretches = list(chunks(stream.phases, settings.evaluate_every))
    longest = max(stop - first for first, stop in stretches)
    if start and start.iteration not in {stop for _, stop in stretches}:
        raise ValueError(f"Iteration {start.iteration} is no end of a chunk; start from one.")

    @jax.jit
    def begin(data: Any, keys: RunKeys) -> tuple[State, TaskBatch]:
        one = partial(_begin, learner, eqx.combine(data, recipe), settings)
        return every_seed(learner, one)(keys)

    @partial(jax.jit, static_argnames="guarded")
    def advance(
        data: Any, state: State, keys: RunKeys, first: Array, stop: Array, guarded: bool
    ) -> tuple[State, Given]:
        stream = eqx.combine(data, recipe)
        return _advance(learner, stream, longest, state, keys, first, stop, guarded)

    @jax.jit
    def judge(data: Any, state: State, test: TaskBatch) -> Evaluation:
        one = partial(evaluate, learner, load=eqx.combine(data, recipe).load)
        return every_seed(learner, one)(state, test)

    state, test = begin(data, keys)
    has_room = jax.jit(
        lambda length, state: jnp.all(jax.vmap(lambda one: learner.has_room(one, length))(state)),
        static_argnums=0,
    )
    grow = jax.jit(jax.vmap(learner.grow))

    def report(iteration: int, given: Given | None, grown: bool) -> None:
        evaluation = jax.tree.map(np.asarray, judge(data, state, test))
        seconds = time.perf_counter() - started
        info, families, skips = given or (None, None, None)
        assert not isinstance(families, jax.Array), "reported on the host"
        observer(Chunk(iteration, info, families, evaluation, state, grown, seconds, skips))

    if start:
        state = start.state
        stretches = [stretch for stretch in stretches if stretch[1] > start.iteration]
    else:
        report(0, None, False)
    skipped = start.skipped if start else (0,) * len(seeds)
    for first, stop in stretches:
        grown = False
        while not has_room(stop - first, state):
            state, grown = grow(state), True
        bounds = jnp.asarray(first), jnp.asarray(stop)
        after, given = advance(data, state, keys, *bounds, guarded=False)
        if not healthy(state, after, given.info.loss):
            # Only now, so that guarding costs a healthy run nothing and changes no bit of it.
            after, given = advance(data, state, keys, *bounds, guarded=True)
        state, given = after, _first(stop - first, given)
        report(stop, given, grown)
        skipped = check_skips(given.skips, skipped, settings.skips_in_a_row, seeds, stop)
    return state


def chunks(phases: Sequence[Phase], evaluate_every: int) -> Iterator[tuple[int, int]]:
    """Start and stop of every stretch without an evaluation.

    >>> list(chunks([Phase(0, 250, ("a",)), Phase(250, 400, ("b",))], 100))
    [(0, 100), (100, 200), (200, 250), (250, 300), (300, 400)]
    """
    stops = {phase.stop for phase in phases}
    stops |= set(range(evaluate_every, phases[-1].stop, evaluate_every))
    start = 0
    for stop in sorted(stops):
        yield start, stop
        start = stop


def every_seed(learner: Learner, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` over the seeds, which are the first axis of its arguments."""
    model: Model = learner.model  # type: ignore[attr-defined]
    return for_each(model, function)


def _begin(
    learner: Learner, stream: Stream, settings: Settings, keys: RunKeys
) -> tuple[State, TaskBatch]:
    """The first state of one seed, and its test tasks with axes (families, tasks)."""
    state = learner.init(keys.init, _visible(learner, stream.batch(keys.stream, 0)))
    tests = [
        stream.test_tasks(keys.test, family, settings.test_tasks)
        for family in range(len(stream.families))
    ]
    return state, jax.tree.map(lambda *leaves: jnp.stack(leaves), *tests)


class Given(NamedTuple):
    """What some iterations gave, with axes (seeds, iterations, ...)."""

    info: Info
    families: Shaped[Array | np.ndarray, "*seeds_iterations tasks"]
    skips: Skips | None


def _advance(
    learner: Learner,
    stream: Stream,
    longest: int,
    states: State,
    keys: RunKeys,
    start: Int[Array, ""],
    stop: Int[Array, ""],
    guarded: bool,
) -> tuple[State, Given]:
    """Iterations ``start`` to ``stop`` of every seed, and what each of them gave.

    How many there are is a value and not a shape, so that a chunk cut short by the end of
    a phase does not compile anew. What they gave has room for the ``longest`` chunk.
    If ``guarded``, a batch that would leave numbers which are not finite is skipped.
    """

    def iterate(iteration: Array, key: RunKeys, state: State) -> tuple[State, Given]:
        batch = stream.batch(key.stream, iteration)
        # A key per iteration rather than a chain of them: chunks may be cut anywhere.
        step_key = jax.random.fold_in(key.step, iteration)
        after, info = learner.step(state, _visible(learner, batch), step_key)
        assert batch.hints is not None, "a stream gives hints with every batch"
        if not guarded:
            return after, Given(info, batch.hints.family, None)
        learned = healthy(state, after, info.loss)
        state = jax.tree.map(partial(jnp.where, learned), after, state)
        skips = Skips(~learned, suspects(batch, info))
        return state, Given(if_learned(info, learned), batch.hints.family, skips)

    def iterate_all(states: State, iteration: Array) -> tuple[State, Given]:
        one = partial(iterate, iteration)
        return every_seed(learner, one)(keys, states)

    _, given = jax.eval_shape(iterate_all, states, start)
    room = jax.tree.map(
        lambda leaf: jnp.zeros((leaf.shape[0], longest, *leaf.shape[1:]), leaf.dtype), given
    )

    def advance_one(iteration: Array, carry: tuple[State, Given]) -> tuple[State, Given]:
        states, filled = carry
        states, given = iterate_all(states, iteration)
        return states, jax.tree.map(
            lambda whole, part: whole.at[:, iteration - start].set(part), filled, given
        )

    return jax.lax.fori_loop(start, stop, advance_one, (states, room))


def _first(iterations: int, given: Given) -> Given:
    """What the first iterations of a chunk gave, on the host."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:, :iterations], given)


def first_state(learner: Learner, stream: Stream) -> State:
    """Shapes and types of one seed's state, before anything has grown."""
    keys = run_keys(0)
    return jax.eval_shape(
        lambda: learner.init(keys.init, _visible(learner, stream.batch(keys.stream, 0)))
    )


def _visible(learner: Learner, batch: TaskBatch) -> TaskBatch:
    return batch.without_hints() if learner.told is Told.NOTHING else batch
