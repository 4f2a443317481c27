"""``python -m tests.fuzz``: spoil files for as long as one likes, and keep what breaks a reader."""

import contextlib
import dataclasses
import random
import resource
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.targets import REFUSALS, TARGETS, Files, spoiled_files, write

SECONDS = 20
"""That a reader may take for files of a few kilobytes."""
MEGABYTES = 500
"""By which one of them may raise the peak of memory."""


class TooLong(BaseException):
    """A reader that does not end; no reader catches it."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """What a reader did with files that it should have read or refused."""

    target: str
    case: int
    what: str
    files: Files


def case(target: str, good: Files, number: int) -> Finding | None:
    """Spoil the files of a target in the way of this number, and read them."""
    draw = random.Random(f"{target} {number}")
    files = spoiled_files(TARGETS[target], good, draw)
    before = _peak()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "in"
        folder.mkdir()
        write(folder, files)
        try:
            with _time_limit():
                TARGETS[target].read(folder)
        except REFUSALS as refusal:
            if not str(refusal).strip():
                return Finding(target, number, f"{type(refusal).__name__} without words", files)
        except BaseException:
            return Finding(target, number, traceback.format_exc(), files)
    if (grown := _peak() - before) > MEGABYTES:
        return Finding(target, number, f"{grown} MB of memory", files)
    return None


def campaign(names: list[str], minutes: float, first: int, findings: Path) -> int:
    """Rounds over the targets until the time is over; how many findings there are."""
    good = {name: TARGETS[name].good() for name in names}
    done = dict.fromkeys(names, 0)
    seen: set[str] = set()
    stop = time.monotonic() + 60 * minutes
    while time.monotonic() < stop:
        for name in names:
            found = case(name, good[name], first + done[name])
            done[name] += 1
            if found and (kind := name + found.what.strip().splitlines()[-1]) not in seen:
                seen.add(kind)
                _keep(found, findings)
    for name in names:
        print(f"{name}: {done[name]} cases from {first} on")
    print(f"findings: {len(seen)}")
    return len(seen)


def _keep(found: Finding, findings: Path) -> None:
    folder = findings / f"{found.target}-{found.case}"
    write(folder, {f"files/{name}": content for name, content in found.files.items()})
    (folder / "what.txt").write_text(found.what)
    print(f"{found.target}, case {found.case}: {found.what.strip().splitlines()[-1]}", flush=True)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TooLong(f"more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
