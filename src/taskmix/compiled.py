"""Compiled programs, kept between starts in the user's cache folder.

A kept program is machine code. So its folder is named by the versions that made it and by the
processor that it was made for, belongs to the user, and is used only if nobody else can write
to it. Whatever is wrong with it costs time and nothing else: programs are then compiled anew.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import stat
import sys
import warnings
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

VARIABLE = "TASKMIX_CACHE"
"""Environment variable: another folder for what is kept between starts, or `off`."""
OFF = ("off", "0", "no", "false")
WORTH_KEEPING = 0.3
"""Seconds of compilation from which on a program is kept."""
QUICKLY = {
    "xla_backend_optimization_level": 1,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
"""Options for programs of many small operations: half the time and a third of the memory of
their compilation, for code that is as fast (results/speed/README.md)."""
LARGEST = 1 << 30
"""Bytes of all programs of one version; those not used for longest go first."""


def quickly() -> dict[str, bool | int] | None:
    """Compiler options for programs of many small operations.

    Returns
    -------
    None where there is no CPU to compile for, or XLA_FLAGS says how much to optimise; else those
    of ``QUICKLY`` that this version of XLA knows.

    Examples
    --------
    >>> import jax
    >>> int(jax.jit(lambda x: x + 1, compiler_options=quickly())(1))
    2
    """
    import jax

    chosen = next(iter(QUICKLY)) in os.environ.get("XLA_FLAGS", "")
    return None if chosen or jax.default_backend() != "cpu" else understood(QUICKLY)


def understood(options: Mapping[str, bool | int]) -> dict[str, bool | int]:
    """Those of compiler ``options`` that this version of XLA knows; another is an error to it.

    Examples
    --------
    >>> understood({"xla_backend_optimization_level": 1, "xla_was_there_once": True})
    {'xla_backend_optimization_level': 1}
    """
    return {name: value for name, value in options.items() if _knows(name, value)}


@functools.cache
def _knows(name: str, value: bool | int) -> bool:
    import jax

    option: Any = {name: value}
    try:
        jax.jit(lambda: 0).lower().compile(compiler_options=option)
    except jax.errors.JaxRuntimeError:
        return False
    return True


def cache_folder() -> Path | None:
    """Where things are kept between starts, None if the environment turns that off.

    Returns
    -------
    The folder that TASKMIX_CACHE names, or that for this user on this system; it need not exist.

    Examples
    --------
    >>> import os
    >>> before = os.environ.get("TASKMIX_CACHE")
    >>> os.environ["TASKMIX_CACHE"] = "off"
    >>> cache_folder() is None
    True
    >>> _ = os.environ.pop("TASKMIX_CACHE") if before is None else None
    """
    chosen = os.environ.get(VARIABLE, "")
    if chosen.lower() in OFF:
        return None
    if chosen:
        return Path(chosen).expanduser()
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "taskmix"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "taskmix"
    given = os.environ.get("XDG_CACHE_HOME", "")
    # The standard asks to ignore a path that is not absolute.
    return (Path(given) if os.path.isabs(given) else home / ".cache") / "taskmix"


def processor() -> str:
    """The processor and what it can do, as far as the system tells."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        told = [line for line in lines if line.startswith(("model name", "flags", "Features"))]
        if told:
            return "\n".join(sorted(set(told)))
    return f"{platform.machine()} {platform.processor()}"


def versioned_folder() -> Path | None:
    """Below ``cache_folder``, one for these versions and this processor; see ``own_folder``."""
    made_by = f"jax-{version('jax')}-jaxlib-{version('jaxlib')}"
    made_for = hashlib.sha256(f"{platform.machine()}\n{processor()}".encode()).hexdigest()[:12]
    return own_folder(f"{made_by}-{made_for}")


def own_folder(name: str) -> Path | None:
    """A folder below ``cache_folder`` that only the user can change; made if need be.

    Returns
    -------
    None if it is turned off, cannot be made, or could be written to by somebody else.
    """
    top = cache_folder()
    if top is None:
        return None
    folder = top / name
    try:
        top.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.mkdir(exist_ok=True, mode=0o700)
        return folder if _ours_alone(top) and _ours_alone(folder) else None
    except OSError:
        return None


def keep_programs() -> Path | None:
    """Keep what JAX compiles from now on, and take what was kept before.

    Does nothing if the user has told JAX where to keep programs (JAX_COMPILATION_CACHE_DIR).

    Returns
    -------
    The folder, None if none is used.

    Examples
    --------
    >>> import jax
    >>> folder = keep_programs()
    >>> folder is None or jax.config.values.get("jax_compilation_cache_dir") == str(folder)
    True
    """
    import jax

    known = jax.config.values.get("jax_compilation_cache_dir")
    if known:
        return Path(known)
    base = versioned_folder()
    if base is None:
        return None
    folder = base / "programs"
    try:
        folder.mkdir(exist_ok=True, mode=0o700)
        if not _ours_alone(folder):
            return None
        _make_room(folder)
    except OSError:
        return None
    # JAX says with every program that it could not be read or written, and compiles it.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    return folder


def _ours_alone(folder: Path) -> bool:
    """Whether it is a folder, and not a link, that only this user can change."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return False
    if not hasattr(os, "getuid"):
        return True
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _make_room(folder: Path) -> None:
    """Remove what was not used for longest, until a quarter of the room is free."""
    sizes = []
    for entry in os.scandir(folder):
        # Another process may remove it at the same moment.
        with contextlib.suppress(OSError):
            found = entry.stat(follow_symlinks=False)
            sizes.append((max(found.st_atime, found.st_mtime), found.st_size, entry.path))
    total = sum(size for _, size, _ in sizes)
    if total <= LARGEST:
        return
    for _, size, path in sorted(sizes):
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= size
        if total <= 0.75 * LARGEST:
            return
