"""Exported models: what comes back is what was exported, or an error."""

import hashlib
import json
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import taskmix
from taskmix.baselines import MAML
from taskmix.experiments import METHODS, FewShot, Regression
from taskmix.experiments.group import shapes_of
from taskmix.experiments.settings_json import learner_from_json
from taskmix.experiments.sharing import export
from taskmix.models import MLP
from taskmix.tasks import Examples
from taskmix.training import RunFolder
from taskmix.training.checkpoints import Checkpoint, Checkpoints, as_arrays
from taskmix.training.run_folder import as_json

LEARNER = MAML(MLP(hidden=(4,)))
STREAM = Regression(tasks=2).stream()
STATE = LEARNER.init(jax.random.key(3), STREAM.batch(jax.random.key(0), 0))
LINE = {
    "iteration": 10,
    "clusters": 1,
    "families": {
        "polynomial": {"error": 1.5, "ci95": 0.25},
        "sinusoid": {"error": None, "ci95": 0.0},
    },
}
CONFIG = {
    "experiment": "regression",
    "method": "maml",
    "seed": 0,
    "measure": "error",
    "families": ["polynomial", "sinusoid"],
    "learner": as_json(LEARNER),
}


def written(path, config=CONFIG, **arrays):
    """A run folder with one checkpoint."""
    run = RunFolder.open(path, config)
    facts = {"metrics": [LINE], "example": shapes_of(STREAM)}
    kept = as_arrays(STATE, "state") | arrays
    Checkpoints(path / "checkpoints", run.runs).save(Checkpoint(10, kept, facts))
    return path


@pytest.fixture
def exported(tmp_path):
    export(written(tmp_path / "run"), tmp_path / "model")
    return tmp_path / "model"


def test_state_and_settings_come_back_as_they_were(exported):
    predictor = taskmix.load(exported)
    assert predictor.learner == LEARNER
    jax.tree.map(np.testing.assert_array_equal, predictor.state, STATE)


def test_prediction_is_that_of_the_learner(exported):
    x = np.linspace(-1, 1, 5, dtype=np.float32)[:, None]
    prediction = taskmix.load(exported).predict(x, 2 * x, x[:3])
    given = jnp.asarray(x)
    expected = jax.jit(LEARNER.predict)(STATE, Examples.full(given, 2 * given), given[:3])
    np.testing.assert_allclose(prediction.mean, expected.mean, rtol=1e-5)


@pytest.mark.parametrize(
    ("support_x", "support_y", "query_x", "complaint"),
    [
        (np.ones(3), np.ones((3, 1)), np.ones((3, 1)), "support_x has shape"),
        (np.ones((0, 1)), np.ones((0, 1)), np.ones((3, 1)), "support_x has shape"),
        (np.ones((3, 1)), np.ones((2, 1)), np.ones((3, 1)), "3 examples but support_y 2"),
        (np.ones((3, 1)), np.full((3, 1), np.inf), np.ones((3, 1)), "support_y holds numbers"),
        (np.ones((3, 1)), np.ones((3, 1)), np.ones((3, 2)), "query_x has shape"),
        (np.full((3, 1), "a"), np.ones((3, 1)), np.ones((3, 1)), "support_x holds <U1"),
    ],
)
def test_input_that_cannot_be_is_refused(exported, support_x, support_y, query_x, complaint):
    with pytest.raises(ValueError, match=complaint):
        taskmix.load(exported).predict(support_x, support_y, query_x)


def test_card_tells_method_errors_and_use(exported):
    card = (exported / "README.md").read_text()
    for fact in ("# maml on regression", "| polynomial | 1.5 | 0.25 |", "unknown", "taskmix.load"):
        assert fact in card


def test_damaged_model_is_refused(exported):
    draw = random.Random(0)
    for path in sorted(exported.iterdir()):
        if path.name == "README.md":
            continue
        content = path.read_bytes()
        for _ in range(25):
            damaged = bytearray(content)
            bit = draw.randrange(8 * len(content))
            damaged[bit // 8] ^= 1 << bit % 8
            for broken in (damaged, content[: draw.randrange(len(content) - 1)]):
                path.write_bytes(broken)
                with pytest.raises(ValueError, match=str(exported)):
                    taskmix.load(exported)
        path.write_bytes(content)
    assert taskmix.load(exported).learner == LEARNER


@pytest.mark.parametrize("shape", [{}, [], "ab", 3, None, [-1, 1], [2.5]])
def test_shapes_that_are_none_are_refused(exported, shape):
    described = json.loads((exported / "model.json").read_text())
    described["example"]["support"]["y"]["shape"] = shape
    content = json.dumps(described).encode()
    (exported / "model.json").write_bytes(content)
    sums = json.loads((exported / "checksums.json").read_text())
    sums["model.json"] = hashlib.sha256(content).hexdigest()
    (exported / "checksums.json").write_text(json.dumps(sums))
    with pytest.raises(ValueError, match="holds no model that this version can use"):
        taskmix.load(exported)


def test_best_state_is_taken_where_there_is_one(tmp_path):
    run = RunFolder.open(tmp_path / "run", CONFIG)
    best = jax.tree.map(lambda leaf: leaf + 1, STATE)
    facts = {"metrics": [LINE], "example": shapes_of(STREAM), "best": [0.5, 7]}
    arrays = as_arrays(STATE, "state") | as_arrays(best, "best")
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints", run.runs)
    checkpoints.save(Checkpoint(10, arrays, facts))
    export(tmp_path / "run", tmp_path / "model")
    predictor = taskmix.load(tmp_path / "model")
    jax.tree.map(np.testing.assert_array_equal, predictor.state, best)
    assert predictor.facts["iteration"] == 7


def test_run_without_a_checkpoint_cannot_be_exported(tmp_path):
    RunFolder.open(tmp_path / "run", CONFIG)
    with pytest.raises(ValueError, match="has no checkpoint"):
        export(tmp_path / "run", tmp_path / "model")


def test_folder_with_content_is_not_exported_into(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "precious").touch()
    with pytest.raises(OSError, match="choose another folder"):
        export(written(tmp_path / "run"), tmp_path / "model")


@pytest.mark.parametrize("rule", ["ours", "paper"])
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("experiment", [Regression(), FewShot()], ids=["regression", "images"])
def test_every_learner_comes_back_from_its_description(experiment, name, rule):
    method = METHODS[name]
    if rule == "paper" and method.paper is None:
        pytest.skip("has no rule of its own paper")
    if method.classes_only and isinstance(experiment, Regression):
        pytest.skip("is for classes only")
    if method.numbers_only and isinstance(experiment, FewShot):
        pytest.skip("is for numbers only")
    learner = method.rule(rule).build(experiment.shared())
    assert learner_from_json(json.loads(json.dumps(as_json(learner)))) == learner


@pytest.mark.parametrize(
    "change",
    [
        {"type": "Popen"},
        {"type": "MLP"},
        {"meta_rate": "eval"},
        {"meta_rate": True},
        {"meta_rate": [1, 2]},
        {"model": "system"},
        {"model": {"type": "MLP"}},
        {"model": None},
        {"model": 3},
        {"adaptation": {"type": "Adaptation", "steps": "1"}},
        {"more": 1},
    ],
)
def test_description_of_anything_else_is_refused(change):
    with pytest.raises(ValueError, match=r"."):
        learner_from_json({**as_json(LEARNER), **change})


def test_second_prediction_of_a_shape_compiles_nothing(exported):
    predictor = taskmix.load(exported)
    x = np.linspace(-1, 1, 5, dtype=np.float32)[:, None]
    predictor.predict(x, x, x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MAML, "predict", None)
        predictor.predict(x, 2 * x, x + 1)
    assert predictor._compiled._cache_size() == 1
