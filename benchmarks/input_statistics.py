"""Do the images of a task tell through which filter it is seen, before any label is looked at?

Compares two descriptions of images, six statistics made by hand and the responses of random
convolutions, under the model of inputs of the mixture: one row per filter follows tasks of half of
the classes, batch by batch, and tasks of the other half are given to the row with the largest
density. Without a store it takes the built-in glyphs.

    python benchmarks/input_statistics.py STORE --size 32
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from taskmix.mixture.inputs import SUPPORT, Description, Inputs
from taskmix.stores import ImageSplit, open_store, resized
from taskmix.stores.glyphs import glyph_split
from taskmix.streams import image_features, image_statistics
from taskmix.streams.filters import FILTERS

DESCRIPTIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "six statistics": image_statistics,
    "random convolutions": image_features,
}
BATCH = 5
"""Tasks that a row follows at a time."""


@dataclasses.dataclass(frozen=True)
class Flags:
    """Recognise filters by the inputs of tasks."""

    store: Annotated[Path | None, tyro.conf.Positional] = None
    """Folder that ``taskmix data prepare`` wrote."""
    split: str = "train"
    size: int = 32
    """Pixels a side."""
    images: int = 20
    """Of each class; a class that has fewer is left out."""
    way: int = 5
    """Images of a task, each of another class."""
    learned: tuple[int, ...] = (10, 40, 150)
    """Tasks of each filter that the model has seen."""
    asked: int = 150
    """Tasks of each filter that it is asked about."""
    seed: int = 0


def load(flags: Flags) -> np.ndarray:
    """Images in [0, 1] with axes (classes, images, height, width, channels)."""
    if flags.store is None:
        split: ImageSplit = glyph_split(flags.split, flags.size)
    else:
        split = open_store(flags.store).split(flags.split)
    enough = split.count >= flags.images
    chosen = split.first[enough][:, None] + np.arange(flags.images)
    few = dataclasses.replace(split, images=split.images[chosen.ravel()])
    images = resized(few, flags.size).images
    return images.reshape(*chosen.shape, *images.shape[1:]).astype(np.float32) / 255


def described(images: np.ndarray, describe: Callable[[jax.Array], jax.Array]) -> np.ndarray:
    """Axes (filters, classes, images, numbers)."""
    found = []
    for filtered in FILTERS.values():
        measured = jax.jit(lambda x, filtered=filtered: describe(filtered(x)))
        found.append(np.stack([np.asarray(measured(jnp.asarray(x))) for x in images]))
    return np.stack(found)


def tasks(numbers: np.ndarray, count: int, way: int, rng: np.random.Generator) -> np.ndarray:
    """One image each of ``way`` classes, with axes (filters, tasks, images, numbers)."""
    _, classes, images, _ = numbers.shape
    chosen = np.stack([rng.choice(classes, way, replace=False) for _ in range(count)])
    return numbers[:, chosen, rng.integers(images, size=chosen.shape)]


@jax.jit
def described_tasks(images: jax.Array) -> Description:
    """Of tasks that have one image of each class."""
    kind = jnp.broadcast_to(jnp.arange(images.shape[1]), images.shape[:2])
    there = jnp.ones(kind.shape, bool)
    return Description.of(images, kind, there, there)


def densities(seen: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Of the tasks asked about under the row of each filter: axes (filters, tasks, rows)."""
    filters, count, _, width = seen.shape
    model, observe = Inputs.begin(filters + 1, width), jax.jit(Inputs.observe)
    for first, one in itertools.product(range(0, count, BATCH), range(filters)):
        some = described_tasks(jnp.asarray(seen[one, first : first + BATCH]))
        weights = jnp.zeros((len(some.freedom), filters + 1))
        model = observe(model, some, weights.at[:, jnp.array([one, filters])].set(1))
    return np.asarray(model.log_density(jnp.asarray(asked.mean(axis=2)), SUPPORT))[..., :-1]


def areas(found: np.ndarray) -> np.ndarray:
    """For every pair of filters: how often a task of the one has the larger ratio of densities."""
    filters = len(found)
    table = np.full((filters, filters), np.nan)
    for one, other in itertools.permutations(range(filters), 2):
        own = found[one, :, one] - found[one, :, other]
        foreign = found[other, :, one] - found[other, :, other]
        above = (own[:, None] > foreign).mean() + 0.5 * (own[:, None] == foreign).mean()
        table[one, other] = above
    return table


def main(flags: Flags) -> None:
    images, console = load(flags), Console(width=130)
    summary = Table(title=f"{len(FILTERS)} filters, {flags.way} images per task")
    for heading in ("description", "tasks seen per filter", "routed right", "mean AUC", "worst"):
        summary.add_column(heading, justify="left" if heading == "description" else "right")
    names = list(FILTERS)
    for description, describe in DESCRIPTIONS.items():
        numbers = described(images, describe)
        for learned in flags.learned:
            rng = np.random.default_rng(flags.seed)
            seen = tasks(numbers[:, ::2], learned, flags.way, rng)
            asked = tasks(numbers[:, 1::2], flags.asked, flags.way, rng)
            found = densities(seen, asked)
            right = np.mean(found.argmax(axis=-1) == np.arange(len(names))[:, None])
            area = areas(found)
            worst = np.unravel_index(np.nanargmin(area), area.shape)
            pair = f"{np.nanmin(area):.3f} ({names[worst[0]]} / {names[worst[1]]})"
            summary.add_row(
                description, str(learned), f"{right:.1%}", f"{np.nanmean(area):.3f}", pair
            )
        console.print(_matrix(f"{description}: AUC of each pair of filters", names, area))
    console.print(summary)


def _matrix(title: str, names: list[str], area: np.ndarray) -> Table:
    table = Table(title=title)
    for heading in ("", *names):
        table.add_column(heading, justify="right")
    for name, row in zip(names, area, strict=True):
        table.add_row(name, *("" if np.isnan(one) else f"{one:.3f}" for one in row))
    return table


if __name__ == "__main__":
    main(tyro.cli(Flags))
