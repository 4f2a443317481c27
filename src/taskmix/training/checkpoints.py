"""What a run needs to go on, on disk: whole or not there, and never mistaken for good if broken.

A checkpoint is a folder named after its iteration. ``checkpoint.safetensors`` holds all
arrays and, in its header, all facts; ``manifest.json`` holds the size and the SHA-256 of
that file. Loading one runs no code. docs/runs.md says why this and not Orbax.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
from safetensors.numpy import load, save

import taskmix
from taskmix.files import NotPlain, explained, inside, read_bytes, sha256_of, sync, write_bytes
from taskmix.learner import Growing, Learner, State

FORMAT = "taskmix checkpoint"
VERSION = 3
ARRAYS = "checkpoint.safetensors"
MANIFEST = "manifest.json"
DIGITS = 12
"""Of an iteration in the name of a folder, so that names sort as numbers do."""
PARTIAL = ".partial"
"""Ends the name of what is being written or removed; nothing reads it."""
PLAIN = "biuf"
"""Kinds of types that are kept as they are."""
LARGEST = 16 << 30
"""Bytes of a file; what is in it is in memory, too."""
GROWTHS = 32
"""How often a capacity may have doubled."""


class Broken(ValueError):
    """A checkpoint that must not be used, and why."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """One seed's run at the end of a chunk."""

    iteration: int
    arrays: Mapping[str, np.ndarray]
    facts: Mapping[str, Any]
    """Whatever JSON can say."""
    files: Mapping[str, Path] = dataclasses.field(default_factory=dict)
    """Where the further files of a checkpoint that was read are, by name."""


@dataclasses.dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run, in a folder of their own."""

    path: Path
    runs: tuple[str, ...]
    """Fingerprints of the run: its own first, then those of which it is the continuation."""

    def iterations(self) -> list[int]:
        """Of all checkpoints, good or not; newest first."""
        folder = inside(self.path.parent, self.path.name)
        if not folder.is_dir():
            return []
        names = (entry.name for entry in folder.iterdir())
        return sorted((int(n) for n in names if n.isdigit() and len(n) == DIGITS), reverse=True)

    def save(
        self, checkpoint: Checkpoint, files: Mapping[str, Iterable[bytes]] | None = None
    ) -> None:
        """Write the whole checkpoint or none: it gets its name when it is safely on disk.

        Further ``files`` come block by block.
        """
        facts = {
            "format": FORMAT,
            "version": VERSION,
            "run": self.runs[0],
            "iteration": checkpoint.iteration,
            "facts": checkpoint.facts,
        }
        arrays = {name: np.asarray(array, order="C") for name, array in checkpoint.arrays.items()}
        content = save(arrays, {"taskmix": json.dumps(facts, allow_nan=False)})
        files = {ARRAYS: [content], **(files or {})}
        inside(self.path.parent, self.path.name)
        target = self._folder(checkpoint.iteration)
        partial = target.with_name(target.name + PARTIAL)
        with explained(f"write {target}"):
            try:
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir(parents=True)
                manifest = {
                    "format": FORMAT,
                    "version": VERSION,
                    "taskmix": taskmix.__version__,
                    "files": {name: _written(partial / name, files[name]) for name in files},
                }
                write_bytes(partial / MANIFEST, (json.dumps(manifest) + "\n").encode())
                sync(partial)
                self._remove(target)
                partial.rename(target)
                sync(self.path)
            except OSError:
                # Whatever room it took may be all that is missing to write something else.
                shutil.rmtree(partial, ignore_errors=True)
                raise

    def read(self, iteration: int) -> Checkpoint:
        """A checkpoint, or ``Broken`` unless every bit of it is as it was written."""
        folder = self._folder(iteration)
        with _broken(folder):
            inside(self.path.parent, self.path.name, folder.name)
            manifest = json.loads(read_bytes(folder / MANIFEST))
            if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
                raise Broken(f"{folder / MANIFEST} is not of a {FORMAT}")
            if manifest.get("version") != VERSION:
                raise Broken(f"{folder} has version {manifest.get('version')!r}, not {VERSION}")
            files = {name: folder / name for name in manifest["files"]}
            for name, path in files.items():
                told = manifest["files"][name]
                # The size first: it costs nothing, and a file may have holes of any size.
                same = path.parent == folder and path.lstat().st_size == told["bytes"] <= LARGEST
                if not same or sha256_of(path) != told["sha256"]:
                    raise Broken(f"{path} is not what was written (wrong checksum)")
            content = read_bytes(files.pop(ARRAYS), LARGEST)
            facts = header(content)
            if facts["run"] not in self.runs or facts["iteration"] != iteration:
                raise Broken(f"{folder} belongs to another run")
            return Checkpoint(iteration, load(content), facts["facts"], files)

    def prune(self, keep: int) -> None:
        """Remove all but the newest, and what an interruption left half-written."""
        for iteration in self.iterations()[keep:]:
            self._remove(self._folder(iteration))
        for left in self.path.glob(f"*{PARTIAL}"):
            shutil.rmtree(left, ignore_errors=True)

    def forget_after(self, iteration: int) -> None:
        """Remove the checkpoints of later iterations, which are going to be reached again."""
        for later in self.iterations():
            if later > iteration:
                self._remove(self._folder(later))

    def _folder(self, iteration: int) -> Path:
        return self.path / f"{iteration:0{DIGITS}}"

    def _remove(self, folder: Path) -> None:
        """First the name, so that no reader meets a folder which is half removed."""
        if folder.exists():
            doomed = folder.with_name(f"{folder.name}-removed{PARTIAL}")
            shutil.rmtree(doomed, ignore_errors=True)
            folder.rename(doomed)
            shutil.rmtree(doomed)


def _written(path: Path, content: Iterable[bytes]) -> dict[str, Any]:
    """Write a file, and say what is in it."""
    digest, size = hashlib.sha256(), 0

    def counted() -> Iterator[bytes]:
        nonlocal size
        for block in content:
            digest.update(block)
            size += len(block)
            yield block

    write_bytes(path, counted())
    return {"bytes": size, "sha256": digest.hexdigest()}


def newest_common(every: Sequence[Checkpoints], problems: list[str]) -> list[Checkpoint] | None:
    """The newest checkpoint that all runs of a group have in good order; None if none has any.

    What was wrong with newer ones is added to ``problems``. Raises a ``ValueError`` if there
    are some, but none of them good.
    """
    shared = set.intersection(*(set(one.iterations()) for one in every))
    for iteration in sorted(shared, reverse=True):
        try:
            return [one.read(iteration) for one in every]
        except Broken as error:
            problems.append(str(error))
    if shared:
        raise ValueError(
            f"No checkpoint can be used: {'; '.join(problems)}. "
            f"Put a copy back, or remove {every[0].path.parent} to begin anew."
        )
    return None


def header(content: bytes) -> dict[str, Any]:
    """The facts in the header of a safetensors file."""
    length = int.from_bytes(content[:8], "little")
    return json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["taskmix"])


def as_arrays(tree: Any, prefix: str) -> dict[str, np.ndarray]:
    """The leaves of a pytree by name, as NumPy arrays of a type that any program can read.

    >>> as_arrays({"a": jnp.ones(2)}, "state")
    {"state['a']": array([1., 1.], dtype=float32)}
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {prefix + jax.tree_util.keystr(path): _plain(leaf) for path, leaf in leaves}


def from_arrays(
    learner: Learner, first: State, arrays: Mapping[str, np.ndarray], prefix: str
) -> State:
    """The state that ``as_arrays`` took apart, given the shapes of the learner's ``first`` one.

    Its capacity may have grown since. Anything else that does not fit raises ``Broken``.
    """
    own = {name: array for name, array in arrays.items() if name.startswith(prefix)}
    leaves, structure = jax.tree_util.tree_flatten_with_path(first)
    names = [prefix + jax.tree_util.keystr(path) for path, _ in leaves]
    if set(names) != set(own):
        raise Broken(f"the arrays {sorted(set(names) ^ set(own))[:3]} are missing or unknown")
    found = [own[name] for name in names]
    expected = first
    for _ in range(GROWTHS):
        wanted = jax.tree.leaves(expected)
        if [(array.shape, array.dtype) for array in found] == list(map(_kept, wanted)):
            restored = [_as(leaf.dtype, array) for array, leaf in zip(found, wanted, strict=True)]
            return jax.tree.unflatten(structure, restored)
        smaller = sum(array.size for array in found) < sum(leaf.size for leaf in wanted)
        if smaller or not isinstance(learner, Growing):
            break
        expected = jax.eval_shape(learner.grow, expected)
    raise Broken("the arrays have other shapes or types than the learner's")


def check_finite(state: State, first: Callable[[], State]) -> None:
    """Raise ``Broken`` if there are NaNs or infinities where training leaves none.

    The learner's ``first`` state is made only if there are any: it may hold some itself.
    """

    def finite(tree: State) -> list[bool]:
        leaves = jax.tree.leaves(tree)
        known = (leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact))
        return [bool(jnp.all(jnp.isfinite(leaf))) for leaf in known]

    found = finite(state)
    if not all(found) and any(
        begun and not now for begun, now in zip(finite(first()), found, strict=True)
    ):
        raise Broken("it holds numbers that are not finite")


def _plain(leaf: Any) -> np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(leaf))
    array = np.asarray(leaf)
    # Types that only accelerators know, such as bfloat16, are kept as their bits.
    return array if array.dtype.kind in PLAIN else array.view(f"u{array.dtype.itemsize}")


def _as(dtype: Any, array: np.ndarray) -> Any:
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=dtype._impl)
    return array if array.dtype == dtype else array.view(dtype)


def _kept(leaf: Any) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type in which a leaf is kept."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        bits = jax.eval_shape(jax.random.key_data, leaf)
        return bits.shape, np.dtype(bits.dtype)
    dtype = np.dtype(leaf.dtype)
    return leaf.shape, dtype if dtype.kind in PLAIN else np.dtype(f"u{dtype.itemsize}")


@contextlib.contextmanager
def _broken(folder: Path) -> Iterator[None]:
    """Whatever goes wrong in reading a checkpoint means that it is broken."""
    try:
        yield
    except OSError as error:
        raise Broken(f"{folder} cannot be read ({error.strerror or error})") from None
    except (ValueError, KeyError, TypeError, RecursionError, safetensors.SafetensorError) as error:
        if isinstance(error, Broken):
            raise
        if isinstance(error, NotPlain):
            raise Broken(str(error)) from None
        raise Broken(f"{folder} is damaged ({type(error).__name__})") from None
