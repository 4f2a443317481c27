"""Options of a scheduler, which a foreign folder may hold: words, and never commands of a shell."""

import json
import sys
import types

import pytest
from tests.hostile.conftest import COMPARE, RUN, quietly

from taskmix.experiments.launching import Launcher
from taskmix.machine import ask_for_devices, join

REFUSED = {
    "a line of its own in the script of a job": "slurm_comment=x\ntouch pwned",
    "a return in the script of a job": "slurm_comment=x\rtouch pwned",
    "an escape sequence": "name=\x1b[2J",
    "a command before the job": "local_setup=w",
    "the same by its old name": "setup=w",
    "a command after the job": "slurm_teardown=w",
    "arguments of srun": "slurm_srun_args=w",
    "any parameter": "slurm_additional_parameters=w",
    "a job on several nodes": "nodes=2",
    "several processes for a job": "tasks_per_node=2",
    "no name": "=3",
    "no value": "mem_gb=",
    "no option": "cpu",
}


@pytest.mark.parametrize("option", REFUSED.values(), ids=REFUSED)
def test_option_that_is_more_than_a_word_is_refused(option):
    with pytest.raises(ValueError, match="options has") as refusal:
        Launcher("slurm", options=(option,))
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize(
    "option", ["mem_gb=x", "timeout_min=abc", "mem_gb=²", "visible_gpus=x", "local_x=1", "x=y"]
)
def test_option_that_submitit_does_not_take_is_refused_in_one_line(tmp_path, option):
    with pytest.raises(ValueError, match="submitit cannot use local") as refusal:
        Launcher("local", options=(option,)).executor(tmp_path)
    assert "\n" not in str(refusal.value)


def test_command_of_a_foreign_folder_brings_no_command_for_the_shell(good, monkeypatch):
    """``resume`` gives the command in ``command.json`` once more."""
    monkeypatch.setitem(sys.modules, "submitit", types.SimpleNamespace(AutoExecutor=None))
    command = [*COMPARE, "--launcher", "slurm", "--options", "slurm_comment=x\ntouch pwned"]
    (good / "comparison" / "command.json").write_text(json.dumps({"command": command}))
    code, said = quietly("resume", good / "comparison")
    assert (code, said.count("\n")) == (2, 1)
    assert "one line of plain text" in said


@pytest.mark.parametrize("words", [["--coordinator", "evil:1"], ["--coordinator=evil:1"]])
def test_folder_leads_nobody_to_an_address(good, monkeypatch, words):
    monkeypatch.setattr("taskmix.cli.run.join", lambda *_: pytest.fail("it is called"))
    path = good / "run" / "command.json"
    command = [*json.loads(path.read_text())["command"], *words, "--processes", "2"]
    path.write_text(json.dumps({"command": command}))
    code, said = quietly("resume", good / "run")
    assert code == 2
    assert "give the command of each of them once more" in said


@pytest.mark.parametrize(
    "coordinator",
    ["", ":1", "node", "node:", "node:0", "node:65536", "node:²", "node:" + "9" * 5000, "\x1b:1"],
)
def test_address_that_is_none_is_refused(coordinator):
    with pytest.raises(ValueError, match="HOST:PORT") as refusal:
        join(coordinator, 2, 0)
    assert str(refusal.value).isprintable()


def test_more_devices_than_a_processor_could_be_shared_out_to_are_refused():
    with pytest.raises(ValueError, match="devices is 1000000"):
        ask_for_devices(1_000_000)
    code, said = quietly(*RUN, "--devices", "1000000", "--out", "runs/none")
    assert (code, said.count("\n")) == (2, 1)
