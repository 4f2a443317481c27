"""Strictness that costs nothing at run time: shapes are checked in every call of a test."""

import os
import tempfile
from collections.abc import Iterator

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import hypothesis
import jax
import pytest
from jaxtyping import install_import_hook

install_import_hook("taskmix", "beartype.beartype")

# No test pulls the plug, so none needs to wait until the disk has what it was given.
os.fsync = lambda descriptor: None

# The first example of a property compiles and is slow; the later ones are not.
hypothesis.settings.register_profile("taskmix", deadline=None, derandomize=True)
hypothesis.settings.load_profile("taskmix")


def pytest_configure(config: pytest.Config) -> None:
    """Compile quickly, unless what is run takes far longer than its compilation.

    This leaves out the optimisation of machine code and makes that code in the quickest way; XLA's
    own passes, which decide what is computed and in which order, stay as they are. Tests of
    gradients ask for the code that users get, and slow ones get it.
    """
    if config.option.markexpr not in ("slow", "soak"):
        os.environ["XLA_FLAGS"] = (
            f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"
            " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
        )


@pytest.fixture(autouse=True, scope="session")
def compiled_once() -> Iterator[None]:
    """Tests that build the same program again take the machine code of the first one.

    It is kept for this process and this session alone: nothing is left over from other code, and
    no other process, which a test may kill while it writes, has a part in it.
    """
    with tempfile.TemporaryDirectory() as folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        yield
        jax.config.update("jax_compilation_cache_dir", None)
