"""The example with images is run as a user runs it."""

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "images.py"


def test_example_recognises_classes_that_it_has_never_seen():
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    assert "test: 3 classes, 36 images" in done.stdout
    assert float(re.search(r"new classes: ([\d.]+)%", done.stdout)[1]) > 60
    assert re.search(r"three new images: \[\d \d \d\]", done.stdout)
