"""``manifest.json``: what a store holds, and how to tell that it still does."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from taskmix.files import read_bytes

FORMAT = "taskmix image store"
VERSION = 2
NAME = "manifest.json"
HEADER = 128
"""Bytes before the pixels of a shard: NumPy pads the header of such an array to this."""
LARGEST = 64 << 20
"""Bytes of a manifest; that of Omniglot with rotations has 0.2 MB."""
MOST_PROBLEMS = 10_000
"""Problems that are listed; where there are more, the source itself is one."""


@dataclasses.dataclass(frozen=True)
class Shard:
    """One split: a file ``<split>.npy`` with the images of its classes, one class after another."""

    classes: Mapping[str, int]
    """How many images each class has, in the order of the file."""
    bytes: int
    sha256: str

    @property
    def images(self) -> int:
        return sum(self.classes.values())


@dataclasses.dataclass(frozen=True)
class Manifest:
    """A store in words. Nothing in it names a time, a place or a machine."""

    size: int
    channels: int
    splits: Mapping[str, Shard]
    source: Mapping[str, Any]
    options: Mapping[str, Any]
    software: Mapping[str, str]
    problems: Sequence[Mapping[str, str]]

    def shape(self, split: str) -> tuple[int, int, int, int]:
        return (self.splits[split].images, self.size, self.size, self.channels)

    def text(self) -> str:
        """What ``read_manifest`` reads; a ``ValueError`` if it would not."""
        content = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)}
        if len(self.problems) > MOST_PROBLEMS:
            more = len(self.problems) - MOST_PROBLEMS
            rest = {"file": "SOURCE", "what": f"has {more:,} more problems, not listed here"}
            content["problems"] = [*self.problems[:MOST_PROBLEMS], rest]
        text = _text({**content, "checksum": _checksum(content)})
        if len(text.encode()) > LARGEST:
            raise ValueError(
                f"{NAME} would have more than {LARGEST >> 20} MiB; SOURCE has too many classes, "
                f"or too long names."
            )
        return text


def shard_header(shape: tuple[int, int, int, int]) -> bytes:
    """The header of a ``.npy`` file of bytes; its length does not depend on the shape."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": shape}
    )
    if len(header.getvalue()) != HEADER:
        raise ValueError(f"NumPy wrote a header of {len(header.getvalue())} bytes, not {HEADER}.")
    return header.getvalue()


def read_manifest(store: Path) -> tuple[Manifest, str]:
    """The manifest of a store, checked for contradictions, and the SHA-256 of its content."""
    path = store / NAME
    if not path.is_file() and not path.is_symlink():
        raise ValueError(
            f"{store} is not a store: it has no {NAME}. taskmix data prepare makes one."
        )
    content = read_bytes(path, LARGEST)
    try:
        manifest = _checked(_parsed(content))
    except _Lie as lie:
        raise ValueError(f"{path} {lie}; prepare the store again.") from None
    return manifest, hashlib.sha256(content).hexdigest()


class _Lie(Exception):
    """What is wrong with a manifest, to follow its name."""


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _Lie(f"is not JSON ({error})") from None
    if not isinstance(parsed, dict) or parsed.get("format") != FORMAT:
        raise _Lie(f"is not the manifest of a {FORMAT}")
    if parsed.get("version") != VERSION:
        raise _Lie(
            f"has format version {parsed.get('version')!r}; this taskmix reads version {VERSION}"
        )
    if parsed.pop("checksum", None) != _checksum(parsed):
        raise _Lie("is damaged: its checksum does not fit")
    return parsed


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(_text(content).encode()).hexdigest()


def _text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=1) + "\n"


def _checked(parsed: dict[str, Any]) -> Manifest:
    fields = {field.name for field in dataclasses.fields(Manifest)}
    if missing := sorted(fields - parsed.keys()):
        raise _Lie(f"lacks {missing[0]!r}")
    size, channels, splits = parsed["size"], parsed["channels"], parsed["splits"]
    if not _count(size) or size > 4096 or channels not in (1, 3) or not isinstance(splits, dict):
        raise _Lie(f"gives images the size {size!r} and {channels!r} channels")
    if not splits:
        raise _Lie("has no splits")
    for name, kind in (("source", dict), ("options", dict), ("software", dict), ("problems", list)):
        if not isinstance(parsed[name], kind):
            raise _Lie(f"gives no {name!r} that can be read")
    shards = {name: _shard(name, entry) for name, entry in splits.items()}
    manifest = Manifest(**{**{name: parsed[name] for name in fields}, "splits": shards})
    for name, shard in shards.items():
        if shard.bytes != HEADER + int(np.prod(manifest.shape(name), dtype=object)):
            raise _Lie(f"contradicts itself: {name}.npy of {shard.bytes} bytes cannot hold it")
    return manifest


def _shard(name: str, entry: Any) -> Shard:
    if not re.fullmatch(r"[a-z0-9_-]{1,64}", name):
        raise _Lie(f"has a split named {name!r}")
    if not isinstance(entry, dict) or entry.keys() != {"classes", "bytes", "sha256"}:
        raise _Lie(f"does not give the classes, bytes and sha256 of {name!r}")
    classes = entry["classes"]
    if not isinstance(classes, dict) or not classes or not all(map(_count, classes.values())):
        raise _Lie(f"does not give how many images the classes of {name!r} have")
    if not _count(entry["bytes"]) or not re.fullmatch(r"[0-9a-f]{64}", str(entry["sha256"])):
        raise _Lie(f"does not give the bytes and sha256 of {name!r}")
    return Shard(**entry)


def _count(value: Any) -> bool:
    return type(value) is int and 0 < value < 2**31
