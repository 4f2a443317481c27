"""Labels for images of one's own, from a few examples of each class in a folder."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

from taskmix.experiments.sharing import Predictor
from taskmix.likelihood import Categorical
from taskmix.stores.archives import open_source
from taskmix.stores.decode import Shape, decode
from taskmix.stores.layouts import SUFFIXES
from taskmix.stores.prepare import SIZES

TOGETHER = 200
"""Queries that are predicted in one call."""


@dataclasses.dataclass(frozen=True)
class Pictures:
    """Images of a folder, made into what a model takes."""

    names: tuple[str, ...]
    """Paths within the folder."""
    pixels: UInt8[np.ndarray, "images size size channels"]
    problems: tuple[str, ...]
    """Files that are no readable image, and why."""

    @property
    def values(self) -> Float[np.ndarray, "images size size channels"]:
        return self.pixels.astype(np.float32) / 255


@dataclasses.dataclass(frozen=True)
class LabelledPictures:
    """What a model says about the images of a folder."""

    support: Pictures
    query: Pictures
    classes: tuple[str, ...]
    known: tuple[int, ...]
    """Class of each support image."""
    probabilities: Float[np.ndarray, "images classes"]
    novelty: float | None
    """How untypical the support set is of all that the model knows; None if it cannot tell."""

    @property
    def labels(self) -> list[str]:
        return [self.classes[place] for place in self.probabilities.argmax(axis=1)]


def labelled(predictor: Predictor, support: str | Path, query: str | Path) -> LabelledPictures:
    """Label the images of one folder from examples in another.

    Parameters
    ----------
    predictor
        A model of images.
    support
        Folder or archive with a folder per class, a few images in each.
    query
        Folder or archive with images to label.

    Returns
    -------
    LabelledPictures
        Probabilities of the classes of ``support``, for every image of ``query``.
    """
    size, channels = _shape_of(predictor)
    known, asked = pictures(support, size, channels), pictures(query, size, channels)
    folders = [name.rpartition("/")[0] for name in known.names]
    if "" in folders:
        raise ValueError(
            f"{Path(support) / known.names[folders.index('')]} is in no folder; {support} needs a "
            f"folder per class, named as the class."
        )
    classes = tuple(sorted(set(folders)))
    if len(classes) > predictor.outputs:
        raise ValueError(
            f"{support} has {len(classes)} classes; the model tells {predictor.outputs} apart. "
            f"Leave some out, or train one with a larger way."
        )
    labels = [classes.index(folder) for folder in folders]
    parts = [
        predictor.predict(known.values, np.asarray(labels), asked.values[first : first + TOGETHER])
        for first in range(0, len(asked.names), TOGETHER)
    ]
    every = np.concatenate([np.asarray(part.mean) for part in parts])
    # A class that has no example cannot be the answer.
    shares = every[:, : len(classes)]
    shares = shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-30)
    novelty = parts[0].novelty
    return LabelledPictures(
        known, asked, classes, tuple(labels), shares, None if novelty is None else float(novelty)
    )


def pictures(folder: str | Path, size: int, channels: int) -> Pictures:
    """The readable images of a folder or an archive, in the order of their names."""
    shape = Shape(size, channels, smallest=1, inverted=False)
    names, pixels, problems = [], [], []
    with contextlib.closing(open_source(Path(folder))) as source:
        for name in sorted(source.sizes):
            if not name.lower().endswith(SUFFIXES):
                continue
            found = decode(source.read(name), shape)
            if found.colourful:
                # A model of grey images sees the brightness of a coloured one.
                found = decode(source.read(name), dataclasses.replace(shape, channels=3))
            if found.pixels is None:
                problems.append(f"{name} {found.problem}")
                continue
            names.append(name)
            pixels.append(_grey(found.pixels) if channels == 1 else found.pixels)
    if not names:
        raise ValueError(
            f"{folder} has no readable image; give a folder or an archive with "
            f"{', '.join(SUFFIXES[:3])} or other images."
            + (f" First problem: {problems[0]}." if problems else "")
        )
    return Pictures(tuple(names), np.stack(pixels), tuple(problems))


def _grey(pixels: np.ndarray) -> np.ndarray:
    if pixels.shape[-1] == 1:
        return pixels
    weights = np.array([0.299, 0.587, 0.114])
    grey: np.ndarray = np.round(pixels @ weights)[..., None].astype(np.uint8)
    return grey


def _shape_of(predictor: Predictor) -> tuple[int, int]:
    """Pixels of a side and channels of the images that a model takes."""
    shape = predictor.facts["example"]["support"]["x"]["shape"]
    if not isinstance(predictor.learner.likelihood, Categorical) or len(shape) != 4:
        raise ValueError(
            f"The model takes inputs of shape {tuple(shape[1:])}, not images with labels; train "
            f"one on images, for instance with the experiment few-shot."
        )
    size, width, channels = shape[1:]
    if size not in SIZES or width != size or channels not in (1, 3):
        # Whatever a file says: every image is made as large.
        raise ValueError(
            f"The model takes images of {size} x {width} pixels with {channels} channels; they "
            f"must be square, of {SIZES[0]} to {SIZES[-1]} pixels, grey or coloured."
        )
    return size, channels
