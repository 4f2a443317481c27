"""The families of an image stream, as a person writes them: filters, stores and folders."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from taskmix.names import unknown
from taskmix.stores import ImageSplit, open_store, resized, store_of
from taskmix.stores.glyphs import glyph_split
from taskmix.streams.filters import FILTERS
from taskmix.streams.images import Look

GLYPHS = "glyphs"
"""The synthetic images that need no download."""
OWN = ("store:", "folder:")
"""What a family of other images begins with, before the path of a store, folder or archive."""


@dataclasses.dataclass(frozen=True)
class ImageFamily:
    """A kind of tasks: images and the filter they are seen through."""

    name: str
    """What tables and figures call it."""
    data: str
    """A store, a folder or an archive of images, or ``glyphs``."""
    filter: str = "plain"


def image_family(word: str, data: str) -> ImageFamily:
    """A family as it is written on the command line.

    Parameters
    ----------
    word
        A filter (``night``), on the images of ``data``; or other images, ``store:PATH``,
        ``folder:PATH`` or ``glyphs``, perhaps through a filter (``store:PATH+night``).
    data
        Images of families that name none.

    Examples
    --------
    >>> image_family("night", "stores/mini")
    ImageFamily(name='night', data='stores/mini', filter='night')
    >>> image_family("store:stores/omniglot+invert", "glyphs")
    ImageFamily(name='omniglot+invert', data='stores/omniglot', filter='invert')
    """
    if word in FILTERS:
        return ImageFamily(word, data, word)
    images, _, through = word.partition("+")
    if through and through not in FILTERS:
        raise unknown("image filter", through, FILTERS)
    own = next((images[len(mark) :] for mark in OWN if images.startswith(mark)), None)
    if own is None and images != GLYPHS:
        raise unknown("image filter", word, (*FILTERS, GLYPHS, "store:PATH", "folder:PATH"))
    if own == "":
        raise ValueError(f"The family {word!r} has no path; write {word}PATH.")
    name = GLYPHS if own is None else Path(own).resolve().name
    name = f"{name}+{through}" if through else name
    return ImageFamily(name, GLYPHS if own is None else own, through or "plain")


def image_families(words: Sequence[str], data: str) -> tuple[ImageFamily, ...]:
    """All families of a stream; those that share a name but not their images are refused."""
    found = tuple(image_family(word, data) for word in words)
    for one in found:
        for other in found:
            if one.name == other.name and one != other:
                raise ValueError(
                    f"{one.data} and {other.data} would both be called {one.name}; rename a folder."
                )
    return found


def sources_of(families: Sequence[ImageFamily]) -> tuple[str, ...]:
    """The images that families are made of, each once."""
    return tuple(dict.fromkeys(one.data for one in families))


def looks_of(families: Sequence[ImageFamily], order: Sequence[str]) -> tuple[Look, ...]:
    """The looks of the families in another ``order`` of their names, that of a schedule."""
    sources = sources_of(families)
    by_name = {one.name: Look(sources.index(one.data), one.filter) for one in families}
    return tuple(by_name[name] for name in order)


def images_of(data: str, split: str, size: int, verify: bool = True) -> ImageSplit:
    """One split of a store or a folder, or of the glyphs, with images of ``size`` pixels."""
    if data == GLYPHS:
        return glyph_split(split, size)
    images = open_store(store_of(data, size), verify).split(split)
    return images if images.images.shape[1] == size else resized(images, size)


def channels_of(data: str, size: int) -> int:
    """1 for grey images, 3 for colours."""
    return 3 if data == GLYPHS else open_store(store_of(data, size), verify=False).channels


def facts_of(data: str, size: int) -> dict[str, Any]:
    """What ``config.json`` says about images."""
    if data == GLYPHS:
        return {"source": GLYPHS, "synthetic": True}
    store = open_store(store_of(data, size), verify=False)
    return {"source": data, "fingerprint": store.fingerprint}
