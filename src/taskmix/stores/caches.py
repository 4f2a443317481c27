"""The pickled caches of miniImageNet: ``mini-imagenet-cache-{train,val,test}.pkl``.

Each is a dictionary: ``image_data`` holds the pixels of all images and ``class_dict`` the rows of
each class. Here they become images like those of any other source, named by their row.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from taskmix.stores.pickles import read_pickle
from taskmix.stores.sources import MOST_FILES, Source

CACHE_NAME = re.compile(r"mini-imagenet-cache-(train|val|test)\.pkl", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Cache:
    """One pickle, checked: the pixels, and the rows of each class."""

    images: np.ndarray
    rows: Mapping[str, list[int]]


class CacheSource:
    """The rows of pickled caches as files, named ``mini-imagenet-cache-train.pkl[17]``.

    One cache is open at a time: out of an archive, the three do not fit in memory together.
    """

    def __init__(self, source: Source, splits: Mapping[str, str]) -> None:
        self._source = source
        self._opened = ("", np.empty(0, np.uint8))
        self._rows: dict[str, tuple[str, int]] = {}
        self.sizes: dict[str, int] = {}
        self.splits: dict[str, dict[str, list[str]]] = {}
        for split, name in splits.items():
            self.splits[split] = self._listed(name)

    def read(self, name: str) -> np.ndarray:
        file, row = self._rows[name]
        if self._opened[0] != file:
            self._opened = ("", np.empty(0, np.uint8))
            self._opened = (file, open_cache(self._source.buffer(file), file).images)
        return self._opened[1][row]

    def _listed(self, name: str) -> dict[str, list[str]]:
        cache = open_cache(self._source.buffer(name), name)
        for row in range(len(cache.images)):
            self._rows[f"{name}[{row}]"] = (name, row)
            self.sizes[f"{name}[{row}]"] = cache.images[0].size
        return {label: [f"{name}[{row}]" for row in rows] for label, rows in cache.rows.items()}


def open_cache(file: memoryview, name: str) -> Cache:
    """Read a cache, and check that it is one."""
    content = read_pickle(file, name)
    if not isinstance(content, dict) or not {"image_data", "class_dict"} <= content.keys():
        raise ValueError(f"{name} is no cache: it lacks the entries image_data and class_dict.")
    images, classes = content["image_data"], content["class_dict"]
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.ndim != 4:
        raise ValueError(f"image_data of {name} is no uint8 array (images, height, width, 3).")
    if images.shape[3] not in (1, 3) or 0 in images.shape:
        raise ValueError(f"image_data of {name} has the shape {images.shape}; it needs 3 channels.")
    if not isinstance(classes, dict) or not classes:
        raise ValueError(f"class_dict of {name} is no dictionary with the rows of each class.")
    if len(images) > MOST_FILES:
        raise ValueError(f"{name} holds more than {MOST_FILES:,} images; it is not read.")
    rows: dict[str, list[int]] = {}
    left = len(images)
    for label, values in classes.items():
        # Counted before they are listed: many classes may share one array of rows.
        left -= len(values) if isinstance(values, list | tuple) else np.size(values)
        if left < 0:
            raise ValueError(f"class_dict of {name} gives more rows than there are images.")
        rows[str(label)] = _rows(values, len(images), str(label), name)
    return Cache(images, rows)


def _rows(values: Any, images: int, label: str, name: str) -> list[int]:
    if isinstance(values, np.ndarray) and values.ndim == 1:
        values = values.tolist()
    if not isinstance(values, list | tuple) or not all(
        type(row) is int and 0 <= row < images for row in values
    ):
        raise ValueError(f"class_dict of {name} gives {label} rows outside 0 to {images - 1}.")
    return list(values)
