"""The training loop: many seeds side by side, many iterations per dispatch."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, Shaped

from taskmix.evaluation import Evaluation, evaluate
from taskmix.learner import Growing, Info, Learner, State, visible
from taskmix.streams import Phase, Stream
from taskmix.tasks import TaskBatch
from taskmix.training.skips import Skips, check_skips, healthy, learned_in_part

Alive = Shaped[Array | np.ndarray, "*seeds clusters"]
"""Which clusters there are, on the host."""

BETWEEN_PAUSES = 5.0
"""Seconds, roughly."""


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


class Given(NamedTuple):
    """What some iterations gave, with axes (seeds, iterations, ...)."""

    info: Info
    families: Shaped[Array | np.ndarray, "*seeds_iterations tasks"]
    skips: Skips | None


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


def train(
    learner: Learner,
    stream: Stream,
    seeds: Sequence[int],
    settings: Settings,
    observer: Callable[[Chunk], None],
    start: Start | None = None,
    pause: Callable[[Pause], None] | None = None,
) -> State:
    """Train ``learner`` on ``stream`` once per seed and return the final states, stacked.

    ``observer`` is called before the first iteration and after every chunk, ``pause`` every
    few seconds in between. A run depends on its own seed only, up to rounding: the seeds share
    compiled code, nothing else. From a ``start`` it goes on as if it had never stopped, and
    pauses change nothing either, bit for bit.
    """
    check_seeds(seeds)
    started = time.perf_counter() - (start.seconds if start else 0.0)
    stretches = list(chunks(stream.phases, settings.evaluate_every))
    longest = max(stop - first for first, stop in stretches)
    if start:
        _check_start(start, stretches)
    programs = Programs(learner, stream, seeds, settings.test_tasks, longest)
    state, test = programs.begin()

    def report(iteration: int, given: Given | None, grown: bool) -> None:
        evaluation = programs.evaluate(state, test)
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
    alive = start.alive if start else None
    pace = Pace()
    for first, stop in stretches:
        if start and start.since and first < start.iteration:
            done, since, grown = start.iteration, start.since, start.grown
            alive = since.info.alive[:, -1]
        else:
            done, since = first, None
            state, grown = programs.with_room(state, stop - first)
        while done < stop:
            until = min(done + pace.iterations, stop) if pause else stop
            with pace.timed(until - done):
                state, given = programs.learn(state, alive, done, until)
            done, since, alive = until, joined(since, given), given.info.alive[:, -1]
            if pause and done < stop:
                pause(Pause(done, since, state, grown, time.perf_counter() - started))
        assert since is not None, "a stretch has at least one iteration"
        report(stop, since, grown)
        skipped = check_skips(since.skips, skipped, settings.skips_in_a_row, seeds, stop)
    return state


def _check_start(start: Start, stretches: Sequence[tuple[int, int]]) -> None:
    ends = {stop for _, stop in stretches}
    evaluated = start.iteration
    if start.since is not None:
        ends.add(0)
        evaluated -= start.since.info.loss.shape[1]
    if evaluated not in ends:
        raise ValueError(f"Iteration {evaluated} is no end of a chunk; start from one.")


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


class Pace:
    """How many iterations to do at a time, so that they take a few seconds."""

    def __init__(self) -> None:
        self.iterations = 1

    @contextlib.contextmanager
    def timed(self, iterations: int) -> Iterator[None]:
        """See how long some take; fewer than asked for do not tell whether more would be right."""
        started = time.perf_counter()
        yield
        seconds = time.perf_counter() - started
        if seconds < BETWEEN_PAUSES / 2 and iterations >= self.iterations:
            self.iterations *= 2
        elif seconds > BETWEEN_PAUSES * 2:
            self.iterations = max(self.iterations // 2, 1)


class Programs:
    """What is compiled for a run, each part of it once; states are stacked over the seeds."""

    def __init__(
        self, learner: Learner, stream: Stream, seeds: Sequence[int], tests: int, longest: int
    ) -> None:
        self._keys = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(run_keys, seeds))
        # Data of a stream are an argument: in the program they would be compiled into it.
        self._data, recipe = eqx.partition(stream, eqx.is_array)

        def begin(data: Any, keys: RunKeys) -> tuple[State, TaskBatch]:
            one = partial(_begin, learner, eqx.combine(data, recipe), tests)
            return every_seed(learner, one)(keys)

        def advance(
            data: Any, state: State, keys: RunKeys, first: Array, stop: Array
        ) -> tuple[State, Given]:
            stream = eqx.combine(data, recipe)
            return _advance(learner, stream, longest, state, keys, first, stop)

        def advance_in_part(
            data: Any, state: State, keys: RunKeys, iteration: Array, tasks: Int[Array, " some"]
        ) -> tuple[State, Info, Bool[Array, ""]]:
            stream = eqx.combine(data, recipe)
            after, given = _iterate(learner, stream, iteration, keys, state, tasks)
            return after, given.info, healthy(state, after, given.info.loss)

        def judge(data: Any, state: State, test: TaskBatch) -> Evaluation:
            one = partial(evaluate, learner, load=eqx.combine(data, recipe).load)
            return every_seed(learner, one)(state, test)

        def has_room(length: int, state: State) -> Bool[Array, ""]:
            assert isinstance(learner, Growing), "others are not asked"
            return jnp.all(jax.vmap(lambda one: learner.has_room(one, length))(state))

        def grow(state: State) -> State:
            assert isinstance(learner, Growing), "others are not asked"
            return jax.vmap(learner.grow)(state)

        self._grows = isinstance(learner, Growing)
        self._begin = jax.jit(begin)
        self._advance = jax.jit(advance)
        self._advance_in_part = jax.jit(advance_in_part)
        self._judge = jax.jit(judge)
        self._has_room = jax.jit(has_room, static_argnums=0)
        self._grow = jax.jit(grow)

    def begin(self) -> tuple[State, TaskBatch]:
        """The first state of every seed, and its test tasks."""
        return self._begin(self._data, self._keys)

    def evaluate(self, state: State, test: TaskBatch) -> Evaluation:
        """How good it is on the test tasks, on the host."""
        return jax.tree.map(np.asarray, self._judge(self._data, state, test))

    def with_room(self, state: State, iterations: int) -> tuple[State, bool]:
        """The same with capacity for so many iterations, and whether it had to grow."""
        grown = False
        while self._grows and not self._has_room(iterations, state):
            state, grown = self._grow(state), True
        return state, grown

    def learn(
        self, state: State, alive: Alive | None, first: int, stop: int
    ) -> tuple[State, Given]:
        """Iterations ``first`` to ``stop`` of every seed, and what they gave, on the host.

        ``alive`` are the clusters before them, None if the run has just begun.
        """
        after, given = self._learned(state, first, stop)
        if healthy(state, after, given.info.loss):
            return after, given
        # Only now, so that care costs a healthy run nothing and changes no bit of it.
        parts = []
        for iteration in range(first, stop):
            state, part = self._learned_with_care(state, alive, iteration)
            alive = part.info.alive[:, -1]
            parts.append(part)
        return state, jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *parts)

    def _learned(self, state: State, first: int, stop: int) -> tuple[State, Given]:
        bounds = jnp.asarray(first), jnp.asarray(stop)
        after, given = self._advance(self._data, state, self._keys, *bounds)
        return after, jax.tree.map(lambda leaf: np.array(leaf)[:, : stop - first], given)

    def _learned_with_care(
        self, state: State, alive: Alive | None, iteration: int
    ) -> tuple[State, Given]:
        """One iteration, without the tasks that would leave numbers which are not finite."""
        after, given = self._learned(state, iteration, iteration + 1)
        info = jax.tree.map(lambda leaf: leaf[:, 0], given.info)
        every = [
            self._checked(iteration, None if alive is None else alive[seed], *parts)
            for seed, parts in enumerate(
                zip(*map(_unstacked, (state, after, self._keys, info)), strict=True)
            )
        ]
        after, info, skips = jax.tree.map(lambda *leaves: jnp.stack(leaves), *every)
        info, skips = jax.tree.map(lambda leaf: np.asarray(leaf)[:, None], (info, skips))
        return after, Given(info, given.families, skips)

    def _checked(
        self,
        iteration: int,
        alive: Alive | None,
        before: State,
        after: State,
        keys: RunKeys,
        info: Info,
    ) -> tuple[State, Info, Skips]:
        """One iteration of one seed: as it is, or without the tasks at fault."""
        tasks = info.error.shape[0]
        if healthy(before, after, info.loss):
            return after, info, Skips.none((tasks,))
        step = partial(self._advance_in_part, self._data, before, keys, iteration)
        return learned_in_part(step, before, alive, tasks)


def _unstacked(tree: Any) -> list[Any]:
    """The trees along the first axis of one."""
    seeds = len(jax.tree.leaves(tree)[0])
    return [jax.tree.map(lambda leaf, s=seed: leaf[s], tree) for seed in range(seeds)]


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
    """``function`` over the seeds, which are the first axis of its arguments.

    A ``vmap`` turns every condition into both of its branches. So a seed that is alone is
    called as it is, and a learner that opens clusters, of which most steps open none, takes
    its seeds one after the other.
    """

    def alone(*arguments: Any) -> Any:
        one = jax.tree.map(lambda leaf: leaf[0], arguments)
        return jax.tree.map(lambda leaf: leaf[None], function(*one))

    def in_turn(*arguments: Any) -> Any:
        def turn(_: None, one: tuple[Any, ...]) -> tuple[None, Any]:
            return None, function(*one)

        return jax.lax.scan(turn, None, arguments)[1]

    def mapped(*arguments: Any) -> Any:
        if len(jax.tree.leaves(arguments)[0]) == 1:
            return alone(*arguments)
        if learner.one_at_a_time or isinstance(learner, Growing):
            return in_turn(*arguments)
        return jax.vmap(function)(*arguments)

    return mapped


def _begin(learner: Learner, stream: Stream, tests: int, keys: RunKeys) -> tuple[State, TaskBatch]:
    """The first state of one seed, and its test tasks with axes (families, tasks)."""
    state = learner.init(keys.init, visible(learner, stream.batch(keys.stream, 0)))
    drawn = [stream.test_tasks(keys.test, family, tests) for family in range(len(stream.families))]
    return state, jax.tree.map(lambda *leaves: jnp.stack(leaves), *drawn)


def _iterate(
    learner: Learner,
    stream: Stream,
    iteration: Int[Array, ""],
    keys: RunKeys,
    state: State,
    tasks: Int[Array, " some"] | None = None,
) -> tuple[State, Given]:
    """One iteration of one seed, from the whole batch or from some of its tasks."""
    batch = stream.batch(keys.stream, iteration)
    # A key per iteration rather than a chain of them: chunks may be cut anywhere.
    key = jax.random.fold_in(keys.step, iteration)
    some = batch if tasks is None else batch.take(tasks)
    after, info = learner.step(state, visible(learner, some), key)
    return after, Given(info, _families(batch), None)


def _advance(
    learner: Learner,
    stream: Stream,
    longest: int,
    states: State,
    keys: RunKeys,
    start: Int[Array, ""],
    stop: Int[Array, ""],
) -> tuple[State, Given]:
    """Iterations ``start`` to ``stop`` of every seed, and what each of them gave.

    How many there are is a value and not a shape, so that a chunk cut short by the end of
    a phase does not compile anew. What they gave has room for the ``longest`` chunk.
    """

    def iterate_all(states: State, iteration: Array) -> tuple[State, Given]:
        one = partial(_iterate, learner, stream, iteration)
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


def first_state(learner: Learner, stream: Stream) -> State:
    """Shapes and types of one seed's state, before anything has grown."""
    keys = run_keys(0)
    return jax.eval_shape(
        lambda: learner.init(keys.init, visible(learner, stream.batch(keys.stream, 0)))
    )


def _families(batch: TaskBatch) -> Int[Array, " tasks"]:
    """Of every task, for measures; where a stream does not know, all are of the first."""
    if batch.hints is None or batch.hints.family is None:
        return jnp.zeros(batch.query.mask.shape[0], dtype=int)
    return batch.hints.family
