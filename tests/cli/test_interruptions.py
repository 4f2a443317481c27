"""What a folder remembers of the command that makes it, and output that no one reads."""

import os
import subprocess
import sys

import pytest

from taskmix.cli.interruptions import owned, recalled
from taskmix.training.lock import Refused

FIRST = ["compare", "regression", "--methods", "maml"]
SECOND = [*FIRST, "uniform"]


def test_the_last_command_is_the_one_to_resume(tmp_path):
    for command in (FIRST, SECOND):
        with owned(tmp_path / "out", [*command, "--out", "elsewhere"]):
            pass
        assert recalled(tmp_path / "out") == [*command, "--out", str(tmp_path / "out")]


def test_a_command_that_is_refused_is_forgotten(tmp_path):
    with owned(tmp_path / "out", FIRST):
        pass
    with pytest.raises(Refused, match="other settings"), owned(tmp_path / "out", SECOND):
        raise Refused("begun with other settings")
    assert recalled(tmp_path / "out")[:-2] == FIRST


def test_output_that_no_one_reads_is_no_error():
    code = "import sys; from taskmix.cli import main; sys.exit(main(['--help']))"
    read, write = os.pipe()
    os.close(read)
    try:
        ended = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE)
    finally:
        os.close(write)
    assert (ended.returncode, ended.stderr) == (141, b"")
