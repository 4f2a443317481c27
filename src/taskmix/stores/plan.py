"""Where in a store every image of a source will stand, decided before any image is read."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence

from taskmix.stores.layouts import Listing


@dataclasses.dataclass(frozen=True)
class Place:
    split: str
    index: int
    turns: int
    """Quarter turns."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """Where every image goes."""

    runs: Mapping[str, Mapping[str, tuple[int, int]]]
    """First place and number of places of each class of each split."""
    places: Mapping[str, Sequence[Place]]
    """Of each file, in the order of reading; a file that is turned has several."""
    rank: Mapping[str, int]
    """Of each file in the store: of two that are the same, the first one stays."""

    def total(self, split: str) -> int:
        return sum(count for _, count in self.runs[split].values())


def plan_store(listing: Listing, rotations: bool) -> Plan:
    runs: dict[str, dict[str, tuple[int, int]]] = {}
    places: defaultdict[str, list[Place]] = defaultdict(list)
    rank: dict[str, int] = {}
    for split, classes in listing.splits.items():
        turned = rotations and listing.layout == "omniglot" and split == "train"
        runs[split] = {}
        index = 0
        for label, files in sorted(classes.items()):
            for turns in range(4 if turned else 1):
                runs[split][f"{label}/rot{90 * turns}" if turns else label] = (index, len(files))
                for file in sorted(files):
                    rank.setdefault(file, len(rank))
                    places[file].append(Place(split, index, turns))
                    index += 1
    order = {name: position for position, name in enumerate(listing.images.sizes)}
    in_order = dict(sorted(places.items(), key=lambda entry: order[entry[0]]))
    return Plan(runs, in_order, rank)
