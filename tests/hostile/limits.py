"""Two gigabytes and ten seconds: what a command may take for a file of a few kilobytes."""

import contextlib
import io
import multiprocessing
import os
import resource
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BYTES = 2 << 30
SECONDS = 10
"""Of computing; on a machine with other work to do they may be more of a clock."""
FULL = 1 << 30
"""Bytes with which no case begins: what earlier ones have compiled stays in a process."""
PATIENCE = 60
"""Seconds of a clock, for what waits and computes nothing; that other programs have the processor
is no fault of a reader's."""
_SPAWN = multiprocessing.get_context("spawn")


class Limited:
    """A process with limits that calls functions, one after the other, and is begun anew when
    one of them breaks it."""

    def __init__(self) -> None:
        self._cache = tempfile.TemporaryDirectory()
        self._process: Any = None
        self._connection: Any = None
        self.computed = 0.0
        """Seconds of computing of all calls so far."""

    def __enter__(self) -> "Limited":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._cache.cleanup()

    def call(self, function: Callable[..., Any], *arguments: Any) -> str:
        """What is wrong with how it ended; nothing if it returned or refused in one line."""
        if self._process is not None and self._held() > FULL:
            self._end()
        if self._process is None:
            self._connection, theirs = _SPAWN.Pipe()
            self._process = _SPAWN.Process(
                target=_serve, args=(theirs, self._cache.name), daemon=True
            )
            self._process.start()
            theirs.close()
            self._connection.recv()
        self._connection.send((function, arguments))
        before = last = self._computed()
        since = time.monotonic()
        while not self._connection.poll(0.2):
            computed = self._computed()
            if computed > last:
                self.computed += computed - last
                last, since = computed, time.monotonic()
            if computed - before > SECONDS or time.monotonic() - since > PATIENCE:
                self._end()
                return f"more than {SECONDS} s of computing, or {PATIENCE} s of waiting"
        self.computed += max(self._computed() - last, 0.0)
        try:
            return self._connection.recv()
        except EOFError:
            self._process.join()
            code = self._process.exitcode
            self._end()
            return f"the process died ({code})"

    def _computed(self) -> float:
        """Seconds that the process has computed; 0 where the system does not tell."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    def _held(self) -> int:
        """Bytes that the process holds, of those with a limit; 0 where the system does not tell."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:
            return 0
        return int(status.partition("VmData:")[2].split()[0]) << 10

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
            self._process = None


def _serve(connection: Any, cache: str) -> None:
    """In the new process. What is compiled is kept, so that no case pays for it twice."""
    import jax

    import taskmix.cli.compare  # noqa: F401

    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # Not RLIMIT_AS: what is mapped and never touched is no memory, and libraries map a lot.
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection.send("ready")
    while True:
        function, arguments = connection.recv()
        try:
            with _silence():
                function(*arguments)
            said = ""
        except (ValueError, OSError) as refusal:
            said = "" if str(refusal).strip() else f"{type(refusal).__name__} without words"
        except BaseException:
            said = traceback.format_exc()
        connection.send(said)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def command(*arguments: Any) -> None:
    """A command ends with code 0, or with 2 and one line."""
    from taskmix.cli import main

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            code = main([str(argument) for argument in arguments])
    except SystemExit as ended:
        code = ended.code
    lines = said.getvalue().splitlines()
    if (code, len(lines)) not in ((0, 0), (2, 1)):
        raise AssertionError(f"code {code}: {said.getvalue()}")
    if any(ord(character) < 32 for character in said.getvalue().strip()):
        raise AssertionError(f"a line with escapes: {said.getvalue()!r}")
