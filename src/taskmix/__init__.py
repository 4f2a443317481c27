"""taskmix learns to learn from a stream of small tasks whose kind changes without notice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taskmix.experiments.sharing import Predictor

__version__ = "0.1.0"


def load(folder: str | Path) -> Predictor:
    """What ``taskmix export`` wrote, ready to predict; nothing in it is run as code."""
    # Imported here, so that the help of the command line need not wait for JAX.
    from taskmix.experiments.sharing import load

    return load(folder)
