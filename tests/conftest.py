"""Strictness that costs nothing at run time: shapes are checked in every call of a test."""

import contextlib
import ctypes
import gc
import os
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# JAX is imported here before taskmix, which asks for the same.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# Programs that a user keeps are neither used nor added to, by no test and no process of a test.
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)

import hypothesis
import jax
import pytest
from jaxtyping import install_import_hook
from tests.compiling import QUICKLY

install_import_hook("taskmix", "beartype.beartype")

# No test pulls the plug, so none needs to wait until the disk has what it was given.
os.fsync = lambda descriptor: None

# The first example of a property compiles and is slow; the later ones are not. How long it takes
# to draw examples depends on what else the machine does.
hypothesis.settings.register_profile(
    "taskmix",
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("taskmix")


def pytest_configure(config: pytest.Config) -> None:
    """Compile quickly, unless what is run takes far longer than its compilation.

    Tests of gradients ask for the code that users get, and slow ones get it.
    """
    if config.option.markexpr not in ("slow", "soak"):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICKLY}"
    keep_programs_beside_the_cache_of_pytest(config)


def keep_programs_beside_the_cache_of_pytest(config: pytest.Config) -> None:
    """Tests that build the same program again take the machine code of the first one.

    It is kept for all workers and the next sessions: the name of an entry follows from the whole
    program, so nothing is left over from other code.
    """
    from taskmix.compiled import keep_programs

    cache = getattr(config, "cache", None)
    if cache is None:
        # pytest was told to keep nothing.
        os.environ["TASKMIX_CACHE"] = "off"
        return
    kept = cache.mkdir("programs")
    kept.chmod(0o700)
    os.environ["TASKMIX_CACHE"] = str(kept)
    keep_programs()
    # All but single operations, of which there are thousands: to read one takes half as long as
    # to compile it, but every process that starts looks through the folder.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.02)


def pytest_collection_finish() -> None:
    """What there is before the first test stays, so nobody looks for garbage in it.

    To trace a program makes millions of small objects: to look for garbage among them as often as
    Python usually does takes an eighth of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def enough() -> int:
    """Bytes that a worker holds before it gives back what it has compiled: two gigabytes, or a
    sixth of a machine that has more."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        memory = 0
    return max(2 << 30, memory // 6)


def held() -> int:
    """Bytes of memory of this process; 0 where the system does not tell."""
    told = Path("/proc/self/statm")
    if not told.exists():
        return 0
    return int(told.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(autouse=True, scope="module")
def memory_given_back() -> Iterator[None]:
    """Two workers together never hold more than a small machine has.

    The smallest program holds two megabytes. What is given back has to be compiled again, so it
    is not done after every module: the system gets the memory, without which it would count as
    held for ever.
    """
    yield
    if held() > enough():
        jax.clear_caches()
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
