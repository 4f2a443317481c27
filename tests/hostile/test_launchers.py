"""Options of a scheduler, which a foreign folder may hold: words, and never commands of a shell."""

import json
import sys
import types

import pytest
from tests.hostile.conftest import COMPARE, quietly

from taskmix.experiments.launching import Launcher

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
