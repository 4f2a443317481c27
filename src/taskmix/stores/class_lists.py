"""Which class belongs to which split: published lists, fractions, and Omniglot's practice.

Where a split is drawn at random, classes are ordered by the SHA-256 of their name. Such an order
is the same on every machine and under every version of every library.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files

from taskmix.names import unknown

SPLITS = ("train", "val", "test")
CLASS_LISTS = ("ravi", "cifar-fs")
"""Ravi & Larochelle 2017 for miniImageNet; Bertinetto et al. 2019 for CIFAR-FS."""
OMNIGLOT_TRAIN, OMNIGLOT_VAL = 1100, 100
"""Characters. Vinyals et al. 2016 train on 1200 of 1623; Finn et al. 2017 keep 100 of them aside
to choose settings with."""
OMNIGLOT_SPLITS = ("characters", "alphabets")


def class_list(name: str) -> dict[str, tuple[str, ...]]:
    """The classes of each split of a published list.

    >>> {split: len(classes) for split, classes in class_list("ravi").items()}
    {'train': 64, 'val': 16, 'test': 20}
    """
    if name not in CLASS_LISTS:
        raise unknown("list of classes", name, CLASS_LISTS)
    text = files("taskmix.stores").joinpath("classes", f"{name}.txt").read_text("utf-8")
    pairs = [line.split() for line in text.splitlines()]
    return {split: tuple(label for s, label in pairs if s == split) for split in SPLITS}


def shuffled(names: Iterable[str]) -> list[str]:
    """The names in an order that looks random and never changes."""
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())


def divide(classes: Iterable[str], fractions: Sequence[float]) -> dict[str, list[str]]:
    """Deal classes out to train, val and test.

    >>> {split: len(c) for split, c in divide("abcdefghij", (0.6, 0.2, 0.2)).items()}
    {'train': 6, 'val': 2, 'test': 2}
    """
    check_fractions(fractions)
    order = shuffled(classes)
    ends = [round(len(order) * math.fsum(fractions[: i + 1])) for i in range(3)]
    dealt = {
        split: sorted(order[start:end])
        for split, start, end in zip(SPLITS, [0, *ends], ends, strict=False)
    }
    short = [s for s, part in zip(SPLITS, fractions, strict=True) if part and not dealt[s]]
    if short:
        raise ValueError(
            f"splits {' '.join(map(str, fractions))} leaves no class for {short[0]}: "
            f"SOURCE has {len(order)} classes only; give it a larger part, or 0."
        )
    return {split: labels for split, labels in dealt.items() if labels}


def check_fractions(fractions: Sequence[float]) -> None:
    fine = len(fractions) == 3 and all(0 <= part <= 1 for part in fractions)
    if not fine or not math.isclose(math.fsum(fractions), 1, abs_tol=1e-6):
        raise ValueError(
            f"splits is {' '.join(map(str, fractions))}; it must be three fractions for train, "
            "val and test that add up to 1."
        )


def omniglot_splits(
    background: Mapping[str, object], evaluation: Mapping[str, object], practice: str
) -> dict[str, list[str]]:
    """Characters, named ``alphabet/character``, of each split.

    ``characters`` mixes all alphabets: 1100 characters to train, 100 to validate, the rest to
    test. ``alphabets`` tests on the evaluation set, and validates on the last sixth of the
    background alphabets (5 of 30), so that both are of alphabets never trained on.
    """
    if practice not in OMNIGLOT_SPLITS:
        raise unknown("way to split Omniglot", practice, OMNIGLOT_SPLITS)
    if practice == "alphabets":
        alphabets = sorted({name.split("/")[0] for name in background})
        last = set(alphabets[len(alphabets) - len(alphabets) // 6 :])
        held_out = {name for name in background if name.split("/")[0] in last}
        parts = [set(background) - held_out, held_out, set(evaluation)]
    else:
        order = shuffled({*background, *evaluation})
        end = OMNIGLOT_TRAIN + OMNIGLOT_VAL
        if len(order) <= end:
            raise ValueError(
                f"SOURCE has {len(order)} characters of Omniglot; the usual split takes {end} to "
                "train and validate. Use omniglot_split alphabets, or all 1623 characters."
            )
        parts = [set(order[:OMNIGLOT_TRAIN]), set(order[OMNIGLOT_TRAIN:end]), set(order[end:])]
    return {split: sorted(part) for split, part in zip(SPLITS, parts, strict=True) if len(part) > 0}
