"""Prepared images, opened from disk: every split is one array, and every class a run of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from taskmix.files import inside, open_plain, sha256_of
from taskmix.names import unknown
from taskmix.stores.decode import resize
from taskmix.stores.manifest import HEADER, Manifest, read_manifest, shard_header


@dataclasses.dataclass(frozen=True, eq=False)
class ImageSplit:
    """The classes of one split. Class ``c`` is ``images[first[c] : first[c] + count[c]]``."""

    name: str
    images: np.ndarray
    """uint8 (images, size, size, channels), memory-mapped."""
    first: np.ndarray
    """int32 (classes,): index of each class's first image."""
    count: np.ndarray
    """int32 (classes,)."""
    classes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class ImageStore:
    """A folder that ``taskmix data prepare`` wrote. Open one with ``open_store``."""

    path: Path
    fingerprint: str
    """SHA-256 of the manifest, which holds that of every shard: same fingerprint, same images."""
    manifest: Manifest

    @property
    def size(self) -> int:
        return self.manifest.size

    @property
    def channels(self) -> int:
        return self.manifest.channels

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.manifest.splits)

    def split(self, name: str) -> ImageSplit:
        """The images of a split, which are read from disk when they are used."""
        if name not in self.manifest.splits:
            raise unknown("split", name, self.splits)
        classes = self.manifest.splits[name].classes
        count = np.fromiter(classes.values(), np.int32)
        first = np.concatenate([[0], np.cumsum(count)[:-1]]).astype(np.int32)
        return ImageSplit(name, self._images(name), first, count, tuple(classes))

    def _images(self, name: str) -> np.ndarray:
        path = self.path / f"{name}.npy"
        shape = self.manifest.shape(name)
        with open_plain(path) as file:
            # The header that was written, and no other: NumPy itself reads many kinds of files.
            if file.read(HEADER) != shard_header(shape):
                raise _damaged(path, f"it does not begin as an array of {shape} bytes")
            return np.memmap(file, np.uint8, "r", HEADER, shape)


def open_store(path: Path | str, verify: bool = True) -> ImageStore:
    """Open a store and check that its shards are there, whole and unchanged.

    Parameters
    ----------
    path
        Folder that ``prepare_store`` or ``taskmix data prepare`` wrote.
    verify
        Whether to compare checksums, which takes about a second per gigabyte.

    Returns
    -------
    ImageStore
        Its splits stay on disk until they are used.

    Examples
    --------
    >>> open_store("stores/none")
    Traceback (most recent call last):
    ValueError: There is no store stores/none; taskmix data prepare makes one.
    """
    path = Path(path)
    if not path.is_dir():
        raise ValueError(f"There is no store {path}; taskmix data prepare makes one.")
    manifest, fingerprint = read_manifest(path)
    store = ImageStore(path, fingerprint, manifest)
    for name, shard in manifest.splits.items():
        file = inside(path, f"{name}.npy")
        if not file.is_file() and not file.is_symlink():
            raise _damaged(file, "it is missing")
        if (size := file.lstat().st_size) != shard.bytes:
            raise _damaged(file, f"it has {size:,} bytes, not {shard.bytes:,}")
        if verify and sha256_of(file) != shard.sha256:
            raise _damaged(file, "its content has changed (SHA-256)")
        store._images(name)
    return store


def resized(split: ImageSplit, size: int) -> ImageSplit:
    """The same split with smaller images, in memory.

    Lanczos, as in ``prepare``: a store of 84 made smaller is what a store of the smaller size,
    prepared from the images of 84, would be.

    Parameters
    ----------
    split
        Of a store, or of the drawings that come with taskmix.
    size
        Rows, and columns, of the new images.

    Returns
    -------
    ImageSplit
        With the same classes.

    Examples
    --------
    >>> from taskmix.stores import glyph_split
    >>> resized(glyph_split("val"), 8).images.shape[1:3]
    (8, 8)
    """
    images, old, _, channels = split.images.shape
    if not 1 <= size <= old:
        raise ValueError(
            f"Images of {old}x{old} pixels can be resized to 1 up to {old}, not {size}."
        )
    if size == old:
        return split
    smaller = np.empty((images, size, size, channels), np.uint8)
    for target, image in zip(smaller, split.images, strict=True):
        target[...] = resize(image if channels == 3 else image[..., 0], size).reshape(target.shape)
    return dataclasses.replace(split, images=smaller)


def _damaged(file: Path, why: str) -> ValueError:
    return ValueError(f"{file} is damaged: {why}; prepare the store again.")
