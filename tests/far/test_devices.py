"""One run on eight emulated devices has the results of one device, for one sum per update."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from taskmix.machine import join
from taskmix.training.placement import Placement

TOLERANCE = 2e-4
"""Of all numbers of the state after 25 iterations, relative to the largest of their array: the sum
over devices adds in another order. docs/scaling.md states it."""


SLOW = [pytest.param(case, marks=pytest.mark.slow) for case in ("images", "mixture")]


@pytest.fixture(scope="module")
def found():
    """What a process with eight devices found, by case; each is computed when it is asked for."""
    return functools.cache(compared)


def compared(case: str) -> dict:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    environment = {
        **os.environ,
        "XLA_FLAGS": flags,
        "PJRT_NPROC": "24",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    ran = subprocess.run(
        [sys.executable, "-m", "tests.far.on_devices", case],
        env=environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])[case]


@pytest.mark.parametrize("case", ["maml", *SLOW])
def test_eight_devices_give_the_results_of_one(found, case):
    assert found(case)["difference"] < TOLERANCE


def test_seeds_on_different_devices_give_the_results_of_one(found):
    assert found("maml")["seeds"] < TOLERANCE


def test_run_begun_on_one_device_goes_on_on_eight(found):
    assert 0 < found("maml")["goes on"] < TOLERANCE


@pytest.mark.parametrize("case", ["maml", SLOW[0]])
def test_a_step_is_one_reduction(found, case):
    assert found(case)["reductions"] == 1


@pytest.mark.slow
def test_a_step_of_the_mixture_reduces_once_per_loop_over_updates_or_clusters(found):
    assert 1 <= found("mixture")["reductions"] <= 4


def test_more_devices_than_there_are_are_refused():
    with pytest.raises(ValueError, match="devices is 99; it must be 0"):
        Placement(99)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("node", 2, 0), "coordinator is 'node'"),
        (("node:1", 2, 2), "process is 2"),
        (("node:1", 2, 0, 3), "devices is 3"),
    ],
)
def test_company_that_cannot_be_is_refused_before_anything_waits(arguments, what):
    with pytest.raises(ValueError, match=what):
        join(*arguments)
