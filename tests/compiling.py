"""How programs are compiled where they run for a moment only."""

QUICKLY = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
    " --xla_cpu_parallel_codegen_split_count=1"
)
"""For ``XLA_FLAGS``: leaves out the optimisation of machine code and makes it in the quickest way.
XLA's own passes, which decide what is computed and in which order, stay as they are."""
