import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int

from taskmix.adaptation import Adaptation
from taskmix.baselines import MAML
from taskmix.learner import Info, Prediction, Told
from taskmix.likelihood import Gaussian
from taskmix.models import MLP
from taskmix.streams import Phase
from taskmix.tasks import Examples, Hints, TaskBatch
from taskmix.training import Chunk, Pause, Settings, Start, loop, train
from taskmix.training.moments import run_keys


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


@pytest.fixture(scope="module")
def two_seeds():
    return trained(MAML(**PARTS), [3, 7])


def test_evaluates_at_the_start_at_intervals_and_at_phase_ends(two_seeds):
    assert [chunk.iteration for chunk in two_seeds[1]] == [0, 5, 10, 13, 15, 20, 21]


def test_chunks_hold_every_iteration_once(two_seeds):
    first, *rest = two_seeds[1]
    assert first.info is None
    assert [chunk.info.loss.shape for chunk in rest] == [
        (2, n) for n in np.diff([0, 5, 10, 13, 15, 20, 21])
    ]


def test_chunk_holds_the_state_that_was_evaluated(two_seeds):
    state, chunks = two_seeds
    jax.tree.map(np.testing.assert_array_equal, chunks[-1].state, state)
    copies = []
    train(
        StandIn(), STREAM, [0, 1], SETTINGS, lambda chunk: copies.append(np.array(chunk.state.done))
    )
    np.testing.assert_array_equal(copies, [[n, n] for n in [0, 5, 10, 13, 15, 20, 21]])


def test_families_of_the_stream_are_reported_as_they_were(two_seeds):
    families = np.concatenate([chunk.families for chunk in two_seeds[1][1:]], axis=1)
    assert (families[:, :13] == 0).all()
    assert (families[:, 13:] == 1).all()


def test_same_seed_gives_the_same_bits_twice(two_seeds):
    again, chunks = trained(MAML(**PARTS), [3, 7])
    jax.tree.map(np.testing.assert_array_equal, again, two_seeds[0])
    for one, other in zip(chunks, two_seeds[1], strict=True):
        jax.tree.map(np.testing.assert_array_equal, one.evaluation, other.evaluation)


def test_seed_alone_does_as_among_others(two_seeds):
    alone, _ = trained(MAML(**PARTS), [7])
    jax.tree.map(
        lambda one, both: np.testing.assert_allclose(one[0], both[1], rtol=1e-3, atol=1e-5),
        alone,
        two_seeds[0],
    )


def test_seeds_differ(two_seeds):
    losses = two_seeds[1][1].info.loss
    assert not np.allclose(losses[0], losses[1])


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


def test_more_chunks_and_shorter_ones_cause_no_further_trace():
    many, few = StandIn(), StandIn()
    assert len(trained(many, [0])[1]) == 7
    assert len(trained(few, [0], stream=Lines(turn=1, stop=2))[1]) == 3
    assert len(many.hints) == len(few.hints)


def test_learner_told_nothing_gets_no_hints():
    learner = StandIn()
    trained(learner, [0])
    assert set(learner.hints) == {None}


def test_learner_told_the_family_gets_hints():
    learner = StandIn(told=Told.FAMILY)
    trained(learner, [0])
    assert None not in learner.hints


@jax.custom_batching.custom_vmap
def unmapped(x):
    return x


@unmapped.def_vmap
def refuse(size, batched, x):
    raise AssertionError(f"{size} seeds were taken at once")


class Mapped(StandIn):
    """Does not open clusters, and refuses to be vmapped."""

    has_room = grow = None

    def step(self, state, batch, key):
        lot = unmapped(state.lot)
        return super().step(dataclasses.replace(state, lot=lot), batch, key)


class OpensClusters(Mapped):
    has_room, grow = StandIn.has_room, StandIn.grow


@pytest.mark.parametrize(
    ("learner", "seeds"),
    [(Mapped(), [3]), (OpensClusters(), [3, 7]), (Mapped(one_at_a_time=True), [3, 7])],
    ids=["one seed", "opens clusters", "one at a time"],
)
def test_conditions_of_a_step_stay_conditions(learner, seeds):
    state, _ = trained(learner, seeds)
    np.testing.assert_array_equal(state.done, [21] * len(seeds))


def test_several_seeds_of_other_learners_are_taken_at_once():
    with pytest.raises(AssertionError, match="2 seeds were taken at once"):
        trained(Mapped(), [3, 7])


class Table(eqx.Module):
    """Lines whose inputs are looked up; tests draw references, which are loaded later."""

    inputs: Float[Array, "rows inputs"]
    families = ("only",)
    phases = (Phase(0, 4, ("only",)),)

    def batch(self, key, iteration) -> TaskBatch:
        return self.load(self.test_tasks(jax.random.fold_in(key, iteration), 0, 2))

    def test_tasks(self, key, family, tasks) -> TaskBatch:
        rows = jax.random.randint(key, (tasks, 3), 0, len(self.inputs))
        drawn = Examples(rows, rows, jnp.ones(rows.shape, dtype=bool))
        return TaskBatch(drawn, drawn, Hints(jnp.full(tasks, family), jnp.asarray(False)))

    def load(self, drawn: TaskBatch) -> TaskBatch:
        assert isinstance(self.inputs, jax.core.Tracer), "the data are part of the program"

        def loaded(examples: Examples) -> Examples:
            x = self.inputs[examples.x]
            return Examples(x, x.sum(axis=-1, keepdims=True), examples.mask)

        return dataclasses.replace(drawn, support=loaded(drawn.support), query=loaded(drawn.query))


def test_data_of_a_stream_are_arguments_of_what_is_compiled():
    table = Table(jnp.arange(14.0).reshape(7, 2))
    model = MLP(inputs=2, hidden=(4,))
    _, chunks = trained(MAML(model, adaptation=Adaptation(steps=1)), [0, 1], stream=table)
    assert [chunk.iteration for chunk in chunks] == [0, 4]
    assert np.isfinite(chunks[-1].evaluation.error).all()


def test_capacity_doubles_before_it_is_needed():
    state, chunks = trained(StandIn(room=4), [0, 1])
    assert state.room.shape == (2, 32)
    assert [chunk.iteration for chunk in chunks if chunk.grown] == [5, 10, 20]


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


def test_training_that_goes_on_gives_the_same_bits(two_seeds):
    state, chunks = two_seeds
    again, rest = resumed(MAML(**PARTS), [3, 7], chunks[3])
    jax.tree.map(np.testing.assert_array_equal, again, state)
    for one, other in zip(rest, chunks[4:], strict=True):
        assert_same(one, other)
        assert one.seconds > chunks[3].seconds


def test_single_seed_that_goes_on_gives_the_same_bits():
    state, chunks = trained(MAML(**PARTS), [7])
    again, rest = resumed(MAML(**PARTS), [7], chunks[3])
    jax.tree.map(np.testing.assert_array_equal, again, state)
    for one, other in zip(rest, chunks[4:], strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("position", [1, 2, 4, 6])
def test_capacity_that_had_grown_is_as_it_was(position):
    _, chunks = trained(StandIn(room=4), [0, 1])
    _, rest = resumed(StandIn(room=4), [0, 1], chunks[position])
    for one, other in zip(rest, chunks[position + 1 :], strict=True):
        assert_same(one, other)


def with_pauses(learner, stream, start=None) -> tuple[list[Chunk], list[Pause]]:
    """Chunks, and a pause after every iteration that does not end one."""
    chunks: list[Chunk] = []
    pauses: list[Pause] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "BETWEEN_PAUSES", 0.0)
        train(learner, stream, [3, 7], SETTINGS, chunks.append, start, pauses.append)
    return chunks, pauses


BROKEN = Lines(broken=(6, 1))


@pytest.mark.parametrize(
    ("learner", "stream"),
    [(MAML(**PARTS), BROKEN), (StandIn(room=4), STREAM)],
    ids=["maml", "grows"],
)
def test_pauses_change_no_bit_and_training_goes_on_from_each(learner, stream):
    _, expected = trained(learner, [3, 7], stream=stream)
    chunks, pauses = with_pauses(learner, stream)
    ends = [chunk.iteration for chunk in expected]
    assert [pause.iteration for pause in pauses] == sorted(set(range(21)) - set(ends))
    for one, other in zip(chunks, expected, strict=True):
        assert_same(one, other)
    for pause in pauses[2::4]:
        # By way of the host's memory.
        state = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), pause.state)
        start = Start(
            pause.iteration, state, pause.seconds, (0, 0), since=pause.since, grown=pause.grown
        )
        rest, _ = with_pauses(learner, stream, start)
        later = [chunk for chunk in expected if chunk.iteration > pause.iteration]
        for one, other in zip(rest, later, strict=True):
            assert_same(one, other)


def test_pace_is_that_of_a_few_seconds(monkeypatch):
    clock = iter([0.0, 1.0, 1.0, 2.0, 2.0, 20.0, 20.0, 25.0, 25.0, 26.0])
    monkeypatch.setattr(loop.time, "perf_counter", lambda: next(clock))
    pace, seen = loop.Pace(), []
    for iterations in (1, 2, 4, 2, 1):
        with pace.timed(iterations):
            seen.append(pace.iterations)
    assert (*seen, pace.iterations) == (1, 2, 4, 2, 2, 2)


def test_start_that_is_no_end_of_a_chunk_is_refused():
    with pytest.raises(ValueError, match="Iteration 4 is no end of a chunk"):
        train(StandIn(), STREAM, [0], SETTINGS, print, Start(4, None, 0.0, (0,)))


def test_task_that_is_not_finite_is_left_out_of_its_batch():
    _, chunks = trained(StandIn(broken_batches=(6, 16)), [0, 1])
    by_end = {chunk.iteration: chunk for chunk in chunks}
    assert [n for n, chunk in by_end.items() if chunk.skips is not None] == [10, 20]
    for stop in (10, 20):
        skips, info = by_end[stop].skips, by_end[stop].info
        np.testing.assert_array_equal(np.argwhere(skips.task), [[0, 1, 0], [1, 1, 0]])
        assert not skips.batch.any()
        np.testing.assert_array_equal(np.isnan(info.error), skips.task)
        np.testing.assert_array_equal(info.responsibilities[..., 0] == 0, skips.task)
        assert np.isfinite(info.loss).all()
    assert int(chunks[-1].state.done[0]) == 21


def test_batch_of_which_no_task_is_at_fault_is_skipped_and_leaves_the_state_alone():
    _, chunks = trained(StandIn(broken_pairs=(6, 16)), [0, 1])
    skipped = {chunk.iteration: chunk.skips for chunk in chunks}
    assert [n for n, skips in skipped.items() if skips is not None] == [10, 20]
    np.testing.assert_array_equal(skipped[10].batch, [[False, True, False, False, False]] * 2)
    np.testing.assert_array_equal(skipped[20].batch, [[False, True, False, False, False]] * 2)
    assert int(chunks[-1].state.done[0]) == 19
    assert not skipped[10].task.any()
    assert np.isnan(chunks[2].info.error[:, 1]).all()


def test_batch_that_is_skipped_opens_no_cluster():
    _, chunks = trained(StandIn(broken_pairs=(7,)), [0, 1])
    infos = [chunk.info for chunk in chunks[1:]]
    clusters = np.concatenate([info.alive.sum(axis=-1) for info in infos], axis=1)
    np.testing.assert_array_equal(clusters, [[1] * 8 + [2] * 8 + [3] * 5] * 2)
    spawned = np.concatenate([info.spawned for info in infos], axis=1)
    np.testing.assert_array_equal(np.argwhere(spawned[0]), [[8], [16]])


def test_batch_that_is_skipped_right_after_an_interruption_opens_no_cluster():
    learner = StandIn(broken_pairs=(15,))
    _, chunks = trained(learner, [0, 1])
    _, rest = resumed(learner, [0, 1], chunks[4])
    for one, other in zip(rest, chunks[5:], strict=True):
        assert_same(one, other)
    assert rest[0].info.alive[0, 0].sum() == 2


def test_learner_learns_from_the_other_tasks_alone():
    """Against a plain loop of steps, one of which gets only the good task."""
    learner, stream = MAML(**PARTS), Lines(broken=(6, 1))
    state, chunks = trained(learner, [3, 7], stream=stream)
    (skips,) = [chunk.skips for chunk in chunks if chunk.skips is not None]
    np.testing.assert_array_equal(np.argwhere(skips.task), [[0, 1, 1], [1, 1, 1]])
    keys = run_keys(7)
    expected = learner.init(keys.init, stream.batch(keys.stream, 0))
    step = jax.jit(learner.step)
    for iteration in range(stream.stop):
        batch = stream.batch(keys.stream, iteration)
        batch = batch.take(jnp.array([0])) if iteration == 6 else batch
        expected, _ = step(expected, batch, jax.random.fold_in(keys.step, iteration))
    jax.tree.map(
        lambda found, one: np.testing.assert_allclose(found[1], one, rtol=1e-4, atol=1e-6),
        state,
        expected,
    )


def test_seed_beside_one_with_a_bad_task_keeps_its_bits():
    state, _ = trained(StandIn(), range(8))
    safe, broken = int(np.argmin(state.lot)), int(np.argmax(state.lot))
    expected, _ = trained(StandIn(), [safe, broken])
    found, chunks = trained(StandIn(breaks_at=20), [safe, broken])
    (skips,) = [chunk.skips for chunk in chunks if chunk.skips is not None]
    np.testing.assert_array_equal(np.argwhere(skips.batch), [[1, 0]])
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        np.testing.assert_array_equal(one[0], other[0])


def test_losses_that_stay_not_finite_name_seed_and_iteration():
    state, _ = trained(StandIn(), range(8))
    safe, broken = int(np.argmin(state.lot)), int(np.argmax(state.lot))
    settings = Settings(evaluate_every=5, test_tasks=3, skips_in_a_row=4)
    with pytest.raises(ValueError, match=f"seed {broken} .* at iteration 7 and in each of the 4"):
        trained(StandIn(breaks_at=7), [safe, broken], settings)


def test_skips_are_counted_across_an_interruption():
    settings = Settings(evaluate_every=5, test_tasks=3, skips_in_a_row=4)
    learner = StandIn(broken_batches=(8, 9, 10, 11))
    seen: list[Chunk] = []
    with pytest.raises(ValueError, match="at iteration 8 and in each of the 4 batches"):
        train(learner, STREAM, [0], settings, seen.append)
    state = seen[2].state
    with pytest.raises(ValueError, match="at iteration 8 and in each of the 4 batches"):
        train(learner, STREAM, [0], settings, print, Start(10, state, 0.0, (2,)))


@pytest.mark.parametrize("seeds", [[], [1, 1], [-1], [2**32]])
def test_seeds_that_cannot_be_are_refused(seeds):
    with pytest.raises(ValueError, match="seed"):
        trained(StandIn(), seeds)


@pytest.mark.parametrize("field", ["evaluate_every", "test_tasks", "skips_in_a_row"])
def test_settings_below_one_are_refused(field):
    with pytest.raises(ValueError, match=f"{field} is 0"):
        Settings(**{field: 0})
