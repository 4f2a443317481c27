"""The example with a table is run as a user runs it."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "table.py"


def test_example_beats_its_rivals_and_notices_the_new_heater():
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    errors = {
        line[2:18].strip(): float(line[18:].split()[0])
        for line in lines
        if line.startswith("  ") and "[" in line
    }
    assert errors["taskmix"] < 0.7 * min(errors[name] for name in errors if name != "taskmix")
    alarms = [int(line.split(":")[1].split()[0]) for line in lines if line.startswith("alarm")]
    assert alarms
    assert all(200 <= run < 240 for run in alarms)
