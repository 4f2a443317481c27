"""Splits of classes: published ones are complete, drawn ones never change."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmix.stores.archives import open_source
from taskmix.stores.class_lists import CLASS_LISTS, class_list, divide, omniglot_splits
from taskmix.stores.layouts import Division, list_images
from taskmix.stores.prepare import Options, prepare_store

NAMES = st.sets(st.text("abcdefgh", min_size=1, max_size=5), min_size=10, max_size=60)


@pytest.mark.parametrize("name", CLASS_LISTS)
def test_published_list_has_a_hundred_classes_each_in_one_split(name):
    lists = class_list(name)
    assert [len(lists[split]) for split in ("train", "val", "test")] == [64, 16, 20]
    assert len({label for part in lists.values() for label in part}) == 100


def test_unknown_list_suggests_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'cifar-fs'"):
        class_list("cifarfs")


def test_published_list_splits_class_folders(tmp_path, draw):
    files = draw.classes(("apple", "beaver", "bed", "unicorn"))
    source = draw.folder(tmp_path / "in", files)
    listing = list_images(open_source(source), Division(None, "cifar-fs", "characters"))
    found = {split: [c for c in classes if classes[c]] for split, classes in listing.splits.items()}
    assert found == {"train": ["apple"], "val": ["beaver"], "test": ["bed"]}
    assert [str(p) for p in listing.problems] == ["unicorn: is no class of the list cifar-fs"]


def test_listed_classes_without_a_folder_are_reported(tmp_path, draw):
    source = draw.folder(tmp_path / "in", draw.classes(("apple", "bed")))
    report = prepare_store(source, tmp_path / "out", Options(size=16, classes="cifar-fs"))
    assert sum("without a usable image" in problem.what for problem in report.problems) == 98


def test_list_of_other_classes_is_refused(tmp_path, draw):
    source = draw.folder(tmp_path / "in", draw.classes())
    with pytest.raises(ValueError, match="are named like 'n01532829'"):
        prepare_store(source, tmp_path / "out", Options(size=16, classes="ravi"))


@given(NAMES, st.sampled_from([(0.6, 0.2, 0.2), (0.64, 0.16, 0.2), (0.5, 0.5, 0.0)]))
def test_division_deals_every_class_once(names, fractions):
    parts = divide(names, fractions)
    assert sorted(label for part in parts.values() for label in part) == sorted(names)
    for split, fraction in zip(("train", "val", "test"), fractions, strict=True):
        assert abs(len(parts.get(split, ())) - fraction * len(names)) <= 1


def test_division_is_the_same_everywhere_and_forever():
    parts = divide("abcdefghij", (0.6, 0.2, 0.2))
    assert parts == divide(reversed("abcdefghij"), (0.6, 0.2, 0.2))
    assert parts == {"train": list("bcdefj"), "val": list("ah"), "test": list("gi")}


@pytest.mark.parametrize(
    "fractions", [(0.5, 0.5, 0.5), (1.5, -0.5, 0.0), (0.1, 0.1, 0.1), (float("nan"), 0.5, 0.5)]
)
def test_fractions_that_are_none_are_refused(fractions):
    with pytest.raises(ValueError, match=r"splits is .* add up to 1"):
        divide("abc", fractions)


def test_split_that_gets_no_class_is_named():
    with pytest.raises(ValueError, match="leaves no class for val: SOURCE has 2 classes only"):
        divide("ab", (0.8, 0.1, 0.1))


def test_omniglot_has_1200_characters_to_train_and_validate():
    names = {f"alphabet{i % 50}/character{i // 50}": None for i in range(1623)}
    parts = omniglot_splits(names, {}, "characters")
    assert {split: len(part) for split, part in parts.items()} == {
        "train": 1100,
        "val": 100,
        "test": 423,
    }
    assert len({name for part in parts.values() for name in part}) == 1623


def test_part_of_omniglot_cannot_be_split_as_usual():
    with pytest.raises(ValueError, match="omniglot_split alphabets"):
        omniglot_splits({"a/b": None}, {}, "characters")
    with pytest.raises(ValueError, match="Did you mean 'alphabets'"):
        omniglot_splits({}, {}, "alphabet")


def test_ravi_is_the_split_of_the_tables_of_mini_imagenet(real_data):
    source = open_source(real_data / "mini-imagenet.zip")
    for split in ("train", "val"):
        table = csv.DictReader(io.StringIO(source.read(f"{split}.csv").decode()))
        assert {row["label"] for row in table} == set(class_list("ravi")[split])
    source.close()


def test_omniglot_itself_is_recognised(real_data):
    source = open_source(real_data / "omniglot.zip")
    listing = list_images(source, Division(None, None, "characters"))
    source.close()
    assert listing.layout == "omniglot"
    assert {split: len(c) for split, c in listing.splits.items()} == {
        "train": 1100,
        "val": 100,
        "test": 423,
    }
    assert {len(files) for c in listing.splits.values() for files in c.values()} == {20}
