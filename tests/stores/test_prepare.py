"""A store is written whole or not at all, and what was left out is told."""

import errno
import json
import os
import shutil
from collections import namedtuple

import numpy as np
import pytest
from PIL import Image

from taskmix.stores import open_store, shards
from taskmix.stores import prepare as module
from taskmix.stores.pool import decoded
from taskmix.stores.prepare import Options, prepare_store
from taskmix.stores.shards import ShardWriter

SMALL = Options(size=16)
ALL_TRAIN = Options(size=16, splits=(1.0, 0.0, 0.0))


def problems(report) -> dict[str, str]:
    return {problem.file: problem.what for problem in report.problems}


def with_problems(draw) -> dict[str, bytes]:
    files = draw.classes("ab", images=4)
    files["a/0.png"] = files["a/0.png"][:60]
    files["a/2.png"] = files["b/1.png"]
    files["b/3.png"] = draw.png(77, size=(20, 5))
    return files


def test_broken_duplicate_and_tiny_files_are_skipped_and_named(tmp_path, draw):
    source = draw.folder(tmp_path / "in", with_problems(draw))
    report = prepare_store(source, tmp_path / "out", ALL_TRAIN)
    found = problems(report)
    assert sorted(found) == ["a/0.png", "b/1.png", "b/3.png"]
    assert found["a/0.png"].startswith("is not a readable image")
    assert found["b/1.png"] == "is a duplicate of a/2.png"
    assert found["b/3.png"] == "is too small: 5x20 pixels, smallest is 8"


def test_of_many_copies_the_first_in_the_store_stays_whatever_is_read_first(tmp_path, draw):
    files = draw.classes("ab") | {f"b/{name}.png": draw.png(0) for name in "xyz"}
    backwards = dict(reversed(files.items()))
    for name, order in (("one", files), ("two", backwards)):
        source = draw.tar(tmp_path / f"{name}.tar", order)
        report = prepare_store(source, tmp_path / name, ALL_TRAIN)
        assert problems(report) == {f"b/{n}.png": "is a duplicate of a/0.png" for n in "xyz"}


def test_gaps_are_closed_without_moving_an_image_to_another_class(tmp_path, draw):
    source = draw.folder(tmp_path / "in", with_problems(draw))
    prepare_store(source, tmp_path / "out", ALL_TRAIN)
    train = open_store(tmp_path / "out").split("train")
    assert (train.first.tolist(), train.count.tolist()) == ([0, 3], [3, 2])
    expected = [draw.pixels(number) for number in (1, 101, 3, 100, 102)]
    np.testing.assert_array_equal(train.images, expected)


def test_problems_are_in_the_manifest(tmp_path, draw):
    source = draw.folder(tmp_path / "in", with_problems(draw))
    report = prepare_store(source, tmp_path / "out", ALL_TRAIN)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert {entry["file"]: entry["what"] for entry in manifest["problems"]} == problems(report)


@pytest.mark.parametrize("name", ["a/0.png", "b/1.png", "b/3.png"])
def test_strict_stops_at_any_problem_and_leaves_nothing(tmp_path, draw, name):
    files = draw.classes("ab", images=4) | {name: with_problems(draw)[name]}
    if name == "b/1.png":
        files["a/2.png"] = files[name]
    source = draw.folder(tmp_path / "in", files)
    with pytest.raises(ValueError, match=f"{name}.*strict"):
        prepare_store(
            source, tmp_path / "out", Options(size=16, splits=(1.0, 0.0, 0.0), strict=True)
        )
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_strict_stops_at_a_file_that_a_table_lists_in_vain(tmp_path, draw):
    files = draw.tables()
    del files["images/b1.png"]
    with pytest.raises(ValueError, match=r"images/b1.png is missing.*strict"):
        prepare_store(
            draw.folder(tmp_path / "in", files), tmp_path / "out", Options(16, strict=True)
        )


def test_file_has_one_problem_at_most(tmp_path, draw):
    files = draw.classes("ab") | {"a/8.png": b"no image", "b/9.png": b"no image"}
    report = prepare_store(draw.folder(tmp_path / "in", files), tmp_path / "out", ALL_TRAIN)
    assert [problem.file for problem in report.problems] == ["a/8.png", "b/9.png"]


def test_class_without_a_usable_image_is_reported_and_left_out(tmp_path, draw):
    files = draw.classes("ab") | {"c/0.png": b"no image"}
    report = prepare_store(draw.folder(tmp_path / "in", files), tmp_path / "out", ALL_TRAIN)
    assert problems(report)["c"] == "is a class of train without a usable image"
    assert open_store(tmp_path / "out").split("train").classes == ("a", "b")


def test_split_without_a_usable_image_is_left_out(tmp_path, draw):
    files = draw.split_folders() | {"val/c/0.png": b"", "val/c/1.png": b""}
    prepare_store(draw.folder(tmp_path / "in", files), tmp_path / "out", SMALL)
    assert open_store(tmp_path / "out").splits == ("train", "test")
    assert not (tmp_path / "out" / "val.npy").exists()


def test_source_without_a_usable_image_is_refused(tmp_path, draw):
    source = draw.folder(tmp_path / "in", {"a/0.png": b"no image"})
    with pytest.raises(ValueError, match=r"no usable image: a/0.png"):
        prepare_store(source, tmp_path / "out", ALL_TRAIN)
    assert not (tmp_path / "out").exists()


def test_file_that_cannot_be_read_is_skipped_and_named(tmp_path, draw):
    source = draw.folder(tmp_path / "in", draw.classes("ab"))
    listed = module.list_images

    def then_removed(*arguments):
        listing = listed(*arguments)
        (source / "a/1.png").unlink()
        return listing

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "list_images", then_removed)
        report = prepare_store(source, tmp_path / "out", ALL_TRAIN)
    assert "cannot be read" in problems(report)["a/1.png"]


def test_grey_source_has_one_channel(tmp_path, draw):
    files = {f"a/{i}.png": draw.png(i, channels=1) for i in range(3)}
    prepare_store(draw.folder(tmp_path / "in", files), tmp_path / "out", ALL_TRAIN)
    store = open_store(tmp_path / "out")
    assert store.channels == 1
    expected = np.stack([draw.pixels(i, channels=1) for i in range(3)])[..., None]
    np.testing.assert_array_equal(store.split("train").images, expected)


def test_one_image_in_colour_gives_all_of_them_three_channels(tmp_path, draw):
    files = {f"a/{i}.png": draw.png(i, channels=1) for i in range(3)} | {"a/9.png": draw.png(9)}
    prepare_store(draw.folder(tmp_path / "in", files), tmp_path / "out", ALL_TRAIN)
    images = open_store(tmp_path / "out").split("train").images
    grey = draw.pixels(1, channels=1)
    np.testing.assert_array_equal(images[1], np.stack([grey] * 3, -1))
    np.testing.assert_array_equal(images[3], draw.pixels(9))


def test_images_are_squashed_not_cropped(tmp_path, draw):
    wide = draw.encoded(Image.fromarray(draw.pixels(0, size=(20, 40))))
    prepare_store(draw.folder(tmp_path / "in", {"a/0.png": wide}), tmp_path / "out", ALL_TRAIN)
    expected = Image.fromarray(draw.pixels(0, size=(20, 40))).resize((16, 16), Image.LANCZOS)
    np.testing.assert_array_equal(
        open_store(tmp_path / "out").split("train").images[0], np.asarray(expected)
    )


def test_processes_give_the_store_that_one_process_gives(tmp_path, draw, monkeypatch):
    source = draw.folder(tmp_path / "in", draw.classes(images=30))
    prepare_store(source, tmp_path / "one", SMALL)
    monkeypatch.setattr("taskmix.stores.pool.WORTH_A_POOL", 1)
    prepare_store(source, tmp_path / "two", Options(size=16, workers=2))
    assert open_store(tmp_path / "one").fingerprint == open_store(tmp_path / "two").fingerprint


def test_progress_counts_up_to_all_images(tmp_path, draw):
    seen = []
    source = draw.folder(tmp_path / "in", draw.classes())
    prepare_store(source, tmp_path / "out", SMALL, lambda done, total: seen.append((done, total)))
    assert seen == [(i, 10) for i in range(1, 11)]


@pytest.mark.parametrize("kind", ["file", "folder", "dangling link"])
def test_existing_out_is_refused_and_untouched(tmp_path, draw, kind):
    out = tmp_path / "out"
    {"file": out.touch, "folder": out.mkdir, "dangling link": lambda: out.symlink_to("x")}[kind]()
    with pytest.raises(FileExistsError, match="choose another folder"):
        prepare_store(draw.folder(tmp_path / "in", draw.classes()), out, SMALL)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(errno.ENOSPC, "x"), MemoryError])
@pytest.mark.parametrize("step", ["put", "finish"])
def test_failure_while_writing_leaves_nothing_behind(tmp_path, draw, monkeypatch, error, step):
    def fails(*_):
        raise error

    monkeypatch.setattr(ShardWriter, step, fails)
    source = draw.folder(tmp_path / "in", draw.classes())
    with pytest.raises((KeyboardInterrupt, OSError, MemoryError)):
        prepare_store(source, tmp_path / "new" / "deep" / "out", SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("failing", ["fsync", "rename"])
def test_failure_at_the_very_end_leaves_nothing_behind(tmp_path, draw, monkeypatch, failing):
    def fails(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    source = draw.folder(tmp_path / "in", draw.classes())
    target = os if failing == "fsync" else type(tmp_path)
    monkeypatch.setattr(target, failing, fails)
    with pytest.raises(OSError, match=r"Cannot write .*out: Input/output error; make it writable"):
        prepare_store(source, tmp_path / "out", SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_full_disk_is_told_with_what_to_do(tmp_path, draw, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(ShardWriter, "put", full)
    with pytest.raises(OSError, match=r"No space left on device; make room there or choose"):
        prepare_store(draw.folder(tmp_path / "in", draw.classes()), tmp_path / "out", SMALL)


def test_space_is_checked_before_the_work(tmp_path, draw, monkeypatch):
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(shards.SPARE))
    monkeypatch.setattr(module, "decoded", lambda *_: pytest.fail("work was begun"))
    with pytest.raises(OSError, match="make room there or choose another folder"):
        prepare_store(draw.folder(tmp_path / "in", draw.classes()), tmp_path / "out", SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_images_are_read_as_they_are_needed(draw):
    """However many images there are, only a few are on their way at a time."""
    ahead = 0

    def images():
        nonlocal ahead
        for i in range(300):
            ahead += 1
            yield i, draw.png(i)

    shape = module.Shape(size=8, channels=3, smallest=1, inverted=False)
    for _ in decoded(images(), 300, shape, workers=1):
        ahead -= 1
        assert ahead <= 64


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"size": 3}, "size is 3"),
        ({"size": 5000}, "size is 5000"),
        ({"smallest": 0}, "smallest is 0"),
        ({"workers": 0}, "workers is 0"),
    ],
)
def test_option_out_of_range_is_named(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        Options(**options)
