"""What ``import taskmix as tm`` offers, and what it costs."""

import ast
import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import taskmix as tm
from taskmix.streams import Until

SOURCE = Path(tm.__file__).parent
STREAM = tm.streams.regression(("linear", "step"), (6, 4), tasks=2)
SMALL = tm.MAML(tm.MLP(hidden=(4,)), adaptation=tm.Adaptation(steps=1))
FEW = tm.Settings(evaluate_every=10, test_tasks=2)


def run(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_takes_less_than_a_tenth_of_a_second_and_no_jax():
    """Of computing, so that other programs on the machine do not count."""
    timed = "import time; t = time.process_time(); import taskmix; s = time.process_time() - t; "
    script = f"{timed} import sys; print(s, 'jax' in sys.modules)"
    every = [run(script).split() for _ in range(3)]
    assert {jax for _, jax in every} == {"False"}
    assert min(float(seconds) for seconds, _ in every) < 0.1


def test_every_public_name_can_be_had_and_is_listed():
    assert set(dir(tm)) == set(tm.__all__)
    for name in tm.__all__:
        assert getattr(tm, name) is not None


def test_type_checkers_are_told_the_same_names_as_users():
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    told = {alias.asname for node in block.body for alias in node.names}
    assert told | {"__version__"} == set(tm.__all__)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'TabelLearner'"):
        _ = tm.TabelLearner


@pytest.mark.parametrize("name", [name for name in tm.__all__ if name != "__version__"])
def test_public_name_has_a_docstring_with_an_example_that_runs(name):
    """Doctests themselves are run where they stand."""
    thing = getattr(tm, name)
    text = inspect.getdoc(thing) or ""
    assert doctest.DocTestParser().get_examples(text), f"{name} has no example"


def test_loading_a_model_does_not_draw():
    script = "import sys, taskmix as tm; tm.load; tm.compare; print('matplotlib' in sys.modules)"
    assert run(script) == "False"


def test_no_message_of_the_library_speaks_of_flags():
    """It may have been called from Python; only the command line knows of flags."""
    for path in SOURCE.rglob("*.py"):
        if path.parent.name == "cli" or path.name == "machine.py":
            continue
        docstrings = set()
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                docstrings.add(node.value)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                flag = re.search(r"--[a-z]", node.value)
                assert node in docstrings or not flag, (path.name, node.lineno)


def test_fit_without_a_folder_gives_what_a_run_folder_gives(tmp_path):
    alone = tm.fit(SMALL, STREAM, seeds=[3], settings=FEW)
    kept = tm.fit(SMALL, STREAM, seeds=[3], out=tmp_path / "run", settings=FEW)
    for first, second in zip(alone.summaries, kept.summaries, strict=True):
        assert first["final"] == second["final"]
    x = np.linspace(-1, 1, 4)[:, None]
    one, other = (fitted.predictor().predict(x, x, x).mean for fitted in (alone, kept))
    np.testing.assert_array_equal(one, other)


def test_fit_of_several_seeds_has_a_folder_per_seed(tmp_path):
    fitted = tm.fit(SMALL, STREAM, seeds=[1, 0], out=tmp_path / "two", settings=FEW)
    assert [summary["seed"] for summary in fitted.summaries] == [1, 0]
    assert {path.name for path in (tmp_path / "two").iterdir()} == {"seed-0", "seed-1"}
    with pytest.raises(ValueError, match="seed is 7; there are 1, 0"):
        fitted.predictor(7)


def test_fit_ends_after_the_iterations_asked_for():
    fitted = tm.fit(SMALL, STREAM, iterations=3, settings=FEW)
    assert fitted.summaries[0]["iterations"] == 3
    assert list(fitted.summaries[0]["final"]) == ["linear"]
    with pytest.raises(ValueError, match="iterations is 11; the stream has 1 to 10"):
        tm.fit(SMALL, STREAM, iterations=11)


def test_beginning_of_a_stream_is_the_stream():
    key = jax.random.key(0)
    first, whole = Until(STREAM, 8).batch(key, 7), STREAM.batch(key, 7)
    jax.tree.map(np.testing.assert_array_equal, first, whole)
    assert [phase.stop for phase in Until(STREAM, 8).phases] == [6, 8]


def test_comparison_takes_learners_and_varied_settings(tmp_path):
    methods = {"slow": "fomaml:meta_rate=1e-4", "own": SMALL}
    one_step = tm.OwnStream(STREAM, adaptation=tm.Adaptation(steps=1))
    found = tm.compare(methods, one_step, seeds=[0], out=tmp_path / "both", settings=FEW)
    assert list(found["methods"]) == ["slow", "own"]
    assert (tmp_path / "both" / "own" / "seed-0" / "summary.json").exists()


def test_what_cannot_be_learned_from_is_named():
    with pytest.raises(ValueError, match="Did you mean 'regression'"):
        tm.fit("maml", "regresion")
