"""What is compiled for a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from taskmix.compiled import quickly
from taskmix.evaluation import Evaluation, evaluate
from taskmix.learner import Growing, Info, Learner, State, unprotected, visible
from taskmix.streams import Stream
from taskmix.tasks import TaskBatch
from taskmix.training.compiling import Compiling
from taskmix.training.moments import Alive, Given, RunKeys, run_keys
from taskmix.training.placement import Placement
from taskmix.training.skips import Skips, healthy, learned_in_part


class Programs:
    """What is compiled for a run, each part of it once; states are stacked over the seeds."""

    def __init__(
        self,
        learner: Learner,
        stream: Stream,
        seeds: Sequence[int],
        tests: int,
        longest: int,
        tell: Callable[[str], None] | None = None,
        placement: Placement | None = None,
    ) -> None:
        self._compiling = Compiling(tell)
        self._placement = placement = placement or Placement()
        self._keys = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(run_keys, seeds))
        # Data of a stream are an argument: in the program they would be compiled into it.
        data, recipe = eqx.partition(stream, eqx.is_array)
        self._data = placement.placed(data)

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

        def evaluated(data: Any, state: State, test: TaskBatch) -> Evaluation:
            one = partial(evaluate, learner, load=eqx.combine(data, recipe).load)
            return every_seed(learner, one)(state, test)

        def has_room(length: int, state: State) -> Bool[Array, ""]:
            assert isinstance(learner, Growing), "others are not asked"
            return jnp.all(jax.vmap(lambda one: learner.has_room(one, length))(state))

        def grow(state: State) -> State:
            assert isinstance(learner, Growing), "others are not asked"
            return jax.vmap(learner.grow)(state)

        self._grows = isinstance(learner, Growing)
        # Networks of images take far longer to run than to compile.
        options = None if learner.one_at_a_time else quickly()
        compiled = partial(placement.compiled, options=options)
        self._begin = compiled(begin, (False, True), out=True)
        several = (False, True, True, False, False)
        self._advance = compiled(advance, several, out=True)
        self._advance_in_part = compiled(advance_in_part, (False,) * 5, out=False)
        self._evaluate = compiled(evaluated, (False, True, True), out=True)
        self._has_room = jax.jit(has_room, static_argnums=0)
        self._grow = jax.jit(grow)

    def begin(self) -> tuple[State, TaskBatch]:
        """The first state of every seed, and its test tasks."""
        with self._compiling("the beginning of the run"):
            return self._begin(self._data, self._keys)

    def evaluate(self, state: State, test: TaskBatch) -> Evaluation:
        """How good it is on the test tasks, on the host."""
        with self._compiling("the evaluation", state):
            found = self._evaluate(self._data, state, test)
        return jax.tree.map(np.asarray, found)

    def with_room(self, state: State, iterations: int) -> tuple[State, bool]:
        """The same with capacity for so many iterations, and whether it had to grow."""
        grown = False
        state = self._placement.local(state)
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
        local = self._placement.local
        if healthy(local(state), local(after), given.info.loss):
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
        with self._compiling("the training step", state):
            after, given = self._advance(self._data, state, self._keys, *bounds)
        return after, jax.tree.map(lambda leaf: np.array(leaf)[:, : stop - first], given)

    def _learned_with_care(
        self, state: State, alive: Alive | None, iteration: int
    ) -> tuple[State, Given]:
        """One iteration, without the tasks that would leave numbers which are not finite."""
        after, given = self._learned(state, iteration, iteration + 1)
        state, after = self._placement.local((state, after))
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

        def step(some: np.ndarray) -> tuple[State, Info, Bool[Array, ""]]:
            learned = self._advance_in_part(self._data, before, keys, iteration, some)
            return self._placement.local(learned)

        return learned_in_part(step, before, alive, tasks)


def _unstacked(tree: Any) -> list[Any]:
    """The trees along the first axis of one."""
    seeds = len(jax.tree.leaves(tree)[0])
    return [jax.tree.map(lambda leaf, s=seed: leaf[s], tree) for seed in range(seeds)]


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
    # Chunks are looked at as a whole; see ``Programs.learn``.
    after, info = unprotected(learner)(state, visible(learner, some), key)
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

    # Traced once, for its shapes and for the loop.
    iterate_all = jax.jit(iterate_all)
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
