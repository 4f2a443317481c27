"""How programs are compiled where they run for a moment only, and where they are what users get."""

from importlib.metadata import version

OLD = tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 12)
"""Whether XLA has two ways to make code for a CPU; to name a flag that it has not is fatal."""
QUICKLY = (
    "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
    f"{' --xla_cpu_use_fusion_emitters=false' if OLD else ''}"
)
"""For ``XLA_FLAGS``: leaves out the optimisation of machine code and makes it in the quickest way.
XLA's own passes, which decide what is computed and in which order, stay as they are."""
AS_USERS = {"xla_cpu_use_fusion_emitters": True} if OLD else {}
"""Compiler options for the code that users get, in spite of ``QUICKLY``."""
