"""The example in the README is run as a user runs it."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_tasks.py"


def test_example_notices_the_new_heater_once_and_tells_the_heaters_apart():
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    alarm, old, new = done.stdout.splitlines()
    assert 300 <= int(alarm.split()[1].rstrip(":")) <= 310
    assert "old heater" in old
    assert "new heater" in new
