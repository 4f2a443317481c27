"""What must hold for every step of the online mixture, whatever it decides.

Compiling a step takes longer than all steps that are taken here, so two learners serve all tests:
``ALONE`` watches for changes itself, ``TOLD`` is told them and never grows up. States are made and
changed by compiled functions, as every operation by itself would be compiled too.
"""

import dataclasses
from functools import partial

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskmix.adaptation import BayesianHead
from taskmix.baselines import SingleModel
from taskmix.mixture import OnlineMixture
from taskmix.mixture.explaining import UNLIKE, explained, predicted
from taskmix.mixture.growth import begun, proposed
from taskmix.mixture.learning import BEGINNING, followed, learned
from taskmix.mixture.reference import Reference, Scores
from taskmix.mixture.reservoir import Reservoir
from taskmix.mixture.trial import EASIER, FRESH, HARDER, Trial
from taskmix.mixture.vigilance import bets, scouted
from taskmix.models import MLP
from taskmix.streams import FunctionStream, consecutive
from taskmix.tasks import Hints

KEY = jax.random.key(0)
HEAD = BayesianHead(MLP(hidden=(8,), outputs=4, activation="tanh", init_scale=0.0), width=4)
SMALL = {"task_model": HEAD, "capacity": 4, "rehearsed": 4, "reference": 32}
ALONE = OnlineMixture(**SMALL, reservoir=24, held_out=0.15, maturity=5)
TOLD = OnlineMixture(
    **SMALL,
    reservoir=64,
    held_out=0.0,
    youth=1,
    maturity=10**6,
    boundaries=True,
    patience=30,
    certainty=5.0,
    worth=0.1,
)
ORDER = np.array([2, 0, 1, 3])
grow = jax.jit(ALONE.grow)
begin_told = jax.jit(TOLD.init)


class Counted:
    """A compiled step, and how often it was traced."""

    def __init__(self, learner):
        self.traces = 0

        def step(state, batch, key):
            self.traces += 1
            return learner.step(state, batch, key)

        self.compiled = jax.jit(step)

    def __call__(self, state, batch, key=KEY):
        return self.compiled(state, batch, key)


@pytest.fixture(scope="module")
def same_draws():
    """Reservoirs draw alike in every row and every learner, so that rows can be compared.

    A row otherwise takes a key by its number.
    """
    place, draw = Reservoir.place, Reservoir.draw
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reservoir, "place", lambda self, where, _: place(self, where, KEY))
        patch.setattr(Reservoir, "draw", lambda self, _, count: draw(self, KEY, count))
        yield


def drawn(family: str, iterations: int, tasks: int):
    stream = FunctionStream(consecutive((family,), (iterations,)), tasks=tasks, support=3, query=4)
    draw = jax.jit(lambda iteration: stream.batch(KEY, iteration).without_hints())
    return [draw(iteration) for iteration in range(iterations)]


@pytest.fixture(scope="module")
def batches():
    return drawn("sinusoid", 30, tasks=4)


@pytest.fixture(scope="module")
def batch(batches):
    """Tasks that clearly belong to the first two clusters of the handmade state, by turns."""
    levels = np.array([-4.0, 4.0, -4.0, 4.0], np.float32)[:, None, None]

    @jax.jit
    def shifted(examples):
        return dataclasses.replace(examples, y=0.2 * examples.y + levels)

    return dataclasses.replace(
        batches[5], support=shifted(batches[5].support), query=shifted(batches[5].query)
    )


@pytest.fixture(scope="module")
def step(same_draws):
    return Counted(ALONE)


@pytest.fixture(scope="module")
def predict():
    return jax.jit(ALONE.predict)


@pytest.fixture(scope="module")
def state(batches):
    """Three clusters that differ, grown up and with samples, and a copy on trial beside them."""
    (many,) = drawn("sinusoid", 1, tasks=5 * 32)
    return handmade(batches[0], many)


@jax.jit
def handmade(first, many):
    begin = ALONE.init(KEY, first)

    def different(leaf):
        return leaf + 0.2 * jax.random.normal(jax.random.fold_in(KEY, leaf.size), leaf.shape)

    def sample(places: int, full: int) -> Reservoir:
        tasks = jax.tree.map(lambda leaf: leaf.reshape(5, 32, *leaf.shape[1:])[:, :places], many)
        filled = jnp.broadcast_to(jnp.arange(places) < full, (5, places))
        return Reservoir(tasks, filled, jnp.array([90.0, 70.0, 80.0, 0.0, 30.0]))

    # So low that most tasks are ordinary.
    scores = jax.random.normal(KEY, (2, 5, 32)) - 6
    params = jax.tree.map(different, begin.members.params)
    levels = jnp.array([-4.0, 4.0, 0.0, 0.0, 0.0])[:, None]
    params = dataclasses.replace(params, location=params.location.at[:, -1].add(levels))
    members = dataclasses.replace(
        begin.members,
        params=params,
        averaged=jax.tree.map(lambda leaf: 0.98 * leaf, params),
        reservoir=sample(24, 16),
        reference=Reference(sample(32, 24), Scores(*scores)),
        updates=jnp.array([90.0, 40.0, 60.0, 0.0, 10.0]),
    )
    alarm = dataclasses.replace(
        begin.alarm,
        total=jnp.array([3.0, -1.0, 2.0, 0.0])[:, None] * jnp.ones((4, 6)),
        weight=jnp.array([5.0, 6.0, 7.0, 0.0])[:, None] * jnp.ones((4, 6)),
        squared=jnp.array([5.0, 6.0, 7.0, 0.0])[:, None] * jnp.ones((4, 6)),
        used=jnp.array([True, False, True, False]),
    )
    residuals = jnp.abs(jax.random.normal(KEY, begin.widths.residuals.shape))
    return dataclasses.replace(
        begin,
        members=members,
        alive=jnp.arange(4) < 3,
        age=jnp.array([90, 40, 60, 0], dtype=begin.age.dtype),
        counts=jnp.array([20.0, 40.0, 30.0, 0.0, 2.0]),
        trial=Trial.begin(EASIER, 0),
        scout=ALONE.scout_at(jax.tree.map(lambda leaf: leaf[1], members.averaged), 1),
        alarm=alarm,
        progress=jax.tree.map(lambda leaf: leaf - jnp.arange(4), begin.progress),
        widths=dataclasses.replace(
            begin.widths, residuals=residuals, seen=jnp.array([600.0, 30.0, 900.0, 0.0, 700.0])
        ),
        iteration=jnp.zeros((), dtype=int) + 101,
    )


@jax.jit
def permuted(state):
    """The same clusters in another order."""

    def rows(tree):
        def moved(leaf):
            return jnp.concatenate([leaf[:4][ORDER], leaf[4:]])

        return jax.tree.map(moved, tree)

    places = jnp.argsort(ORDER)
    alarm = state.alarm
    sums = rows((alarm.total, alarm.weight, alarm.squared, alarm.used))
    return dataclasses.replace(
        state,
        **{
            name: rows(getattr(state, name))
            for name in ("members", "alive", "age", "counts", "inputs", "progress", "widths")
        },
        alarm=dataclasses.replace(
            alarm, **dict(zip(("total", "weight", "squared", "used"), sums, strict=True))
        ),
        trial=dataclasses.replace(state.trial, parent=places[state.trial.parent]),
        scout=dataclasses.replace(state.scout, home=places[state.scout.home]),
    )


@jax.jit
def living(state):
    """All of a state but its only dead row, the fourth."""
    cut = partial(jax.tree.map, lambda leaf: jnp.concatenate([leaf[:3], leaf[4:]]))
    alarm = state.alarm
    return (
        [cut(getattr(state, name)) for name in ("members", "alive", "age", "counts", "widths")],
        cut((alarm.total, alarm.weight, alarm.squared, alarm.used, state.progress)),
        (alarm.wealth, alarm.raised, alarm.since, alarm.calm),
        (state.trial, state.scout, state.background, state.iteration),
    )


def task_of(batch):
    return jax.tree.map(lambda leaf: leaf[0], (batch.support, batch.query.x))


def assert_close(a, b):
    chex.assert_trees_all_close(a, b, rtol=1e-3, atol=1e-4)


@jax.jit
def with_content(batch, value: float):
    """Other numbers wherever a mask is false."""

    def filled(examples):
        real = examples.mask[..., None]
        return dataclasses.replace(
            examples,
            x=jnp.where(real, examples.x, value),
            y=jnp.where(real, examples.y, value),
        )

    return dataclasses.replace(batch, support=filled(batch.support), query=filled(batch.query))


@jax.jit
def masked(batch, support, query):
    return dataclasses.replace(
        batch,
        support=dataclasses.replace(batch.support, mask=batch.support.mask & support),
        query=dataclasses.replace(batch.query, mask=batch.query.mask & query),
    )


@pytest.fixture(scope="module")
def after(step, state, batch):
    return step(state, batch)


def test_a_step_of_the_handmade_state_teaches_several_rows(state, after):
    """Without this, much below would hold for want of anything that happens."""
    moved = after[0].members.updates - state.members.updates
    assert (moved > 0).tolist() == [True, True, False, False, True]
    before, now = (
        (s.members.reservoir.offered.sum(), s.members.reference.sample.offered.sum())
        for s in (state, after[0])
    )
    assert now[0] > before[0]
    assert now[1] > before[1]


def unexplained(state, batch, held: int):
    """An E-step whose first ``held`` tasks are their best cluster's, the rest the background's."""
    seen = explained(ALONE, state, batch, batch.real)
    kept = (jnp.arange(batch.real.size) < held)[:, None]
    shares = jnp.concatenate([seen.best & kept, ~kept], axis=1).astype(float)
    return dataclasses.replace(seen, shares=shares, unlike=jnp.zeros_like(seen.unlike))


@jax.jit
def after_predicting(state, batch, held):
    return predicted(ALONE, state, batch, unexplained(state, batch, held), batch.real)[1]


@jax.jit
def after_learning(state, batch, held):
    nothing, kept = jnp.zeros(4), jnp.zeros(4, dtype=bool)
    seen = unexplained(state, batch, held)
    return learned(ALONE, state, batch, seen, nothing, nothing, kept, KEY)


@pytest.mark.parametrize(("held", "seen"), [(0, [0, 0]), (4, [4, 4])])
def test_widths_are_those_of_clusters_with_tasks_in_the_batch(state, batch, held, seen):
    """All four tasks are routed to clusters with large weights; two targets of each count."""
    now = after_predicting(state, batch, held)
    assert (now.widths.seen - state.widths.seen)[:2].tolist() == seen


@pytest.mark.parametrize(("held", "offered"), [(0, 0), (1, 2)])
def test_what_nothing_explains_teaches_only_clusters_with_other_tasks(state, batch, held, offered):
    """The first and third task are most like the tasks of the first cluster."""
    now = after_learning(state, batch, held)
    new = now.members.reservoir.offered - state.members.reservoir.offered
    assert new.tolist() == [offered, 0, 0, 0, 0]


def test_permuting_the_clusters_permutes_the_next_state(step, state, after, batch):
    assert_close(step(permuted(state), batch)[0], permuted(after[0]))


def test_permuting_the_clusters_permutes_the_responsibilities(step, state, after, batch):
    info, other = after[1], step(permuted(state), batch)[1]
    assert_close(other.responsibilities, info.responsibilities[:, ORDER])
    assert_close(*((one.loss, one.error, one.suspicion) for one in (info, other)))


def test_permuting_the_clusters_permutes_the_components_of_a_prediction(predict, state, batch):
    one, other = (predict(s, *task_of(batch)) for s in (state, permuted(state)))
    assert_close(other.components, one.components[ORDER])
    assert_close(other.responsibilities, one.responsibilities[ORDER])
    same = [(p.mean, p.variance, p.noise, p.background, p.novelty) for p in (one, other)]
    assert_close(*same)


def test_content_of_padding_tasks_changes_no_bit(step, state, batch):
    present = jnp.array([True, True, True, False])[:, None]
    ragged = masked(batch, present, present)
    expected = step(state, with_content(ragged, 0.0))
    chex.assert_trees_all_equal(step(state, with_content(ragged, jnp.nan)), expected)


def test_content_of_masked_examples_changes_no_bit(step, state, batch):
    ragged = masked(batch, jnp.arange(3) < 2, jnp.arange(4) != 1)
    expected = step(state, with_content(ragged, 0.0))
    chex.assert_trees_all_equal(step(state, with_content(ragged, 1e30)), expected)


def test_content_of_masked_examples_changes_no_bit_of_a_prediction(predict, state, batch):
    ragged = masked(batch, jnp.arange(3) < 2, True)
    expected = predict(state, *task_of(with_content(ragged, 0.0)))
    chex.assert_trees_all_equal(predict(state, *task_of(with_content(ragged, jnp.nan))), expected)


def test_a_batch_of_padding_changes_nothing(step, state, batch):
    chex.assert_trees_all_equal(step(state, masked(batch, False, False))[0], state)


def test_the_error_of_padding_is_not_a_number(step, state, batch):
    present = jnp.array([True, False, True, True])[:, None]
    _, info = step(state, masked(batch, present, present))
    assert jnp.isnan(info.error).tolist() == [False, True, False, False]
    assert not info.responsibilities[1].any()


@jax.jit
def with_garbage(state):
    """The dead row holds what is not a number, or whatever else its type allows."""
    garbage = {"f": jnp.nan, "b": True}

    def broken(leaf):
        return leaf.at[3].set(jnp.full_like(leaf[3], garbage.get(leaf.dtype.kind, 7)))

    alarm = state.alarm
    total, weight = alarm.total.at[3].set(-1e6), alarm.weight.at[3].set(1e3)
    return dataclasses.replace(
        state,
        members=jax.tree.map(broken, state.members),
        age=state.age.at[3].set(10**6),
        alarm=dataclasses.replace(alarm, total=total, weight=weight),
        progress=jax.tree.map(broken, state.progress),
        widths=jax.tree.map(lambda leaf: leaf.at[3].set(1e3), state.widths),
    )


def test_content_of_dead_rows_changes_no_bit_of_the_next_state(step, state, after, batch):
    chex.assert_trees_all_equal(living(step(with_garbage(state), batch)[0]), living(after[0]))


def test_content_of_dead_rows_changes_no_bit_of_what_a_step_tells(step, state, after, batch):
    chex.assert_trees_all_equal(step(with_garbage(state), batch)[1], after[1])


def test_content_of_dead_rows_changes_no_bit_of_a_prediction(predict, state, batch):
    same = [
        (p.mean, p.variance, p.noise, p.components, p.responsibilities, p.background, p.novelty)
        for p in (predict(s, *task_of(batch)) for s in (state, with_garbage(state)))
    ]
    chex.assert_trees_all_equal(*same)


def test_the_error_that_a_step_tells_is_that_of_a_prediction(predict, state, after, batch):
    predicted = predict(state, *task_of(batch)).mean
    expected = jnp.mean(jnp.square(predicted - batch.query.y[0]))
    np.testing.assert_allclose(after[1].error[0], expected, rtol=1e-4)


@jax.jit
def about_to_be_born(state):
    """The candidate has earned to be a cluster."""
    trial = dataclasses.replace(
        state.trial,
        evidence=jnp.zeros(()) + 2 * ALONE.certainty,
        gained=jnp.zeros(()) + 50 * ALONE.worth,
        weight=jnp.zeros(()) + 20,
        age=jnp.zeros((), dtype=int) + 200,
    )
    return dataclasses.replace(state, trial=trial)


def test_a_birth_within_capacity_does_not_compile_the_step_again(step, state, after, batch):
    before = step.traces
    state, info = step(about_to_be_born(state), batch)
    state, _ = step(state, batch)
    assert info.spawned
    assert (step.traces, int(state.alive.sum())) == (before, 4)


def test_a_newborn_is_the_candidate_as_it_has_learned(step, state, batch):
    ready = about_to_be_born(state)
    born, _ = step(ready, batch)
    waits, _ = step(eqx.tree_at(lambda s: s.trial.evidence, ready, jnp.zeros(())), batch)
    chex.assert_trees_all_equal(
        jax.tree.map(lambda leaf: leaf[3], born.members.params),
        jax.tree.map(lambda leaf: leaf[4], waits.members.params),
    )


@pytest.mark.parametrize("inherits", [False, True])
def test_a_candidate_for_what_is_new_begins_at_random_or_as_a_cluster_in_use(
    state, batch, inherits
):
    learner = dataclasses.replace(ALONE, inherits=inherits)

    @jax.jit
    def anew(state):
        keys, no = jax.random.split(KEY), jnp.asarray(False)
        trial = proposed(learner, state, keys, ~no, no)
        return begun(learner, dataclasses.replace(state, trial=trial), batch, KEY)

    after = anew(state)
    last, *clusters = (
        jax.tree.map(lambda leaf, row=row: leaf[row], state_.members.params)
        for state_, row in [(after, 4), *((state, row) for row in range(3))]
    )
    assert after.trial.origin == FRESH
    assert any(bool(eqx.tree_equal(last, one)) for one in clusters) == inherits
    assert not after.members.reservoir.filled[-1].any()


def test_while_the_alarm_is_on_a_new_candidate_follows_the_looks_of_what_is_unlike_all(
    state, batch
):
    """Of four tasks the first two are unlike the cluster that explains them best."""
    seen = explained(ALONE, state, batch, batch.real)
    best = jnp.arange(4) == 1
    unlike = jnp.where(jnp.arange(4)[:, None] < 2, 2 * UNLIKE, 0.0) * (jnp.arange(5) == 1)
    # Other clusters do not count, whatever they make of the tasks.
    unlike += 9 * UNLIKE * (jnp.arange(5) == 2)
    seen = dataclasses.replace(seen, best=jnp.broadcast_to(best, (4, 4)), unlike=unlike)
    lessons = jnp.full(4, 0.1)

    def at(raised, origin, age):
        trial = eqx.tree_at(lambda one: one.age, Trial.begin(origin), jnp.asarray(age))
        alarm = dataclasses.replace(state.alarm, raised=jnp.asarray(raised))
        asked = dataclasses.replace(state, trial=trial, alarm=alarm)
        return followed(asked, seen, lessons).tolist()

    assert at(True, FRESH, 0) == pytest.approx([1, 1, 0.1, 0.1])
    for nothing in (at(False, FRESH, 0), at(True, HARDER, 0), at(True, FRESH, BEGINNING)):
        assert nothing == pytest.approx([0.1] * 4)


def test_without_a_scout_nothing_is_bet_and_nothing_moves(state, batch):
    learner = dataclasses.replace(ALONE, scouting=0)
    seen = explained(learner, state, batch, batch.real)
    won, betting = bets(learner, state, batch, seen, state.alive)
    assert (float(won), bool(betting)) == (0.0, False)
    after = scouted(learner, state, batch, seen, batch.real)
    chex.assert_trees_all_equal(after, state.scout)


def test_nothing_is_born_without_room(step, state, batch):
    copied = jax.jit(partial(jax.tree.map, lambda leaf: leaf.at[3].set(leaf[0])))
    full = dataclasses.replace(
        about_to_be_born(state),
        members=copied(state.members),
        alive=jnp.ones(4, dtype=bool),
        age=copied(state.age),
    )
    waits, info = step(full, batch)
    assert not info.spawned
    assert waits.trial.evidence > ALONE.certainty


def test_states_keep_their_types_from_the_first_on(step, batches, after):
    """Another type, even a weak one, would compile the step again."""
    before = step.traces
    state = jax.jit(ALONE.init)(KEY, batches[0])
    for batch in batches[:2]:
        state, _ = step(state, batch)
    assert step.traces == before == 1


def test_growing_changes_no_prediction(predict, state, batch):
    grown = grow(state)
    one, other = (predict(s, *task_of(batch)) for s in (state, grown))
    assert not other.responsibilities[4:].any()
    same = [
        (p.mean, p.variance, p.components[:4], p.responsibilities[:4], p.background, p.novelty)
        for p in (one, other)
    ]
    chex.assert_trees_all_close(*same, rtol=1e-5, atol=1e-6)


def test_growing_keeps_the_rows_of_clusters_and_the_last_ones(state):
    grown = grow(state)

    def narrow(wide):
        return np.concatenate([wide[:4], wide[8:]])

    for name in ("members", "alive", "age", "counts", "inputs", "progress", "widths"):
        found = jax.tree.map(narrow, getattr(grown, name))
        chex.assert_trees_all_equal(found, jax.tree.map(np.asarray, getattr(state, name)))
    assert not grown.alive[4:].any()


def test_growing_makes_room(state):
    full = dataclasses.replace(state, alive=jnp.ones(4, dtype=bool))
    assert not ALONE.has_room(full, 1)
    assert ALONE.has_room(grow(full), 1)


def test_parameters_are_counted_for_living_clusters_only(state):
    one = sum(leaf.size for leaf in jax.tree.leaves(HEAD.init(KEY)))
    assert ALONE.parameters(state) == 3 * one


@pytest.fixture(scope="module")
def told(same_draws):
    return Counted(TOLD)


def hinted(batch, boundary: bool):
    hints = Hints(jnp.zeros(batch.query.mask.shape[0], dtype=int), jnp.asarray(boundary))
    return dataclasses.replace(batch, hints=hints)


def run(step, state, batches, boundaries=()):
    """The last state and, of each step, whether an alarm began, was on, and a cluster opened."""
    history = []
    for iteration, batch in enumerate(batches):
        state, info = step(state, hinted(batch, iteration in boundaries), KEY)
        history.append((bool(info.alarm), bool(state.alarm.raised), bool(info.spawned)))
    return state, np.array(history).T


def test_one_cluster_learns_what_a_single_model_learns(same_draws, told, batches):
    """To rounding, as long as it is young and each batch has at least as many tasks as are
    rehearsed; what a reservoir draws depends on the key, and is made the same here."""
    settings = {"reservoir": 64, "rehearsed": 4, "meta_rate": TOLD.meta_rate}
    single = SingleModel(HEAD, **settings)
    mixture, _ = run(told, begin_told(KEY, batches[0]), batches[:25])
    # A mixture keeps one half of its key for the candidate.
    alone = jax.jit(single.init)(jax.random.split(KEY)[0], batches[0])
    learn = jax.jit(single.step)
    for batch in batches[:25]:
        alone, _ = learn(alone, batch, KEY)
    first = jax.tree.map(lambda leaf: leaf[0], (mixture.members.params, mixture.members.optimiser))
    assert mixture.alive.tolist() == [True, False, False, False]
    chex.assert_trees_all_close(first, (alone.params, alone.optimiser), rtol=1e-3, atol=1e-4)


@pytest.fixture(scope="module")
def long_told(told, batches):
    """Sinusoids, then steps; a boundary is told in the middle and again, long after, at 90."""
    shifted = drawn("step", 30, tasks=4)
    stream = [*batches, *shifted, *shifted, *batches, *batches]
    boundaries = (30, 90)
    return run(told, begin_told(KEY, batches[0]), stream, boundaries)


def test_alarm_begins_exactly_at_the_boundaries_told(long_told):
    _, (began, _, _) = long_told
    assert np.flatnonzero(began).tolist() == [30, 90]


def test_clusters_are_opened_only_while_the_alarm_is_on(long_told):
    _, (_, raised, spawned) = long_told
    assert spawned.any()
    assert raised[spawned].all()


def test_without_a_boundary_nothing_is_opened(told, batches):
    _, (_, raised, spawned) = run(told, begin_told(KEY, batches[0]), [*batches, *batches])
    assert not raised.any()
    assert not spawned.any()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("meta_rate", 0.0),
        ("averaging_rate", 0.0),
        ("averaging_rate", 1.5),
        ("memory", 0.0),
        ("persistence", -1.0),
        ("certainty", 0.0),
        ("worth", 0.0),
        ("keep_worth", -1.0),
        ("false_alarms", 0.0),
        ("false_alarms", 1.0),
        ("lowness", float("nan")),
        ("scouting", -1),
        ("settled", 0.0),
        ("reservoir", -1),
        ("reference", -1),
        ("rehearsed", -1),
        ("updates", 0),
        ("wander", -0.1),
        ("held_out", 1.0),
        ("held_out", -0.1),
        ("capacity", 0),
        ("youth", 0),
        ("maturity", 0),
        ("probation", 0),
        ("parting", 400),
        ("review", 0),
        ("calm", 0),
        ("patience", 0),
        ("memory", 0.5),
    ],
)
def test_an_impossible_setting_is_named(name, value):
    with pytest.raises(ValueError, match=name):
        OnlineMixture(**{name: value})
