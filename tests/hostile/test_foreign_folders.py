"""Folders of others are told by their content, before the first byte is written."""

import json

import pytest
from tests.hostile.conftest import COMPARE, RUN, quietly

FOREIGN = {
    "another program's settings": {"config.json": '{"debug": true}', "main.py": "x"},
    "another program's command": {"command.json": '{"command": "make"}', "main.py": "x"},
    "a command of another program": {"command.json": '{"command": ["rm", "-r"]}'},
    "settings that are no JSON": {"config.json": "debug = true"},
    "settings that are no object": {"config.json": "[1]"},
    "a lock and more": {"lock": "", "main.py": "x"},
    "something else": {"main.py": "x"},
    "half a file, and more": {"config.json.partial": "", "main.py": "x"},
}


def files_in(folder) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("command", [RUN, COMPARE], ids=["run", "compare"])
def test_foreign_folder_is_left_as_it_was(tmp_path, command, content):
    for name, text in content.items():
        (tmp_path / name).write_text(text)
    code, said = quietly(*command, "--out", tmp_path)
    assert (code, said.count("\n")) == (2, 1)
    assert files_in(tmp_path) == content


def without_times(folder) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("command", "held", "said_of"),
    [
        (COMPARE, "run", "holds a run"),
        (["reproduce", "figure-7", "--seeds", "0"], "run", "holds a run"),
        (RUN, "comparison", "holds a comparison"),
        (RUN, "comparison/maml/seed-0", "part of a comparison"),
        (COMPARE, "comparison/maml/seed-0", "holds a run"),
        (COMPARE, "model", "not a folder of taskmix"),
        (RUN, "store", "not a folder of taskmix"),
    ],
)
def test_runs_and_comparisons_are_kept_apart(good, command, held, said_of):
    before = without_times(good)
    code, said = quietly(*command, "--out", good / held)
    assert code == 2
    assert said_of in said
    assert without_times(good) == before


@pytest.mark.parametrize("names", [(), ("lock",), ("lock", "command.json.partial")])
def test_folder_that_was_just_begun_is_gone_on_with(tmp_path, names):
    for name in names:
        (tmp_path / name).write_text("{")
    assert quietly(*RUN, "--out", tmp_path) == (0, "")


def test_refused_run_leaves_the_command_as_it_was(good):
    before = (good / "run" / "command.json").read_bytes()
    code, said = quietly(*RUN, "--hidden", "3", "--out", good / "run")
    assert code == 2
    assert "begun with other settings" in said
    assert (good / "run" / "command.json").read_bytes() == before


def test_output_named_in_a_foreign_command_is_not_written_to(good, tmp_path):
    """The folder to go on in is the one that was named, whatever the command in it says."""
    path = good / "run" / "command.json"
    command = json.loads(path.read_text())["command"]
    elsewhere = str(tmp_path / "elsewhere")
    for more in (["--out", elsewhere], [f"--out={elsewhere}"]):
        path.write_text(json.dumps({"command": [*command, *more]}))
        assert quietly("resume", good / "run") == (0, "")
    assert not (tmp_path / "elsewhere").exists()
