"""Every layout gives the same kind of store; only the names of the files tell them apart."""

import numpy as np
import pytest

from taskmix.stores import open_store
from taskmix.stores.prepare import Options, prepare_store

LAYOUTS = ("classes", "split_folders", "tables", "omniglot", "caches")


def stored(source, out, **options):
    options = {"size": 16, "omniglot_split": "alphabets", **options}
    report = prepare_store(source, out, Options(**options))
    return open_store(out), report


def classes_of(store) -> dict[str, tuple[str, ...]]:
    return {name: store.split(name).classes for name in store.splits}


def same(one, other) -> None:
    assert one.splits == other.splits
    for name in one.splits:
        np.testing.assert_array_equal(one.split(name).images, other.split(name).images)
        assert one.split(name).classes == other.split(name).classes


def test_every_image_of_class_folders_is_in_the_run_of_its_class(tmp_path, draw):
    store, report = stored(draw.folder(tmp_path / "in", draw.classes()), tmp_path / "out")
    assert not report.problems
    found = {}
    for name in store.splits:
        split = store.split(name)
        for c, label in enumerate(split.classes):
            found[label] = split.images[split.first[c] :][: split.count[c]]
    assert sorted(found) == list("abcde")
    for c, label in enumerate("abcde"):
        expected = [draw.pixels(100 * c + i) for i in range(2)]
        np.testing.assert_array_equal(found[label], expected)


def test_split_folders_keep_their_splits(tmp_path, draw):
    store, _ = stored(draw.folder(tmp_path / "in", draw.split_folders()), tmp_path / "out")
    assert classes_of(store) == {"train": ("a", "b"), "val": ("c",), "test": ("d",)}


@pytest.mark.parametrize("name", ["val", "valid", "validation", "Val"])
def test_validation_folder_has_many_names(tmp_path, draw, name):
    files = {**draw.classes("a", under="train/"), **draw.classes("b", under=f"{name}/", start=500)}
    store, _ = stored(draw.folder(tmp_path / "in", files), tmp_path / "out")
    assert classes_of(store) == {"train": ("a",), "val": ("b",)}


def test_two_folders_for_one_split_are_refused(tmp_path, draw):
    files = {**draw.classes("a", under="val/"), **draw.classes("b", under="valid/")}
    with pytest.raises(ValueError, match="are both for val"):
        stored(draw.folder(tmp_path / "in", files), tmp_path / "out")


def test_class_named_train_is_no_split(tmp_path, draw):
    files = draw.classes(("train", "bus", "tram", "car", "bike"))
    store, _ = stored(draw.folder(tmp_path / "in", files), tmp_path / "out")
    assert "train" in sum(classes_of(store).values(), ())


def test_tables_say_split_and_class(tmp_path, draw):
    store, _ = stored(draw.folder(tmp_path / "in", draw.tables()), tmp_path / "out")
    assert classes_of(store) == {"train": ("a",), "val": ("b",), "test": ("c",)}
    expected = [draw.pixels(i) for i in range(3)]
    np.testing.assert_array_equal(store.split("train").images, expected)


def test_files_that_a_table_lists_in_vain_or_twice_are_reported(tmp_path, draw):
    files = draw.tables()
    files["train.csv"] += b"\ngone.png,a\na0.png,a\n../../etc/passwd,a\n"
    _, report = stored(draw.folder(tmp_path / "in", files), tmp_path / "out")
    assert [str(problem) for problem in report.problems] == [
        "images/../../etc/passwd: is missing, but listed in train.csv",
        "images/a0.png: is listed again in train.csv",
        "images/gone.png: is missing, but listed in train.csv",
    ]


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        (b"file,class\na0.png,a", "not filename,label"),
        (b"filename,label\na0.png", "line 2"),
        (b"filename,label\na0.png,", "line 2"),
        (b'filename,label\n"a0.png,a', "line 2"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"", "not filename,label"),
    ],
)
def test_malformed_table_is_named(tmp_path, draw, table, complaint):
    files = {**draw.tables(), "val.csv": table}
    with pytest.raises(ValueError, match=f"val.csv.*{complaint}"):
        stored(draw.folder(tmp_path / "in", files), tmp_path / "out")


def test_omniglot_is_grey_with_bright_strokes(tmp_path, draw):
    store, _ = stored(draw.folder(tmp_path / "in", draw.omniglot()), tmp_path / "out", size=20)
    assert store.channels == 1
    expected = np.zeros((20, 20), np.uint8)
    expected[2:4, 3] = 255
    np.testing.assert_array_equal(store.split("train").images[0, ..., 0], expected)


def test_omniglot_alphabets_are_held_out_whole(tmp_path, draw):
    store, _ = stored(
        draw.folder(tmp_path / "in", draw.omniglot()), tmp_path / "out", rotations=False
    )
    assert classes_of(store) == {
        "train": tuple(f"Alphabet{a}/character01" for a in range(5)),
        "val": ("Alphabet5/character01",),
        "test": ("Alphabet6/character01",),
    }


def test_rotations_are_classes_of_training_only(tmp_path, draw):
    source = draw.folder(tmp_path / "in", draw.omniglot())
    store, _ = stored(source, tmp_path / "out")
    assert [len(store.split(s).classes) for s in ("train", "val", "test")] == [20, 1, 1]
    train = store.split("train")
    assert train.classes[:2] == ("Alphabet0/character01", "Alphabet0/character01/rot90")
    np.testing.assert_array_equal(train.images[2], np.rot90(train.images[0]))
    np.testing.assert_array_equal(train.images[7], np.rot90(train.images[1], 3))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_cache_gives_the_rows_of_each_class(tmp_path, draw, protocol):
    store, _ = stored(draw.folder(tmp_path / "in", draw.caches(protocol)), tmp_path / "out")
    assert classes_of(store)["val"] == ("val0", "val1")
    expected = [draw.pixels(10 + row) for row in (0, 2, 1, 3)]
    np.testing.assert_array_equal(store.split("val").images, expected)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("around", ["", "top/middle/"])
def test_archive_gives_the_same_store_as_the_folder(tmp_path, draw, layout, around):
    files = getattr(draw, layout)() | {"train/a/copy.png": draw.png(0), "train/a/bad.png": b"x"}
    inside = {around + name: content for name, content in reversed(files.items())}
    one, _ = stored(draw.folder(tmp_path / "in", files), tmp_path / "one")
    other, _ = stored(draw.tar(tmp_path / "in.tgz", inside), tmp_path / "other")
    third, _ = stored(draw.zip(tmp_path / "in.zip", inside), tmp_path / "third")
    same(one, other)
    same(one, third)
    assert one.fingerprint == other.fingerprint == third.fingerprint


@pytest.mark.parametrize("mode", ["w:", "w:gz", "w:bz2", "w:xz"])
def test_tar_may_be_packed_in_any_way(tmp_path, draw, mode):
    one, _ = stored(draw.folder(tmp_path / "in", draw.classes()), tmp_path / "one")
    other, _ = stored(draw.tar(tmp_path / "data", draw.classes(), mode), tmp_path / "other")
    same(one, other)


def test_files_of_the_system_are_no_images(tmp_path, draw):
    files = {**draw.classes(), "a/.DS_Store": b"x", "a/Thumbs.db": b"x", "__MACOSX/a/._0.png": b"x"}
    _, report = stored(draw.zip(tmp_path / "in.zip", files), tmp_path / "out")
    assert not report.problems


@pytest.mark.parametrize("files", [{}, {"a.png": b"x"}, {"a/b/c/d/e.png": b"x", "f.txt": b""}])
def test_source_of_no_layout_is_told_the_layouts(tmp_path, draw, files):
    (tmp_path / "in").mkdir()
    with pytest.raises(ValueError, match="any of these layouts"):
        stored(draw.folder(tmp_path / "in", files), tmp_path / "out")


@pytest.mark.parametrize("option", [{"splits": (0.5, 0.25, 0.25)}, {"classes": "ravi"}])
def test_source_with_splits_is_not_split_again(tmp_path, draw, option):
    with pytest.raises(ValueError, match="SOURCE has splits of its own"):
        stored(draw.folder(tmp_path / "in", draw.split_folders()), tmp_path / "out", **option)


def test_class_of_two_splits_is_reported(tmp_path, draw):
    files = {**draw.classes("ab", under="train/"), **draw.classes("b", under="test/", start=900)}
    _, report = stored(draw.folder(tmp_path / "in", files), tmp_path / "out")
    assert [str(problem) for problem in report.problems] == ["b: is a class of both train and test"]
