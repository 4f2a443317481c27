"""What every target is made of: good files, ways to spoil them, and how they are read."""

import dataclasses
import hashlib
import io
import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image
from tests.fuzz.mutations import spoiled, spoiled_json

Files = dict[str, bytes]


@dataclasses.dataclass(frozen=True)
class Target:
    """Good files by name, what may be spoiled, and how all of it is read."""

    good: Callable[[], Files]
    read: Callable[[Path], object]
    signed: Callable[[Files, str, random.Random], Files] | None = None
    """Spoils a file knowingly, and makes the checksums fit again."""


def spoiled_files(target: Target, good: Files, draw: random.Random) -> Files:
    """The same files, one of them spoiled."""
    name = draw.choice(sorted(good))
    if target.signed is not None and draw.random() < 0.6:
        return target.signed(good, name, draw)
    return {**good, name: spoiled(good[name], draw)}


def write(folder: Path, files: Files) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def files_in(folder: Path) -> Files:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def spoiled_object(content: bytes, draw: random.Random) -> dict | None:
    """A JSON object with other values; None if that is not what it is any more."""
    changed = spoiled_json(json.loads(content), draw)
    return changed if isinstance(changed, dict) else None


def other_header(content: bytes, draw: random.Random) -> bytes:
    """The same arrays, described in other ways."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    if draw.random() < 0.5 and "__metadata__" in header:
        facts = json.loads(header["__metadata__"]["taskmix"])
        header["__metadata__"]["taskmix"] = json.dumps(spoiled_json(facts, draw))
    else:
        header = spoiled_json(header, draw)
    text = as_json(header)
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def as_json(value: object) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def resigned(files: Files, name: str, content: bytes) -> Files:
    """Another file of a checkpoint, with a manifest that fits."""
    manifest_name = name.rpartition("/")[0] + "/manifest.json"
    manifest = json.loads(files[manifest_name])
    manifest["files"][name.rpartition("/")[2]] = {
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    return {**files, name: content, manifest_name: as_json(manifest)}


def pictures() -> Files:
    """Two images of each of three classes."""
    rng = np.random.default_rng(0)
    files = {}
    for number, (label, form) in enumerate([*zip("aabbcc", ["PNG", "JPEG"] * 3, strict=True)]):
        image = Image.fromarray(rng.integers(0, 256, (9, 9, 3), np.uint8))
        file = io.BytesIO()
        image.save(file, form)
        files[f"{label}/{number}.{form.lower()}"] = file.getvalue()
    return files
