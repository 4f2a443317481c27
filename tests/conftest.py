"""Strictness that costs nothing at run time: shapes are checked in every call of a test."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# JAX is imported here before taskmix, which asks for the same.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import hypothesis
import jax
import pytest
from jaxtyping import install_import_hook
from tests.compiling import QUICKLY

install_import_hook("taskmix", "beartype.beartype")

# No test pulls the plug, so none needs to wait until the disk has what it was given.
os.fsync = lambda descriptor: None

# The first example of a property compiles and is slow; the later ones are not.
hypothesis.settings.register_profile("taskmix", deadline=None, derandomize=True)
hypothesis.settings.load_profile("taskmix")


def pytest_configure(config: pytest.Config) -> None:
    """Compile quickly, unless what is run takes far longer than its compilation.

    Tests of gradients ask for the code that users get, and slow ones get it.
    """
    if config.option.markexpr not in ("slow", "soak"):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICKLY}"


@pytest.fixture(autouse=True, scope="session")
def compiled_once(pytestconfig: pytest.Config) -> None:
    """Tests that build the same program again take the machine code of the first one.

    It is kept beside pytest's own cache, for all workers and the next sessions: the name of an
    entry follows from the whole program, so nothing is left over from other code. A folder that
    JAX was told of is used instead.
    """
    from taskmix.compiled import keep_programs

    if not jax.config.jax_compilation_cache_dir:
        kept = pytestconfig.cache.mkdir("programs")
        kept.chmod(0o700)
        os.environ["TASKMIX_CACHE"] = str(kept)
        keep_programs()
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
