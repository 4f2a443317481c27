"""How a source tells the class and the split of an image: recognised by the names of its files."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from taskmix.stores.caches import CACHE_NAME, CacheSource
from taskmix.stores.class_lists import SPLITS, class_list, divide, omniglot_splits
from taskmix.stores.problems import Problem
from taskmix.stores.sources import MOST_FILES, Images, Source, Within, text_of

SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp"),
    *(".tif", ".tiff", ".ppm", ".pgm", ".pbm"),
)
SPLIT_NAMES = {"train": "train", "test": "test"} | dict.fromkeys(
    ("val", "valid", "validation"), "val"
)
OMNIGLOT = ("images_background", "images_evaluation")
USUAL_FRACTIONS = (0.64, 0.16, 0.2)
"""Of miniImageNet and CIFAR-FS: 64, 16 and 20 of 100 classes."""
LAYOUTS = """a folder per class; train, val and test folders with a folder per class; images/ with \
train.csv, val.csv and test.csv; Omniglot's images_background and images_evaluation; \
mini-imagenet-cache-{train,val,test}.pkl"""

Classes = Mapping[str, Sequence[str]]
"""Files of each class."""


@dataclasses.dataclass(frozen=True)
class Division:
    """How to split what has no splits of its own."""

    splits: tuple[float, float, float] | None
    classes: str | None
    omniglot_split: str


@dataclasses.dataclass(frozen=True)
class Listing:
    """The images of a source, before any was looked at."""

    layout: str
    images: Images
    """Where to read them."""
    splits: Mapping[str, Classes]
    problems: Sequence[Problem] = ()


def list_images(source: Source, division: Division) -> Listing:
    """Recognise the layout, be it at the top or within a single folder around everything."""
    views = [Within(source, base) for base in _bases(list(source.sizes))]
    for view in views:
        for layout in (_caches, _tables, _omniglot, _split_folders):
            listing = layout(view, division)
            if listing is not None:
                if division.splits or division.classes:
                    setting = "splits" if division.splits else "classes"
                    raise ValueError(
                        f"{setting} is for a folder per class; SOURCE has splits of its own "
                        f"({listing.layout})."
                    )
                return listing
    for view in views:
        listing = _class_folders(view, division)
        if listing is not None:
            return listing
    raise ValueError(f"No images found in SOURCE. It may have any of these layouts: {LAYOUTS}.")


def _bases(names: list[str]) -> Iterator[str]:
    """The top, and the folders that hold everything that the one above them holds."""
    base = ""
    while True:
        yield base
        tops = {name[len(base) :].split("/", 1)[0] for name in names}
        if len(tops) != 1 or f"{base}{next(iter(tops))}" in names:
            return
        base = f"{base}{tops.pop()}/"


def _caches(source: Source, division: Division) -> Listing | None:
    found = {}
    for name in source.sizes:
        if match := CACHE_NAME.fullmatch(name):
            found[match[1].lower()] = name
    if not found:
        return None
    caches = CacheSource(source, {split: found[split] for split in SPLITS if split in found})
    return Listing("pickled caches", caches, caches.splits)


def _tables(source: Source, division: Division) -> Listing | None:
    tables = _by_split(
        {name[: -len(".csv")]: name for name in source.sizes if name.endswith(".csv")}
    )
    if not tables:
        return None
    splits: dict[str, Classes] = {}
    problems: list[Problem] = []
    listed: set[str] = set()
    for split, table in tables.items():
        classes: defaultdict[str, list[str]] = defaultdict(list)
        for file, label in _rows(source, table):
            places = (f"images/{file}", f"images/{label}/{file}", file)
            name = next((place for place in places if place in source.sizes), None)
            if name is None:
                problems.append(Problem(places[0], f"is missing, but listed in {table}"))
            elif name in listed:
                problems.append(Problem(name, f"is listed again in {table}"))
            else:
                listed.add(name)
                classes[label].append(name)
        splits[split] = classes
    return Listing("tables", source, splits, problems)


def _rows(source: Source, table: str) -> Iterator[tuple[str, str]]:
    reader = csv.reader(io.StringIO(text_of(source, table), newline=""), strict=True)
    try:
        header = next(reader, [])
        if not {"filename", "label"} <= set(header):
            raise ValueError(f"{table} has the header {','.join(header)!r}, not filename,label.")
        file, label = header.index("filename"), header.index("label")
        for number, row in enumerate(reader):
            if number >= MOST_FILES:
                raise ValueError(f"{table} has more than {MOST_FILES:,} rows; it is not read.")
            if not row:
                continue
            if len(row) != len(header) or not row[file] or not row[label]:
                raise ValueError(f"{table}, line {reader.line_num}: expected a filename and label.")
            yield row[file], row[label]
    except csv.Error as error:
        raise ValueError(f"{table}, line {reader.line_num}: {error}.") from None


def _omniglot(source: Source, division: Division) -> Listing | None:
    halves = [_grouped(source, f"{half}/", (1, 3)) for half in OMNIGLOT]
    if not any(halves):
        return None
    background, evaluation = halves
    both = background | evaluation
    parts = omniglot_splits(background, evaluation, division.omniglot_split)
    splits = {split: {label: both[label] for label in part} for split, part in parts.items()}
    return Listing("omniglot", source, splits)


def _split_folders(source: Source, division: Division) -> Listing | None:
    tops = {name.split("/", 1)[0] for name in source.sizes}
    folders = _by_split({top: f"{top}/" for top in tops})
    splits = {split: _grouped(source, folder, (1, 2)) for split, folder in folders.items()}
    splits = {split: classes for split, classes in splits.items() if classes}
    return Listing("split folders", source, splits) if splits else None


def _class_folders(source: Source, division: Division) -> Listing | None:
    classes = _grouped(source, "", (0, 1))
    if not classes:
        return None
    problems = []
    if division.classes is None:
        parts = divide(classes, division.splits or USUAL_FRACTIONS)
    elif division.splits is not None:
        raise ValueError("splits and classes are two ways to split; give one of them.")
    else:
        parts = {split: list(part) for split, part in class_list(division.classes).items()}
        listed = {label for part in parts.values() for label in part}
        if not listed & set(classes):
            raise ValueError(
                f"No folder of SOURCE is a class of the list {division.classes}; its classes "
                f"are named like {min(listed)!r}."
            )
        problems = [
            Problem(label, f"is no class of the list {division.classes}")
            for label in sorted(set(classes) - listed)
        ]
    splits = {
        split: {label: classes.get(label, []) for label in sorted(part)}
        for split, part in parts.items()
    }
    return Listing("class folders", source, splits, problems)


def _grouped(source: Source, start: str, label: tuple[int, int]) -> dict[str, list[str]]:
    """Images in the folder ``start`` by class.

    The class is in the parts ``label`` of the name, which only the file's own name follows.
    """
    first, end = label
    classes: defaultdict[str, list[str]] = defaultdict(list)
    for name in source.sizes:
        parts = name.split("/")
        if len(parts) == end + 1 and name.startswith(start) and name.lower().endswith(SUFFIXES):
            classes["/".join(parts[first:end])].append(name)
    return dict(classes)


def _by_split(found: Mapping[str, str]) -> dict[str, str]:
    """What was found under any of the names of a split, in the usual order of the splits."""
    splits: dict[str, str] = {}
    for key, name in sorted(found.items()):
        split = SPLIT_NAMES.get(key.lower())
        if split in splits:
            raise ValueError(f"{splits[split]} and {name} are both for {split}; remove one.")
        if split is not None:
            splits[split] = name
    return {split: splits[split] for split in SPLITS if split in splits}
