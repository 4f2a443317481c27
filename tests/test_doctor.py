"""The doctor says what there is, and what should be put right."""

import os
import subprocess
import sys

import taskmix as tm
from taskmix import diagnosis as module
from taskmix.cli import main


def test_doctor_finds_nothing_wrong_here(capsys):
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    for word in ("taskmix", "jaxlib", "devices", "threads", "PJRT_NPROC", "programs", "right"):
        assert word in said
    assert "all is well" in said
    assert "WRONG" not in said


def test_fault_is_named_and_is_the_exit_code(monkeypatch, capsys):
    monkeypatch.setattr(module, "canary_errors", lambda: {"a sum": 0.008})
    assert main(["doctor"]) == 2
    said = capsys.readouterr()
    assert "WRONG  a sum: off by 0.008" in said.out
    assert "problem: this installation of JAX" in said.out
    assert "put right" in said.err
    assert len(tm.doctor().problems) == 1


def test_jax_in_use_before_taskmix_with_few_threads_is_a_problem():
    """On two cores it can hang; a machine with many has threads enough."""
    program = (
        "import os; os.cpu_count = lambda: 2\n"
        "import jax.numpy as jnp; {first}\n"
        "import taskmix as tm; print(len(tm.doctor().problems))"
    )
    environment = {key: value for key, value in os.environ.items() if key != "PJRT_NPROC"}
    for first, problems in (("jnp.ones(3)", "1"), ("", "0")):
        done = subprocess.run(
            [sys.executable, "-c", program.format(first=first)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == problems
