"""A package outside the tree adds five parts by entry points, and they are everywhere."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

PARTS = '''
"""Parts of somebody else's."""
import dataclasses

import jax
import jax.numpy as jnp

import taskmix as tm
from taskmix.likelihood import masked_mean
from taskmix.models.mlp import Linear
from taskmix.streams import Phase


@dataclasses.dataclass(frozen=True)
class Patient(tm.MAML):
    """One initialisation, learned slowly."""

    patience: float = 2.0
    """How much more slowly."""

    def _optimiser(self):
        import optax

        return optax.sgd(self.meta_rate / self.patience)


@dataclasses.dataclass(frozen=True)
class Straight:
    """A linear network."""

    inputs: int = 1
    outputs: int = 1
    one_at_a_time = False

    @classmethod
    def fitting(cls, shape, outputs):
        return cls(shape[0], outputs)

    def init(self, key):
        return (Linear(0.1 * jax.random.normal(key, (self.inputs, self.outputs)),
                       jnp.zeros(self.outputs)),)

    def apply(self, params, x, mask=None):
        return x @ params[0].weight + params[0].bias

    def adaptable(self, params):
        return jax.tree.map(lambda _: True, params)


@dataclasses.dataclass(frozen=True)
class Robust:
    """Absolute deviations."""

    scale: float = 1.0

    def loss(self, outputs, y):
        return jnp.mean(jnp.abs(outputs - y), axis=-1) / self.scale

    def log_likelihood(self, outputs, y):
        return -jnp.sum(jnp.abs(outputs - y), axis=-1) / self.scale

    def predictive(self, outputs):
        return outputs

    def error(self, predicted, y):
        return self.loss(predicted, y)


@dataclasses.dataclass(frozen=True)
class Slopes:
    """Lines through the origin."""

    steepness: float = 1.0
    """Largest slope."""
    iterations: int = 6
    """Batches."""

    families = ("slope",)

    @property
    def phases(self):
        return (Phase(0, self.iterations, self.families),)

    def batch(self, key, iteration):
        return self._tasks(jax.random.fold_in(jax.random.fold_in(key, 0), iteration), 3)

    def test_tasks(self, key, family, tasks):
        return self._tasks(jax.random.fold_in(key, 1), tasks)

    def load(self, drawn):
        return drawn

    def _tasks(self, key, tasks):
        one, other = jax.random.split(key)
        x = jax.random.normal(one, (tasks, 8, 1))
        y = self.steepness * jax.random.uniform(other, (tasks, 1, 1)) * x
        hints = tm.Hints(jnp.zeros(tasks, dtype=int), jnp.asarray(False))
        full = tm.Examples.full
        return tm.TaskBatch(full(x[:, :4], y[:, :4]), full(x[:, 4:], y[:, 4:]), hints)


def _worst(course):
    return float(course.error[-1].max())


worst = tm.Measure("worst", _worst, "smaller", "worst family")
'''

ENTRIES = """
[taskmix.learners]
patient = foreign_parts:Patient
broken = foreign_parts:Missing
[taskmix.models]
straight = foreign_parts:Straight
[taskmix.likelihoods]
robust = foreign_parts:Robust
[taskmix.streams]
slopes = foreign_parts:Slopes
[taskmix.measures]
worst = foreign_parts:worst
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder as pip leaves it."""
    site = tmp_path_factory.mktemp("site")
    (site / "foreign_parts.py").write_text(PARTS)
    info = site / "foreign_parts-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign-parts\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    return site


SCRIPT = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from taskmix.cli import main
for command in json.loads(sys.argv[2]):
    print("code", main(command))
print("pick", json.dumps(sorted(name for name in sys.modules if name == "foreign_parts")))
import taskmix as tm
predictor = tm.load(sys.argv[3])
prediction = predictor.predict([[1.0], [2.0]], [[0.5], [1.0]], [[3.0]])
print("model", type(predictor.learner).__name__, predictor.learner.patience, prediction.mean.shape)
"""


@pytest.fixture(scope="module")
def said(installed, tmp_path_factory) -> tuple[str, str, Path]:
    """What a user of the package sees, in a process of their own."""
    out = tmp_path_factory.mktemp("runs")
    few = ["--quiet", "--evaluate-every", "6", "--test-tasks", "3", "--adaptation.steps", "1"]
    parts = ["--network", "straight", "--likelihood", "robust", "--steepness", "3"]
    one = ["--method", "patient", "--patience", "4"]
    three = ["--methods", "patient", "maml", "mixture:2", "--seeds", "0"]
    commands = [
        ["methods"],
        ["run", "slopes", "--out", str(out / "run"), *one, *parts, *few],
        ["compare", "slopes", "--out", str(out / "both"), *three, *parts, *few],
        ["export", str(out / "run"), "--out", str(out / "model")],
        ["report", str(out / "both")],
        ["report", str(out / "run")],
        ["run", "slopes", "--method", "broken", "--out", str(out / "no")],
    ]
    source = str(Path(importlib.import_module("taskmix").__file__).parents[1])
    arguments = [json.dumps([source, str(installed)]), json.dumps(commands), str(out / "model")]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr, out


def test_commands_succeed_but_for_the_one_that_asks_for_what_is_broken(said):
    codes = [line.split()[1] for line in said[0].splitlines() if line.startswith("code")]
    assert codes == ["0", "0", "0", "0", "0", "0", "2"]


def test_learner_is_listed_and_a_broken_one_harms_nobody(said):
    assert "patient" in said[0]
    assert "One initialisation, learned slowly" in said[0]
    assert "broken cannot be used: AttributeError" in said[0]
    assert "The method 'broken' cannot be used" in said[1]
    assert "(package foreign-parts)" in said[1]


def test_run_is_made_of_the_foreign_parts(said):
    config = json.loads((said[2] / "run" / "config.json").read_text())
    assert config["learner"]["type"] == "foreign_parts:Patient"
    assert config["learner"]["patience"] == 4.0
    assert config["learner"]["model"]["type"] == "foreign_parts:Straight"
    assert config["learner"]["likelihood"]["type"] == "foreign_parts:Robust"
    assert config["stream"] == {"type": "foreign_parts:Slopes", "steepness": 3.0, "iterations": 6}


def test_comparison_has_the_foreign_measure_in_file_and_table(said):
    comparison = json.loads((said[2] / "both" / "comparison.json").read_text())
    assert comparison["experiment"] == "slopes"
    assert comparison["measures"]["worst"] == {"title": "worst family", "better": "smaller"}
    for method in ("patient", "maml", "mixture:2"):
        found = comparison["methods"][method]
        assert found["measures"]["worst"]["mean"] == pytest.approx(found["final"]["slope"]["mean"])
    assert "worst" in said[0]


def test_reports_and_figures_show_the_foreign_parts(said):
    """Of the run its learner, network, likelihood and stream; of the comparison the measure."""
    one, both = ((said[2] / name / "report.html").read_text() for name in ("run", "both"))
    for part in ("patient", "foreign_parts:Straight", "foreign_parts:Robust", "slopes"):
        assert part in one, part
    for part in ("patient", "worst family", "slope"):
        assert part in both, part
    assert list((said[2] / "both" / "figures").glob("*.png"))


def test_exported_model_of_foreign_parts_is_loaded_and_predicts(said):
    assert "model Patient 4.0 (1, 1)" in said[0]
    assert "# patient on slopes" in (said[2] / "model" / "README.md").read_text()
