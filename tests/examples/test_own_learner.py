"""The example is run as a user runs it."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_learner.py"


def test_example_keeps_the_contract_and_beats_predicting_zero():
    """Which costs 4.1 on sinusoids (docs/results.md)."""
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    kept, plain, hasty = done.stdout.splitlines()
    assert kept == "the contract is kept"
    for line, name in ((plain, "ridge: "), (hasty, "ridge:meta_rate=0.5: ")):
        assert line.startswith(name)
        assert float(line.split("'sinusoid': ")[1].split(",")[0]) < 4.1
