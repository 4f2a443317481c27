"""The files that a run leaves behind."""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import json
import math
import os
import platform
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

import taskmix
from taskmix.files import NotPlain, explained, inside, read_bytes, sha256_of, write_json
from taskmix.training.lines import Lines
from taskmix.training.lock import NAME, Refused

LIBRARIES = ("jax", "jaxlib", "equinox", "optax", "numpy")


CONFIG, COMMAND, CHECKSUMS = "config.json", "command.json", "checksums.json"
RESULTS = ("metrics.jsonl", "events.jsonl", "summary.json")
"""What comes out of a run. They have checksums when it has ended."""
EXAMPLES = "examples.json"
"""Tasks to be looked at; a run has them when it has ended, those of older versions do not."""
JOURNAL = "journal.jsonl"
DIVERGED = "diverged"
"""What the journal notes of a run that cannot go on, with the reason as ``why``."""
LARGEST = 4 << 30
"""Bytes of one of them."""
COMMANDS = ("run", "compare", "reproduce", "tune")
"""Those that train, and can be given again."""
BEGUN = {NAME, COMMAND, CONFIG}
"""All that may be in a folder which has just been begun, whole or in part."""
Kind = Literal["run", "comparison"]


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """One run on disk: what was asked for, what was measured, what happened, what came out."""

    path: Path
    runs: tuple[str, ...]
    """Fingerprints of the settings: the present ones first, then those it was begun with."""
    metrics: Lines
    events: Lines

    @staticmethod
    def open(
        path: Path,
        config: Mapping[str, Any],
        accept: Sequence[str] = (),
        computed_by: Mapping[str, Any] | None = None,
    ) -> RunFolder:
        """A new folder with its ``config.json``, or that of a run which is to go on.

        The settings must be those it was begun with, but for those one is to ``accept``.
        ``computed_by`` goes into what is told about the software. The caller holds its lock.
        """
        claim(path)
        config = {**config, "software": {**software(), **(computed_by or {})}}
        runs = (fingerprint(config),)
        if (path / CONFIG).exists():
            before = read_json(path / CONFIG)
            earlier = before.pop("continues", [])
            check_unchanged(path, before, config, accept)
            runs = tuple(dict.fromkeys([*runs, fingerprint(before), *earlier]))
            if before != config:
                write_json(path / CONFIG, {**config, "continues": runs[1:]})
        else:
            write_json(path / CONFIG, config)
        return RunFolder(path, runs, Lines(path / "metrics.jsonl"), Lines(path / "events.jsonl"))

    def begin(self, copies: Mapping[str, Path]) -> None:
        """Start over from copies of files with lines, by name, whatever was written after them."""
        for lines in self.lines:
            lines.start_over(copies.get(lines.path.name))

    @property
    def lines(self) -> tuple[Lines, Lines]:
        """The files that grow while a run goes on, and of which checkpoints hold copies."""
        return self.metrics, self.events

    def note(self, what: str, **facts: Any) -> None:
        """Add to the journal of interruptions, which no measure depends on."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        Lines(self.path / JOURNAL).add({"time": now, "note": what, **facts})

    def finish(self, summary: Mapping[str, Any], examples: Sequence[Any] = ()) -> None:
        """Write what came out and, last, checksums: without them a run has not ended."""
        self.events.add({"iteration": summary["iterations"], "event": "finished"})
        write_json(self.path / "summary.json", summary)
        write_json(self.path / EXAMPLES, {"tasks": list(examples)})
        names = (*RESULTS, EXAMPLES)
        write_json(self.path / CHECKSUMS, {name: _sum(self.path / name) for name in names})

    def summary(self) -> dict[str, Any] | None:
        """What came out, if the run has ended and its results are what it wrote."""
        try:
            check_results(self.path)
            return read_json(self.path / "summary.json")
        except NotPlain:
            raise
        except (ValueError, OSError):
            return None

    @property
    def has_results(self) -> bool:
        """Whether there is something that a run which begins anew would take the place of."""
        return (self.path / "summary.json").exists()


def check_results(path: Path) -> None:
    """Raise a ``ValueError`` unless the results of an ended run are what the run wrote."""
    sums = read_json(path / CHECKSUMS)
    for name in (*RESULTS, *({EXAMPLES} & set(sums))):
        if not inside(path, name).exists():
            raise ValueError(f"{path / name} is missing; taskmix resume makes it again.")
        told, size = sums.get(name), (path / name).stat().st_size
        # The size first: it costs nothing, and a file may have holes of any size.
        same = isinstance(told, dict) and told.get("bytes") == size <= LARGEST
        if not same or _sum(path / name) != told:
            raise ValueError(
                f"{path / name} is not what the run wrote (wrong checksum); taskmix resume makes "
                f"it again from the last checkpoint."
            )


def _sum(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": sha256_of(path)}


def claim(path: Path, kind: Kind = "run") -> None:
    """Create a folder for a run or a comparison, or take one that is empty or holds one already.

    What it holds is told by the content of its files, before anything is written: many programs
    have a ``config.json``.
    """
    if path.exists() and not path.is_dir():
        raise Refused(f"{path} already exists and is not a folder; choose another folder.")
    held = kind_of(path) if path.is_dir() else None
    if held not in (None, kind):
        raise Refused(f"{path} holds a {held}; choose another folder for a {kind}, or remove it.")
    with explained(f"create {path}"):
        path.mkdir(parents=True, exist_ok=True)
    if not os.access(path, os.W_OK):
        raise PermissionError(f"{path} is not writable; choose another folder.")


def kind_of(path: Path) -> Kind | None:
    """What a folder holds, None for nothing yet; ``Refused`` if it is not of taskmix."""
    names = {entry.name for entry in path.iterdir()}
    if CONFIG in names:
        software = read_json(path / CONFIG).get("software")
        if isinstance(software, dict) and "taskmix" in software:
            return "run"
    elif COMMAND in names:
        return "run" if read_command(path)[0] == "run" else "comparison"
    elif {name.removesuffix(".partial") for name in names} <= BEGUN:
        return None
    raise Refused(
        f"{path} already exists and is not a folder of taskmix, nor empty; choose another folder "
        f"or remove it."
    )


def read_command(path: Path) -> list[str]:
    """The command that makes a folder, or ``Refused`` if what is there is none of taskmix."""
    command = read_json(path / COMMAND).get("command")
    if (
        not isinstance(command, list)
        or not all(isinstance(argument, str) for argument in command)
        or command[:1] not in [[name] for name in COMMANDS]
    ):
        raise Refused(f"{path / COMMAND} does not hold a command of taskmix; give it yourself.")
    return command


def fingerprint(config: Mapping[str, Any]) -> str:
    """Of the settings; the same on every machine."""
    settings = {name: value for name, value in config.items() if name != "software"}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def check_unchanged(
    path: Path, before: Mapping[str, Any], after: Mapping[str, Any], accept: Sequence[str]
) -> None:
    """Raise a ``Refused`` that shows every difference which is not one to ``accept``."""
    was, becomes = dict(_flat(before)), dict(_flat(after))
    changed = [
        name
        for name in dict.fromkeys([*was, *becomes])
        if was.get(name, UNSET) != becomes.get(name, UNSET)
        and not any(name == one or name.startswith(f"{one}.") for one in accept)
    ]
    if not changed:
        return
    shown = [
        f"{name} was {_shown(was, name)} and is {_shown(becomes, name)}"
        for name in changed[:SHOWN_CHANGES]
    ]
    if len(changed) > SHOWN_CHANGES:
        shown.append(f"{len(changed) - SHOWN_CHANGES} more")
    raise Refused(
        f"{path} was begun with other settings: {'; '.join(shown)}. Choose another folder, or "
        f"go on all the same and accept {shlex.join(changed[:SHOWN_CHANGES])}."
    )


UNSET = object()
SHOWN_CHANGES = 6


def _shown(settings: Mapping[str, Any], name: str) -> str:
    return json.dumps(settings[name]) if name in settings else "not set"


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting by its name in ``config.json``, nested names joined by dots."""
    if isinstance(value, Mapping) and value:
        for key, entry in value.items():
            yield from _flat(entry, f"{name}.{key}" if name else key)
    else:
        yield name, value


def read_json(path: Path) -> dict[str, Any]:
    """An object from a file, or a ``ValueError`` that names the file."""
    try:
        content = json.loads(read_bytes(path))
    except NotPlain:
        raise
    except FileNotFoundError:
        raise ValueError(f"{path} is missing; give a folder that taskmix wrote.") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}); restore it, or repeat the run.") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no object; restore it, or repeat the run.")
    return content


def as_json(value: Any) -> Any:
    """Settings as JSON: a dataclass becomes its fields and, under ``type``, its name.

    Of data only the shape is a setting, of a function its name.

    >>> from taskmix.models import MLP
    >>> as_json({"model": MLP(hidden=(8,))})["model"]["hidden"]
    [8]
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: as_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"type": public_name(type(value)), **fields}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, np.generic):
        return as_json(value.item())
    if isinstance(value, np.ndarray | jax.Array):
        return {"shape": list(value.shape), "dtype": str(value.dtype)}
    if callable(value):
        return public_name(value)
    if isinstance(value, float) and not math.isfinite(value):
        # JSON knows no infinity; Python reads the word back with float().
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): as_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(entry) for entry in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    # A part of somebody else's that is neither: its name is all there is to say of it.
    return public_name(value)


def public_name(part: Any) -> str:
    """What a class or a function is called in JSON; those of other packages after their package.

    >>> import math
    >>> public_name(math.sqrt)
    'math:sqrt'
    """
    if not hasattr(part, "__name__"):
        part = type(part)
    package = (part.__module__ or "").split(".")[0]
    return part.__name__ if package == "taskmix" else f"{package}:{part.__name__}"


@functools.cache
def sources() -> str:
    """A fingerprint of the code itself, which may change under the same version."""
    package = files("taskmix")
    digest = hashlib.sha256()
    for name, content in sorted(_python_files(package, "")):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _python_files(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _python_files(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".py"):
            # As it is written on any system.
            yield prefix + entry.name, entry.read_bytes().replace(b"\r\n", b"\n")


def software() -> dict[str, Any]:
    """What computed the run, without anything that names the machine."""
    return {
        "taskmix": taskmix.__version__,
        "sources": sources(),
        "python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
        "system": platform.system(),
        "machine": platform.machine(),
        "backend": jax.default_backend(),
        "devices": 1,
        "processes": jax.process_count(),
    }
