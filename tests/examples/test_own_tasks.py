"""The example with tasks of one's own is run as a user runs it.

The quick tests ask the same of a stream (tests/science/test_stress_small.py) and run another
example with the same learner.
"""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_tasks.py"


@pytest.mark.slow
def test_example_notices_the_new_heater_once_and_tells_the_heaters_apart():
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    alarm, birth, old, new = done.stdout.splitlines()
    assert 300 <= batch_of(alarm) <= 303
    assert batch_of(alarm) <= batch_of(birth) <= 360
    assert "old heater" in old
    assert "new heater" in new
    assert most_probable(old) == 0
    assert most_probable(new) == 1


def batch_of(line: str) -> int:
    return int(line.split()[1].rstrip(":"))


def most_probable(line: str) -> int:
    shares = line.split("[")[1].split("]")[0].split()
    return max(range(len(shares)), key=lambda cluster: float(shares[cluster]))
