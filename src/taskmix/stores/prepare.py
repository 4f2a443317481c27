"""From a source of images to a store: list, decode, write, and report what was wrong."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import PIL

import taskmix
from taskmix.files import explained
from taskmix.machine import cores
from taskmix.stores.archives import open_source
from taskmix.stores.decode import Content, Decoded, Shape, is_grey
from taskmix.stores.layouts import Division, Listing, list_images
from taskmix.stores.manifest import HEADER, Manifest, Shard
from taskmix.stores.plan import Place, Plan, plan_store
from taskmix.stores.pool import decoded
from taskmix.stores.problems import Problem
from taskmix.stores.shards import ShardWriter, check_space, new_folder, write_manifest

SIZES = range(4, 1025)
PEEKED = 20
"""Images looked at for one that tells whether the source has colours."""


@dataclasses.dataclass(frozen=True)
class Options:
    """How images are prepared.

    Examples
    --------
    >>> Options(size=32).rotations
    True
    """

    size: int = 84
    """Pixels on a side of the stored images, which are squares."""
    splits: tuple[float, float, float] | None = None
    """Where SOURCE is a folder per class: fractions for train, val, test (usually .64 .16 .2)."""
    classes: str | None = None
    """Or a published list of the classes of each split: `ravi` (miniImageNet) or `cifar-fs`."""
    omniglot_split: str = "characters"
    """`characters`: 1100, 100 and 423 of all alphabets; `alphabets`: background and evaluation."""
    rotations: bool = True
    """Omniglot only: training characters turned by 90, 180 and 270 degrees are new classes."""
    smallest: int = 8
    """Skip images with fewer pixels than this on a side."""
    strict: bool = False
    """Stop at the first file that has a problem, rather than skip it."""
    workers: int | None = None
    """Processes that decode; all cores unless told otherwise."""

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise ValueError(f"size is {self.size}; it must be {SIZES[0]} to {SIZES[-1]} pixels.")
        if self.smallest < 1:
            raise ValueError(f"smallest is {self.smallest}; it must be at least 1 pixel.")
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"workers is {self.workers}; it must be at least 1.")


@dataclasses.dataclass(frozen=True)
class Report:
    """What came of it."""

    manifest: Manifest
    layout: str
    problems: Sequence[Problem]


Progress = Callable[[int, int], None]
"""Is told how many images are done, and of how many."""


def prepare_store(
    source: str | Path,
    out: str | Path,
    options: Options | None = None,
    progress: Progress = lambda done, total: None,
) -> Report:
    """Write the images of ``source`` to a new store ``out``, or nothing at all.

    Parameters
    ----------
    source
        Folder or archive of images, in one of the layouts of docs/stores.md.
    out
        Folder to create for the store, which ``open_store`` opens.
    options
        Size of the images, and how classes are divided into splits.
    progress
        Is told how many images are done, and of how many.

    Returns
    -------
    Report
        What the store holds, and what was wrong with which file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for colour, name in (("red", "train/cat"), ("blue", "train/dog"), ("white", "val/cow")):
    ...         path = Path(folder, "images", name)
    ...         path.mkdir(parents=True)
    ...         Image.new("RGB", (16, 16), colour).save(path / "1.png")
    ...     found = prepare_store(f"{folder}/images", f"{folder}/store", Options(size=8, workers=1))
    >>> {name: shard.images for name, shard in found.manifest.splits.items()}
    {'train': 2, 'val': 1}
    """
    source, out, options = Path(source), Path(out), options or Options()
    with new_folder(out) as folder, contextlib.closing(open_source(source)) as opened:
        division = Division(options.splits, options.classes, options.omniglot_split)
        listing = list_images(opened, division)
        plan = plan_store(listing, options.rotations)
        channels = 1 if _looks_grey(listing, plan) else 3
        try:
            return _write(listing, plan, folder, out, options, channels, progress)
        except _ColourFound:
            return _write(listing, plan, folder, out, options, 3, progress)


class _ColourFound(Exception):
    """A source that began in grey goes on in colour: begin again, with three channels."""


def _looks_grey(listing: Listing, plan: Plan) -> bool:
    """Whether the first readable image has no colours; if later ones do, the work starts again."""
    for name in itertools.islice(plan.places, PEEKED):
        with contextlib.suppress(ValueError, OSError):
            grey = is_grey(listing.images.read(name))
            if grey is not None:
                return grey
    return False


def _write(
    listing: Listing,
    plan: Plan,
    folder: Path,
    out: Path,
    options: Options,
    channels: int,
    progress: Progress,
) -> Report:
    problems = _Problems(options.strict)
    for problem in listing.problems:
        problems.add(problem.file, problem.what)
    for (one, left), (other, right) in itertools.combinations(plan.runs.items(), 2):
        # Such a store is written, as its user may know; but it cannot tell what is new.
        for label in sorted(left.keys() & right.keys()):
            problems.add(label, f"is a class of both {one} and {other}")
    image = options.size**2 * channels
    check_space(folder, sum(HEADER + plan.total(split) * image for split in plan.runs))
    with explained(f"write {out}"):
        writers = {
            split: ShardWriter(folder / f"{split}.npy", plan.total(split), options.size, channels)
            for split in plan.runs
        }
    try:
        shape = Shape(options.size, channels, options.smallest, listing.layout == "omniglot")
        digests = _Digests(listing, plan, problems)
        workers = options.workers or cores()
        images = decoded(digests.read(), len(plan.places), shape, workers)
        with contextlib.closing(images):
            for done, (file, result) in enumerate(images, 1):
                _put(plan.places[file], file, result, writers, problems, out)
                progress(done, len(plan.places))
        for file, first in digests.duplicates():
            problems.add(file, f"is a duplicate of {first}")
            for place in plan.places[file]:
                writers[place.split].drop(place.index)
        shards = _finish(plan, writers, problems, out)
    finally:
        for writer in writers.values():
            writer.close()
    if not shards:
        raise ValueError(f"SOURCE has no usable image: {problems.first}.")
    manifest = Manifest(
        size=options.size,
        channels=channels,
        splits=shards,
        source={
            "layout": listing.layout,
            "files": len(plan.places),
            "sha256": digests.fingerprint(),
        },
        options={
            name: value
            for name, value in dataclasses.asdict(options).items()
            if name not in ("size", "workers")
        },
        software={"taskmix": taskmix.__version__, "pillow": PIL.__version__},
        problems=[dataclasses.asdict(problem) for problem in problems.found],
    )
    with explained(f"write {out}"):
        write_manifest(folder, manifest)
    return Report(manifest, listing.layout, problems.found)


def _put(
    places: Sequence[Place],
    file: str,
    result: Decoded,
    writers: Mapping[str, ShardWriter],
    problems: _Problems,
    out: Path,
) -> None:
    if result.colourful:
        raise _ColourFound
    if result.pixels is None:
        problems.add(file, result.problem)
        return
    with explained(f"write {out}"):
        for place in places:
            writers[place.split].put(place.index, np.rot90(result.pixels, place.turns))


def _finish(
    plan: Plan, writers: Mapping[str, ShardWriter], problems: _Problems, out: Path
) -> dict[str, Shard]:
    """Close the shards; classes and splits without images are reported and left out."""
    shards: dict[str, Shard] = {}
    for split, runs in plan.runs.items():
        filled = writers[split].filled
        counts = {c: int(filled[first : first + n].sum()) for c, (first, n) in runs.items()}
        for label, count in counts.items():
            if not count:
                problems.add(label, f"is a class of {split} without a usable image")
        left = {label: count for label, count in counts.items() if count}
        with explained(f"write {out}"):
            if left:
                shards[split] = writers[split].finish(left)
            else:
                writers[split].path.unlink()
    return shards


class _Problems:
    """Collects the first problem of every file, or stops at the very first one."""

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self._found: dict[str, Problem] = {}

    @property
    def first(self) -> Problem:
        return next(iter(self._found.values()))

    @property
    def found(self) -> list[Problem]:
        """By name: the order in which files are read depends on where they are."""
        return [self._found[name] for name in sorted(self._found)]

    def add(self, file: str, what: str) -> None:
        if self.strict:
            raise ValueError(f"{file} {what}; strict stops at the first problem.")
        self._found.setdefault(file, Problem(file, what))


class _Digests:
    """Reads the files, and knows by their SHA-256 which of them are the same."""

    def __init__(self, listing: Listing, plan: Plan, problems: _Problems) -> None:
        self.listing = listing
        self.plan = plan
        self.problems = problems
        self._digests: dict[str, bytes] = {}
        self._first: dict[bytes, str] = {}

    def read(self) -> Iterator[tuple[str, Content]]:
        """The files with their content, in the order of reading."""
        for file in self.plan.places:
            try:
                content = self.listing.images.read(file)
            except (ValueError, OSError) as error:
                self.problems.add(file, f"cannot be read: {error}")
                continue
            self._compare(file, _digest(content))
            yield file, content

    def duplicates(self) -> Iterator[tuple[str, str]]:
        """Files that are the same as one before them in the store, which comes second."""
        for file, digest in self._digests.items():
            if self._first[digest] != file:
                yield file, self._first[digest]

    def fingerprint(self) -> str:
        """Of the whole source: the name, the split and the content of every file."""
        total = hashlib.sha256()
        for file in sorted(self._digests):
            where = sorted({place.split for place in self.plan.places[file]})
            total.update(f"{file}\0{where}\0".encode() + self._digests[file])
        return total.hexdigest()

    def _compare(self, file: str, digest: bytes) -> None:
        self._digests[file] = digest
        other = self._first.get(digest, file)
        if other != file and self.problems.strict:
            self.problems.add(file, f"is a duplicate of {other}")
        self._first[digest] = min(file, other, key=self.plan.rank.__getitem__)


def _digest(content: Content) -> bytes:
    if isinstance(content, bytes):
        return hashlib.sha256(content).digest()
    return hashlib.sha256(f"{content.shape}".encode() + content.tobytes()).digest()
