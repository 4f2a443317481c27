"""The training loop: many seeds side by side, many iterations per dispatch."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from taskmix.evaluation import SHOWN
from taskmix.learner import Learner, State
from taskmix.streams import Phase, Stream
from taskmix.tasks import TaskBatch, check_batch
from taskmix.training.moments import Chunk, Given, Pause, Settings, Start, check_seeds, joined
from taskmix.training.placement import Placement
from taskmix.training.programs import Programs
from taskmix.training.skips import check_skips

BETWEEN_PAUSES = 5.0
"""Seconds, roughly."""


def train(
    learner: Learner,
    stream: Stream,
    seeds: Sequence[int],
    settings: Settings,
    observer: Callable[[Chunk], None],
    start: Start | None = None,
    pause: Callable[[Pause], None] | None = None,
    tell: Callable[[str], None] | None = None,
    placement: Placement | None = None,
    steer: Callable[[int], int] = lambda until: until,
    warm: Callable[[State], State] | None = None,
) -> State:
    """Train ``learner`` on ``stream`` once per seed and return the final states, stacked.

    ``observer`` is called before the first iteration and after every chunk, ``pause`` every
    few seconds in between; ``tell`` hears what a long compilation is for. ``placement`` says which
    devices share the work. ``steer`` is told until which iteration the next program is to run, and
    says until which it does: several processes have to do the same. ``warm`` may change the first
    states. A run depends on its
    own seed only, up to rounding: the seeds share compiled code, nothing else. From a ``start``
    it goes on as if it had never stopped, and pauses change nothing either, bit for bit.
    """
    check_seeds(seeds)
    # Somebody else's stream may give anything; it is said here rather than inside a compiled loop.
    check_batch(_first_batch(stream))
    started = time.perf_counter() - (start.seconds if start else 0.0)
    stretches = list(chunks(stream.phases, settings.evaluate_every))
    longest = max(stop - first for first, stop in stretches)
    if start:
        _check_start(start, stretches)
    placement = placement or Placement(seeds=len(seeds))
    programs = Programs(learner, stream, seeds, settings.test_tasks, longest, tell, placement)
    state, test = programs.begin()
    if warm and not start:
        state = warm(placement.local(state))
    first_tests = first_tasks(placement.local(test))

    def report(iteration: int, given: Given | None, grown: bool) -> None:
        evaluation = programs.evaluate(state, test)
        seconds = time.perf_counter() - started
        info, families, skips = given or (None, None, None)
        assert not isinstance(families, jax.Array), "reported on the host"
        here = placement.local(state)
        observer(
            Chunk(iteration, info, families, evaluation, here, grown, seconds, skips, first_tests)
        )

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
            until = steer(min(done + pace.iterations, stop) if pause else stop)
            with pace.timed(until - done):
                state, given = programs.learn(state, alive, done, until)
            done, since, alive = until, joined(since, given), given.info.alive[:, -1]
            if pause and done < stop:
                here = placement.local(state)
                pause(Pause(done, since, here, grown, time.perf_counter() - started))
        assert since is not None, "a stretch has at least one iteration"
        report(stop, since, grown)
        skipped = check_skips(since.skips, skipped, settings.skips_in_a_row, seeds, stop)
    return placement.local(state)


def first_tasks(test: TaskBatch) -> dict[str, np.ndarray]:
    """Of every seed and family, the tasks that are kept to be looked at, on the host."""
    return {
        f"{side}.{name}": np.asarray(getattr(getattr(test, side), name))[:, :, :SHOWN]
        for side in ("support", "query")
        for name in ("x", "y", "mask")
    }


def _check_start(start: Start, stretches: Sequence[tuple[int, int]]) -> None:
    ends = {stop for _, stop in stretches}
    evaluated = start.iteration
    if start.since is not None:
        ends.add(0)
        evaluated -= start.since.info.loss.shape[1]
    if evaluated not in ends:
        raise ValueError(f"Iteration {evaluated} is no end of a chunk; start from one.")


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


def _first_batch(stream: Stream) -> TaskBatch:
    """With zeros for what is not finite, which is left out of a batch and does not end a run."""

    @eqx.filter_jit
    def drawn(stream: Stream) -> TaskBatch:
        return stream.batch(jax.random.key(0), 0)

    finite: TaskBatch = jax.tree.map(
        lambda leaf: jnp.nan_to_num(leaf) if eqx.is_inexact_array(leaf) else leaf, drawn(stream)
    )
    return finite
