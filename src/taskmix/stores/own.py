"""Images as people have them: a store, or a folder or archive that becomes one when it is used."""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from taskmix.compiled import own_folder
from taskmix.stores.archives import open_source
from taskmix.stores.manifest import NAME as MANIFEST
from taskmix.stores.prepare import Options, prepare_store

KEPT = "stores"
"""Folder within the user's cache folder for what was prepared on the way."""


def store_of(
    source: str | Path, size: int, tell: Callable[[str], None] = lambda line: None
) -> Path:
    """The store of some images: ``source`` itself, or what is made of it and kept.

    Parameters
    ----------
    source
        A store, or a folder or an archive in one of the layouts of ``prepare_store``.
    size
        Pixels on a side of the images of a new store.
    tell
        Hears what is being done, if it takes time.

    Returns
    -------
    Path
        A store. One that is made lies in the user's cache folder, by the place, names, sizes and
        dates of the images, so that it is made again when these change. Where nothing is kept, or
        others could write to that folder, it is there for this process only.

    Examples
    --------
    >>> store_of("no/such/folder", 32)
    Traceback (most recent call last):
        ...
    ValueError: There is no store no/such/folder; taskmix data prepare makes one.
    """
    source = Path(source)
    if not source.exists():
        raise ValueError(f"There is no store {source}; taskmix data prepare makes one.")
    if (source / MANIFEST).exists():
        return source
    kept = _place(source, size)
    if (kept / MANIFEST).exists():
        return kept
    tell(f"preparing the images of {source}: {size}x{size} pixels, kept in {kept}")
    try:
        report = prepare_store(source, kept, Options(size=size))
    except FileExistsError:
        # Another process was quicker.
        return kept
    found = [f"{name} {len(one.classes)}" for name, one in report.manifest.splits.items()]
    tell(f"classes: {', '.join(found)}; files with problems: {len(report.problems)}")
    return kept


def _place(source: Path, size: int) -> Path:
    """Where the store of a source is kept: another for other images, and for another size."""
    told = hashlib.sha256(f"{source.resolve()} {size}".encode())
    with contextlib.closing(open_source(source)) as opened:
        for name, length in sorted(opened.sizes.items()):
            changed = (source / name).stat().st_mtime_ns if source.is_dir() else 0
            told.update(f"{name} {length} {changed}\n".encode(errors="surrogatepass"))
    if not source.is_dir():
        told.update(str(source.stat().st_mtime_ns).encode())
    folder = own_folder(KEPT) or _for_this_process()
    return folder / f"{source.name or 'images'}-{told.hexdigest()[:16]}"


@functools.cache
def _for_this_process() -> Path:
    """A place that others know nothing of, which is gone in the end."""
    folder = tempfile.mkdtemp(prefix="taskmix-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
