"""The files that a run leaves behind."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import math
import os
import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

import taskmix

LIBRARIES = ("jax", "jaxlib", "equinox", "optax", "numpy")


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """One run on disk: what was asked for, what was measured, what happened, what came out."""

    path: Path

    @staticmethod
    def create(path: Path, config: Mapping[str, Any]) -> RunFolder:
        """A new folder with its ``config.json``."""
        claim(path)
        folder = RunFolder(path)
        write_json(path / "config.json", {**config, "software": software()})
        with _explained(f"write to {path}"):
            (path / "metrics.jsonl").touch()
            (path / "events.jsonl").touch()
        return folder

    def add_metrics(self, line: Mapping[str, Any]) -> None:
        _append(self.path / "metrics.jsonl", line)

    def add_event(self, line: Mapping[str, Any]) -> None:
        _append(self.path / "events.jsonl", line)

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write ``summary.json``; a run folder without one is a run that did not end."""
        self.add_event({"iteration": summary["iterations"], "event": "finished"})
        write_json(self.path / "summary.json", summary)


def claim(path: Path) -> None:
    """Create a folder, or take an existing one that is empty."""
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise FileExistsError(
            f"{path} already exists and is not an empty folder; choose another --out or remove it."
        )
    with _explained(f"create {path}"):
        path.mkdir(parents=True, exist_ok=True)
    if not os.access(path, os.W_OK):
        raise PermissionError(f"{path} is not writable; choose another --out.")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write the whole file or nothing: a reader never sees half of it."""
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    partial = path.with_name(path.name + ".partial")
    with _explained(f"write {path}"):
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)


def as_json(value: Any) -> Any:
    """Settings as JSON: a dataclass becomes its fields and, under ``type``, its name.

    Of data only the shape is a setting, of a function its name.

    >>> from taskmix.models import MLP
    >>> as_json({"model": MLP(hidden=(8,))})["model"]["hidden"]
    [8]
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: as_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"type": type(value).__name__, **fields}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, np.ndarray | jax.Array):
        return {"shape": list(value.shape), "dtype": str(value.dtype)}
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    if isinstance(value, float) and not math.isfinite(value):
        # JSON knows no infinity; Python reads the word back with float().
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): as_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(entry) for entry in value]
    return value


def software() -> dict[str, Any]:
    """What computed the run, without anything that names the machine."""
    return {
        "taskmix": taskmix.__version__,
        "python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
        "system": platform.system(),
        "machine": platform.machine(),
        "backend": jax.default_backend(),
        "devices": jax.device_count(),
    }


def _append(path: Path, line: Mapping[str, Any]) -> None:
    text = json.dumps(line, allow_nan=False) + "\n"
    # Opened anew for each line, so that everything written survives a crash.
    with _explained(f"write {path}"), path.open("a", encoding="utf-8") as file:
        file.write(text)


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(
            f"Cannot {what}: {error.strerror}; make room there or choose another --out."
        ) from error
