"""Strictness that costs nothing at run time: shapes are checked in every call of a test."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import hypothesis
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
            " --xla_cpu_use_fusion_emitters=false"
        )
