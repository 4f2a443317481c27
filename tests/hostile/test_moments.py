"""Bad moments: a run that is asked to stop while it compiles, workers whose parent is killed."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.experiments import arithmetic

from taskmix.experiments import run
from taskmix.reporting.contact_sheet import contact_sheet
from taskmix.stores import ImageSplit

STUCK = """
import sys, time
from pathlib import Path
from tests.experiments import arithmetic
from taskmix.experiments import run
from taskmix.experiments.group import Keeping
from taskmix.training import watch

def train(learner, stream, seeds, settings, observer, start, pause, *more, **named):
    def paused(moment):
        pause(moment)
        print("paused", flush=True)
        time.sleep(600)
    arithmetic.train(learner, stream, seeds, settings, observer, start, paused)

run.train = train
watch.GRACE = watch.TICK = 0.2
request = watch.StopRequest()
with watch.listening(request, print):
    arithmetic.run_all(Path(sys.argv[1]), Keeping(checkpoint_minutes=100.0), request)
"""


def started(script: str, *arguments) -> subprocess.Popen:
    path = os.pathsep.join([os.getcwd(), *filter(None, sys.path)])
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def test_run_that_hangs_is_kept_from_outside_and_goes_on(tmp_path, monkeypatch):
    process = started(STUCK, tmp_path / "out")
    assert process.stdout.readline() == "paused\n"
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 143
    assert said == "taskmix: SIGTERM: stopped at iteration 5; taskmix resume goes on.\n"
    monkeypatch.setattr(run, "train", arithmetic.train)
    assert "goes on from iteration 5" in arithmetic.run_all(tmp_path / "out")
    arithmetic.run_all(tmp_path / "whole")
    found, expected = (arithmetic.results(tmp_path / name) for name in ("out", "whole"))
    assert {name: found[name] for name in expected} == expected


POOL = """
import io, itertools, multiprocessing, time
import numpy as np
from PIL import Image
from taskmix.stores.decode import Shape
from taskmix.stores.pool import decoded

if __name__ == "__main__":
    file = io.BytesIO()
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(file, "PNG")
    images = ((number, file.getvalue()) for number in itertools.count())
    pixels = decoded(images, 10**6, Shape(8, 3, 1, False), 2)
    next(pixels)
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for workers in /proc")
def test_decoders_end_with_the_command_that_started_them(tmp_path):
    (tmp_path / "pool.py").write_text(POOL)
    process = started(
        f"import runpy; runpy.run_path({str(tmp_path / 'pool.py')!r}, {{}}, '__main__')"
    )
    workers = [int(word) for word in process.stdout.readline().split()]
    process.kill()
    process.communicate()
    assert len(workers) == 2
    stop = time.monotonic() + 600
    while any(map(alive, workers)) and time.monotonic() < stop:
        time.sleep(0.05)
    assert not any(map(alive, workers))


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("name", ["$x_$", "$\\frac{$", "a$b^{$c"])
def test_class_names_are_no_formulas(tmp_path, name):
    images = np.zeros((1, 8, 8, 3), np.uint8)
    split = ImageSplit("train", images, np.zeros(1, int), np.ones(1, int), (name,))
    sheet = contact_sheet(split, tmp_path / "sheet.png", filters=("plain",), classes=1)
    assert io.BytesIO(sheet.read_bytes()).read(4) == b"\x89PNG"
