"""Runs on a disk that takes no more, and runs that are killed whenever they touch a file."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.experiments.arithmetic import by_arithmetic as by_arithmetic
from tests.experiments.arithmetic import (
    results,
    run_all,
    train,
)
from tests.experiments.arithmetic import uninterrupted as uninterrupted

from taskmix import files
from taskmix.experiments import run

pytestmark = pytest.mark.usefixtures("by_arithmetic")


class Killed(BaseException):
    """Nothing catches it and nothing is tidied up after it, but for what ``finally`` does."""


class Disk:
    """Counts what is done to files, and dies before, or in the middle of, one of them."""

    def __init__(
        self,
        monkeypatch,
        dies_at: int = sys.maxsize,
        error: Callable[[], BaseException] = Killed,
        for_good: bool = False,
    ) -> None:
        self.done = 0
        self.dies_at = dies_at
        self.error = error
        self.for_good = for_good
        write, append = files.write_bytes, files.append
        monkeypatch.setattr(
            files, "write_bytes", lambda path, content: self._halfway(write, path, content)
        )
        monkeypatch.setattr("taskmix.training.checkpoints.write_bytes", files.write_bytes)
        monkeypatch.setattr("taskmix.training.lines.append", self._append(append))
        for name in ("rename", "replace", "mkdir"):
            original = getattr(Path, name)
            monkeypatch.setattr(Path, name, self._before(original))
        monkeypatch.setattr(shutil, "rmtree", self._before(shutil.rmtree))

    def _due(self) -> bool:
        self.done += 1
        number = self.done - 1
        return number >= self.dies_at if self.for_good else number == self.dies_at

    def _halfway(self, write, path, content) -> None:
        if self._due():
            content = content if isinstance(content, bytes) else b"".join(content)
            path.write_bytes(content[: len(content) // 2])
            raise self.error()
        write(path, content)

    def _append(self, append):
        def appended(path, content, after) -> None:
            if self._due():
                append(path, content[:20], after)
                raise self.error()
            append(path, content, after)

        return appended

    def _before(self, original):
        def called(*arguments, **options):
            if self._due():
                raise self.error()
            return original(*arguments, **options)

        return called


def operations() -> int:
    """How many things are done to files in a whole run."""
    with pytest.MonkeyPatch.context() as patch, scratch() as out:
        patch.setattr(run, "train", train)
        disk = Disk(patch)
        run_all(out)
        return disk.done


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name) / "out"


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.soak)])
def test_run_killed_at_any_touch_of_a_file_ends_as_if_it_had_not_been(uninterrupted, stride):
    count = operations()
    assert count > 80
    for dies_at in range(0, count, stride):
        with scratch() as out:
            with pytest.MonkeyPatch.context() as patch:
                Disk(patch, dies_at)
                with pytest.raises(Killed):
                    run_all(out)
            run_all(out)
            assert results(out) == uninterrupted, f"killed at touch {dies_at} of {count}"


@pytest.mark.parametrize("times", [2, pytest.param(40, marks=pytest.mark.soak)])
def test_run_killed_again_and_again_ends_as_if_it_had_not_been(uninterrupted, times):
    draw = random.Random(0)
    for _ in range(times):
        with scratch() as out:
            for _ in range(5):
                with pytest.MonkeyPatch.context() as patch:
                    Disk(patch, draw.randrange(60))
                    with contextlib.suppress(Killed):
                        run_all(out)
            run_all(out)
            assert results(out) == uninterrupted


def complaint_of(function, *arguments) -> str | None:
    try:
        function(*arguments)
    except OSError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("number", "for_good", "advice"),
    [
        (errno.ENOSPC, False, "make room there"),
        (errno.ENOSPC, True, "make room there"),
        (errno.EROFS, True, "make it writable"),
        (errno.EACCES, True, "make it writable"),
    ],
    ids=["full once", "full", "read-only", "forbidden"],
)
def test_disk_that_takes_no_more_is_reported_and_loses_no_checkpoint(
    tmp_path, uninterrupted, number, for_good, advice
):
    """Whatever it is that cannot be written: it says so, and goes on when it can."""
    for dies_at in range(20, operations(), 23):
        out = tmp_path / str(dies_at)
        with pytest.MonkeyPatch.context() as patch:
            Disk(patch, dies_at, lambda: OSError(number, os.strerror(number)), for_good)
            complaint = complaint_of(run_all, out)
        if for_good or complaint:
            assert f"{os.strerror(number)}; {advice}" in complaint
        said = run_all(out)
        # Until then there is no checkpoint of both seeds to go on from.
        assert dies_at < 60 or "goes on from iteration" in said
        assert results(out) == uninterrupted
