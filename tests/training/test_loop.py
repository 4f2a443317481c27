import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from tests.training.stand_ins import (
    PARTS,
    SETTINGS,
    STREAM,
    Lines,
    StandIn,
    assert_same,
    resumed,
    trained,
)

from taskmix.adaptation import Adaptation
from taskmix.baselines import MAML
from taskmix.learner import Told
from taskmix.models import MLP
from taskmix.streams import Phase
from taskmix.tasks import Examples, Hints, TaskBatch
from taskmix.training import Chunk, Pause, Settings, Start, loop, train


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


@pytest.mark.parametrize("seeds", [[], [1, 1], [-1], [2**32]])
def test_seeds_that_cannot_be_are_refused(seeds):
    with pytest.raises(ValueError, match="seed"):
        trained(StandIn(), seeds)


@pytest.mark.parametrize("field", ["evaluate_every", "test_tasks", "skips_in_a_row"])
def test_settings_below_one_are_refused(field):
    with pytest.raises(ValueError, match=f"{field} is 0"):
        Settings(**{field: 0})
