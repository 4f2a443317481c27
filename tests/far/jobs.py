"""Work for launched jobs: their processes import it by name, as pytest's own modules cannot be."""

import time

from taskmix.training.watch import Stopped


def fail(request):
    raise ValueError("no such stream")


def wait_for_long(request):
    while not request.value:
        time.sleep(0.05)
    raise Stopped(request.value, 3)
