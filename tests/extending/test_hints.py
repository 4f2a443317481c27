"""A learner sees what it is told and nothing else, wherever tasks come from."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

import taskmix as tm
from taskmix.evaluation import evaluate
from taskmix.learner import visible
from taskmix.training.moments import run_keys
from taskmix.training.programs import _iterate

KEY = jax.random.key(0)
STREAM = tm.streams.regression(("linear", "step"), (3, 2), tasks=2)
SMALL = tm.MLP(hidden=(2,))
ONE_STEP = tm.Adaptation(steps=1)
NOTHING, FAMILY, BOUNDARY = (False, False), (True, False), (False, True)
LEARNERS = {
    NOTHING: tm.MAML(SMALL, adaptation=ONE_STEP),
    BOUNDARY: tm.EWC(SMALL, adaptation=ONE_STEP),
    FAMILY: tm.PerFamily(tm.Gradient(SMALL, adaptation=ONE_STEP), families=2),
}


def shown(hints):
    if hints is None:
        return NOTHING
    return hints.family is not None, hints.boundary is not None


@pytest.mark.parametrize("expected", LEARNERS)
def test_loop_and_evaluation_show_what_told_says(expected, monkeypatch):
    learner, seen = LEARNERS[expected], []
    step, predict = type(learner).step, type(learner).predict

    def spying_step(self, state, batch, key):
        seen.append(shown(batch.hints))
        return step(self, state, batch, key)

    def spying_predict(self, state, support, query_x, hints=None, query_mask=None):
        seen.append(shown(hints))
        return predict(self, state, support, query_x, hints, query_mask)

    state = jax.eval_shape(lambda: learner.init(KEY, visible(learner, STREAM.batch(KEY, 0))))
    monkeypatch.setattr(type(learner), "step", spying_step)
    monkeypatch.setattr(type(learner), "predict", spying_predict)
    jax.eval_shape(
        lambda state: _iterate(learner, STREAM, jnp.asarray(0), run_keys(0), state), state
    )
    test = jax.tree.map(lambda leaf: leaf[None], STREAM.test_tasks(KEY, 0, 3))
    jax.eval_shape(lambda state: evaluate(learner, state, test), state)
    assert set(seen) == {expected}
    assert len(seen) >= 2


@dataclasses.dataclass(frozen=True)
class Unlabelled:
    """A stream that knows nothing of families."""

    families = ("all",)
    phases = (tm.streams.Phase(0, 4, ("all",)),)

    def batch(self, key, iteration):
        return STREAM.batch(key, iteration).without_hints()

    def test_tasks(self, key, family, tasks):
        return STREAM.test_tasks(key, 0, tasks).without_hints()

    def load(self, drawn):
        return drawn


def test_stream_without_hints_can_be_learned_from():
    fitted = tm.fit(LEARNERS[NOTHING], Unlabelled(), settings=tm.Settings(test_tasks=2))
    assert list(fitted.summaries[0]["prequential"]) == ["all"]


@pytest.mark.parametrize(("told", "what"), [(FAMILY, "family"), (BOUNDARY, "boundary")])
def test_learner_that_has_to_be_told_says_so(told, what):
    with pytest.raises(ValueError, match=f"has to be told the {what} of tasks"):
        tm.fit(LEARNERS[told], Unlabelled())


@dataclasses.dataclass(frozen=True)
class Flat(Unlabelled):
    """A stream that has forgotten the axis of features."""

    def batch(self, key, iteration):
        whole = super().batch(key, iteration)
        return jax.tree.map(lambda leaf: leaf[..., 0] if leaf.ndim == 3 else leaf, whole)


def test_batch_of_the_wrong_shape_is_named_before_anything_is_compiled():
    with pytest.raises(ValueError, match=r"support\.x has shape \(2, 5\).*features"):
        tm.fit(LEARNERS[NOTHING], Flat())


def test_task_of_a_batch_has_the_shapes_of_one():
    task = STREAM.batch(KEY, 0).task(1)
    assert task.support.x.shape == (5, 1)
    assert task.hints.family.shape == ()
