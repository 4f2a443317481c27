"""Jobs that a scheduler runs, on this machine or on others, through submitit.

A job's life is told by files beside its folders, not by the scheduler: that it has begun, a lock
that it holds while it lives, and what came of it. The lock is the operating system's and ends with
the process. So a job that was killed is noticed on any scheduler, and begun anew; its runs go on
from their last checkpoints. Nothing that a job writes is unpickled here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from taskmix.files import explained, inside, read_bytes, write_json
from taskmix.training.lock import Refused
from taskmix.training.watch import Request, Stopped, StopRequest, attending, listening
from taskmix.training.workers import Job

Where = Literal["here", "local", "slurm"]
FOLDER = "jobs"
"""Beside the runs of a comparison: scripts, output and signs of life of its jobs."""
DEATHS = 5
"""How often a job may die before it is given up."""
LOOK = 0.5
"""Seconds between two looks at the jobs."""
PATIENCE = 30.0
"""Seconds that a job waits for its lock, which a look at it may hold for a moment, and that are
waited for jobs to end."""
NOT_OURS = ("setup", "teardown", "srun_args", "additional_parameters", "nodes", "tasks_per_node")
"""Ends of the names of what submitit's executors have and no job of ours: commands of a shell, and
more than one process."""


@dataclasses.dataclass(frozen=True)
class Launcher:
    """Who runs the jobs of a comparison.

    Examples
    --------
    >>> Launcher("slurm", options=("slurm_partition=cpu", "mem_gb=4")).parameters()
    {'timeout_min': 1440, 'slurm_partition': 'cpu', 'mem_gb': 4}
    """

    launcher: Where = "here"
    """`local` starts a process per method on this machine, `slurm` gives SLURM a job per method;
    `here` trains in processes of this command."""
    job_minutes: int = 1440
    """Minutes that a job may take; what it has learned by then is kept."""
    options: tuple[str, ...] = ()
    """Settings of submitit's executor as NAME=VALUE, such as slurm_partition=cpu or mem_gb=4."""

    def __post_init__(self) -> None:
        if self.job_minutes < 1:
            raise ValueError(f"job_minutes is {self.job_minutes}; it must be at least 1.")
        for option in self.options:
            name, given, value = option.partition("=")
            if not name or not given or not value:
                raise ValueError(f"options has {option!r}; it must be NAME=VALUE.")
            if name.endswith(NOT_OURS):
                raise ValueError(f"options has {option!r}; {name} cannot be set here.")
            if not value.isprintable():
                # A line of its own in the script of a job would be a command of it.
                raise ValueError(f"options has {option!r}; a value is one line of plain text.")

    def parameters(self) -> dict[str, Any]:
        """What submitit is told."""
        told: dict[str, Any] = {"timeout_min": self.job_minutes}
        for option in self.options:
            name, _, value = option.partition("=")
            told[name] = int(value) if value.isascii() and value.isdigit() else value
        return told

    def executor(self, folder: Path) -> Any:
        """Of submitit, or a ``ValueError`` that says what is missing."""
        try:
            import submitit
        except ImportError:
            raise ValueError(
                "A launcher needs submitit, which is not installed; pip install 'taskmix[launch]'."
            ) from None
        try:
            executor = submitit.AutoExecutor(folder, cluster=self.launcher)
            executor.update_parameters(**self.parameters())
        except (NameError, RuntimeError, AssertionError, TypeError) as error:
            what = " ".join(str(error).split())
            raise ValueError(
                f"submitit cannot use {self.launcher} with these options ({what})."
            ) from None
        return executor


@dataclasses.dataclass
class Running:
    """A job that was handed to the scheduler."""

    job: Job
    signs: Signs
    handle: Any
    deaths: int = 0

    def outcome(self) -> Mapping[str, Any] | None:
        """What it left when it ended, None as long as it may live."""
        # In this order, as it may go on between two looks: it takes its lock before it says that it
        # has begun, and says what came of it before it lets go of its lock.
        gone = not self.signs.begun() and self.handle.done()
        begun = self.signs.begun()
        alive = self.signs.alive()
        ended = self.signs.ended()
        if ended is not None:
            return ended
        if (begun and not alive) or (gone and not begun):
            return {"died": True}
        return None


@dataclasses.dataclass(frozen=True)
class Signs:
    """Of the life of one attempt at a job: files that it writes, and a lock that it holds."""

    folder: Path
    name: str

    def _path(self, kind: str) -> Path:
        return inside(self.folder, f"{self.name}.{kind}")

    def begun(self) -> bool:
        return self._path("begun").exists()

    def ended(self) -> Mapping[str, Any] | None:
        with contextlib.suppress(FileNotFoundError, ValueError):
            told: Mapping[str, Any] = json.loads(read_bytes(self._path("ended")))
            return told
        return None

    def alive(self) -> bool:
        """Whether some process holds the lock."""
        try:
            with self._lock(0.0):
                return False
        except Timeout:
            return True

    def _lock(self, patience: float) -> FileLock:
        return FileLock(self._path("lock"), timeout=patience, fallback_to_soft=False)

    def live(self, work: Callable[[Request], Any]) -> None:
        """Do the work, in the process of the job, and leave the signs of it."""
        with self._lock(PATIENCE):
            write_json(self._path("begun"), {})
            request = StopRequest()
            try:
                with listening(request, lambda what: print(f"taskmix: {what}", flush=True)):
                    work(request)
                told: dict[str, Any] = {}
            except Stopped as stop:
                told = {"stopped": stop.signum}
            except Refused as error:
                told = {"refused": str(error)}
            except Exception as error:
                told = {"failed": f"{type(error).__name__}: {error}"}
            write_json(self._path("ended"), told)


@attending()
def launched(
    jobs: Sequence[Job], launcher: Launcher, workers: int, out: Path, request: Request
) -> None:
    """Have every job done, so many ``workers`` at a time; a job that dies is begun anew.

    What a job gives is not handed over: it is in the folders that it wrote.
    """
    folder = _own_folder(out)
    executor = launcher.executor(folder)
    waiting = deque(enumerate(jobs))
    running: list[Running] = []
    started: list[Running] = []
    problems: list[str] = []
    try:
        while running or (waiting and not problems):
            while waiting and len(running) < workers and not problems:
                number, job = waiting.popleft()
                running.append(_submitted(executor, folder, number, job))
            started += [one for one in running if one not in started]
            for one in list(running):
                running.remove(one)
                again = _looked_at(one, executor, folder, problems)
                running += [again] if again is not None else []
            if request.value:
                raise Stopped(request.value, 0)
            time.sleep(LOOK)
    finally:
        _ended(running, started)
    if problems:
        raise OSError(f"{'; '.join(problems)}. What was done is kept, and the command goes on.")


def _own_folder(out: Path) -> Path:
    """Where jobs are handed over, new for every command. Who could write there could run code."""
    folder = inside(out, FOLDER)
    with explained(f"create {folder}"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = folder.stat()
    if os.name == "posix" and (found.st_uid != os.geteuid() or found.st_mode & 0o022):
        raise Refused(f"Others may write to {folder}; remove it, and it is made anew.")
    return Path(tempfile.mkdtemp(dir=folder, prefix=""))


def _ended(running: Sequence[Running], started: Sequence[Running]) -> None:
    """Stop what still runs, and wait for every process: one may have to write a checkpoint."""
    for one in running:
        with contextlib.suppress(Exception):
            one.handle.cancel()
    until = time.monotonic() + PATIENCE
    # A job that has just been begun anew is not among the earlier ones.
    every = [*started, *running]
    while time.monotonic() < until and not all(one.handle.done() for one in every):
        time.sleep(LOOK)


def _submitted(executor: Any, folder: Path, number: int, job: Job, deaths: int = 0) -> Running:
    signs = Signs(folder, f"{number}-{uuid.uuid4().hex[:8]}")
    handle = executor.submit(signs.live, job.work)
    return Running(job, signs, handle, deaths)


def _looked_at(one: Running, executor: Any, folder: Path, problems: list[str]) -> Running | None:
    """The job if it goes on, or its next life; None if it is done or given up."""
    outcome = one.outcome()
    if outcome is None:
        return one
    if outcome.get("failed"):
        problems.append(f"{one.job.name} failed ({outcome['failed']})")
        return None
    if not outcome:
        return None
    why = outcome.get("refused") or ("was stopped" if "stopped" in outcome else "its process died")
    if one.deaths + 1 >= DEATHS:
        problems.append(f"{one.job.name} was given up after {DEATHS} times ({why})")
        return None
    _say(f"{one.job.name}: {why}; it goes on in another process")
    number = int(one.signs.name.partition("-")[0])
    return _submitted(executor, folder, number, one.job, one.deaths + 1)


def _say(what: str) -> None:
    with contextlib.suppress(OSError):
        print(f"taskmix: {what}.", file=sys.stderr, flush=True)
