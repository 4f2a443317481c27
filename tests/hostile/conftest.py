"""Good folders to be tampered with: a run, a comparison, a model and a store, made once."""

import contextlib
import io
import shutil

import numpy as np
import pytest
from PIL import Image
from tests.hostile.limits import Limited

from taskmix.cli import main

SMALL = [
    *("--families", "linear", "step", "--lengths", "4", "3", "--tasks", "2", "--hidden", "2"),
    *("--adaptation.steps", "1", "--evaluate-every", "2", "--test-tasks", "2"),
    *("--checkpoint-minutes", "0", "--quiet"),
]
RUN = ["run", "regression", "--method", "maml", *SMALL]
COMPARE = ["compare", "regression", "--methods", "maml", "--seeds", "0", "1", *SMALL]


def quietly(*arguments) -> tuple[int, str]:
    """The exit code of a command, and what it said on standard error."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = main([str(argument) for argument in arguments])
    return code, said.getvalue()


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    assert quietly(*RUN, "--out", folder / "run") == (0, "")
    assert quietly(*COMPARE, "--out", folder / "comparison") == (0, "")
    assert quietly("export", folder / "run", "--out", folder / "model") == (0, "")
    rng = np.random.default_rng(0)
    for number, label in enumerate("aabbcc"):
        path = folder / "images" / label / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (9, 9, 3), np.uint8)).save(path)
    prepare = ["data", "prepare", folder / "images", "--out", folder / "store", "--size", "8"]
    assert quietly(*prepare, "--splits", "0.4", "0.3", "0.3", "--quiet") == (0, "")
    return folder


@pytest.fixture(scope="package")
def limited():
    """One process for all tests that need it: to start one, and to compile in it, takes long."""
    with Limited() as process:
        yield process


@pytest.fixture
def good(made, tmp_path):
    """Copies of all of them, for one test."""
    shutil.copytree(made, tmp_path / "good")
    return tmp_path / "good"


@pytest.fixture
def outside(tmp_path):
    """What no command may touch: a file and a folder beside the good ones."""
    folder = tmp_path / "outside"
    (folder / "folder").mkdir(parents=True)
    (folder / "file").write_text("precious")
    (folder / "folder" / "kept").write_text("precious")
    return folder


def untouched(outside) -> bool:
    found = {str(path.relative_to(outside)) for path in outside.rglob("*")}
    return (
        found == {"file", "folder", "folder/kept"}
        and (outside / "file").read_text() == "precious"
        and (outside / "folder" / "kept").read_text() == "precious"
    )
