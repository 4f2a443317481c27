"""What this installation computes with, and whether it computes rightly."""

from __future__ import annotations

import dataclasses
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

import taskmix
from taskmix.compiled import OFF, VARIABLE, cache_folder, keep_programs, processor
from taskmix.machine import cores, enough_threads, threads
from taskmix.numerics import TOLERANCE, canary_errors, faults

PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "polars", "narwhals")


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What ``doctor`` found; printing it shows all of it.

    Examples
    --------
    >>> Diagnosis({"jax": "0.10.1"}, {}, {"a sum": 0.0}, problems=()).problems
    ()
    """

    versions: dict[str, str]
    """Of Python and of the libraries that compute."""
    machine: dict[str, str]
    """Devices, cores, threads and folders."""
    canaries: dict[str, float]
    """The relative error of each."""
    problems: tuple[str, ...]
    """What should be put right; empty if all is well."""

    def __str__(self) -> str:
        sections = {**self.versions, "": "", **self.machine}
        lines = [f"{name:<12} {value}".rstrip() for name, value in sections.items()]
        lines += ["", "canaries (compiled programs against NumPy's float64)"]
        lines += [
            f"  {'right' if error <= TOLERANCE else 'WRONG'}  {name}: off by {error:.1g}"
            for name, error in self.canaries.items()
        ]
        lines += ["", *(f"problem: {problem}" for problem in self.problems)]
        return "\n".join(lines) + ("" if self.problems else "all is well")


def doctor() -> Diagnosis:
    """Look at versions, devices and threads, and run the canaries.

    Returns
    -------
    What was found. ``print`` it; ``problems`` is empty if all is well.

    Examples
    --------
    >>> import taskmix as tm
    >>> found = tm.doctor()
    >>> found.versions["taskmix"] == tm.__version__
    True
    """
    import jax

    errors = canary_errors()
    devices = jax.devices()
    # The same model of a processor may stand there once per core, with all it can do.
    model = processor().splitlines()[-1].split(":", 1)[-1].strip()
    known = str(keep_programs() or _why_not())
    machine = {
        "system": platform.platform(),
        "processor": model,
        "cores": f"{cores()} of {os.cpu_count()} may be used",
        "threads": f"{threads()} per computation, PJRT_NPROC {os.environ.get('PJRT_NPROC')}",
        "devices": ", ".join(f"{one.platform}:{one.id} {one.device_kind}" for one in devices),
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
        "programs": known,
    }
    versions = {"taskmix": taskmix.__version__, "python": sys.version.split()[0]}
    versions |= {name: _version(name) for name in PACKAGES}
    problems = (*faults(errors), *([] if enough_threads() else [TOO_FEW_THREADS]))
    return Diagnosis(versions, machine, errors, problems)


TOO_FEW_THREADS = (
    "JAX was in use before taskmix was imported, and has so few threads that factorising batches "
    "of matrices can hang; import taskmix first, or set PJRT_NPROC=8 before Python starts"
)


def _why_not() -> str:
    if os.environ.get(VARIABLE, "").lower() in OFF:
        return f"not kept ({VARIABLE} turns it off)"
    return f"not kept (nobody else may be able to write to {cache_folder()}, and you must be)"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
