"""A store that is damaged, or lies, is not opened."""

import dataclasses
import json
import random

import numpy as np
import pytest
from PIL import Image

from taskmix.stores import ImageSplit, open_store, resized
from taskmix.stores.manifest import HEADER, _checksum
from taskmix.stores.prepare import Options, prepare_store


@pytest.fixture
def store(tmp_path, draw):
    files = draw.split_folders()
    prepare_store(draw.folder(tmp_path / "in", files), tmp_path / "store", Options(size=16))
    return tmp_path / "store"


def changed(store, change) -> None:
    """Rewrite the manifest, with a checksum that fits."""
    content = json.loads((store / "manifest.json").read_text())
    del content["checksum"]
    change(content)
    content["checksum"] = _checksum(content)
    (store / "manifest.json").write_text(json.dumps(content))


def test_store_tells_what_it_holds(store, draw):
    opened = open_store(store)
    assert (opened.path, opened.size, opened.channels) == (store, 16, 3)
    assert opened.splits == ("train", "val", "test")
    train = opened.split("train")
    assert (train.name, train.classes) == ("train", ("a", "b"))
    assert train.images.shape == (4, 16, 16, 3)
    assert train.first.dtype == train.count.dtype == np.int32
    assert (train.first.tolist(), train.count.tolist()) == ([0, 2], [2, 2])
    np.testing.assert_array_equal(train.images[2], draw.pixels(100))


def test_images_stay_on_disk(store):
    images = open_store(str(store)).split("val").images
    assert isinstance(images, np.memmap)
    assert not images.flags.writeable


def test_fingerprint_follows_from_source_and_options(tmp_path, draw):
    source = draw.folder(tmp_path / "in", draw.classes())
    prints = []
    for i, size in enumerate((16, 16, 12)):
        prepare_store(source, tmp_path / f"{i}", Options(size=size))
        prints.append(open_store(tmp_path / f"{i}").fingerprint)
    assert prints[0] == prints[1] != prints[2]


def test_unknown_split_suggests_the_nearest(store):
    with pytest.raises(ValueError, match=r"'trian'. Did you mean 'train'\?"):
        open_store(store).split("trian")


@pytest.mark.parametrize("offset", [0, 9, 40, HEADER, HEADER + 1, 1000, -2, -1])
def test_flipped_bit_is_noticed(store, offset):
    content = bytearray((store / "train.npy").read_bytes())
    content[offset] ^= 1
    (store / "train.npy").write_bytes(content)
    with pytest.raises(ValueError, match=r"train.npy is damaged: its content has changed"):
        open_store(store)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("length", [0, 1, 6, 64, HEADER, HEADER + 1, -1, -700])
def test_truncated_shard_is_noticed(store, length, verify):
    content = (store / "val.npy").read_bytes()
    (store / "val.npy").write_bytes(content[:length])
    with pytest.raises(ValueError, match=r"val.npy is damaged: it has .* bytes"):
        open_store(store, verify)


@pytest.mark.parametrize("verify", [True, False])
def test_shard_that_is_too_long_or_missing_is_noticed(store, verify):
    with (store / "test.npy").open("ab") as file:
        file.write(b"x")
    with pytest.raises(ValueError, match=r"test.npy is damaged"):
        open_store(store, verify)
    (store / "test.npy").unlink()
    with pytest.raises(ValueError, match=r"test.npy is damaged: it is missing"):
        open_store(store, verify)


@pytest.mark.parametrize("header", [b"|i1", b"|O1", b"<u1"])
def test_header_that_lies_is_noticed_even_unverified(store, header):
    content = (store / "val.npy").read_bytes()
    (store / "val.npy").write_bytes(content.replace(b"|u1", header))
    with pytest.raises(ValueError, match=r"val.npy is damaged"):
        open_store(store, verify=False)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"[]", b"{}", b"null"])
def test_manifest_that_is_none_is_refused(store, content):
    (store / "manifest.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"manifest.json is not .*; prepare the store again"):
        open_store(store)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda m: m.update(version=1), "format version 1; this taskmix reads version 2"),
        (lambda m: m.pop("version"), "format version None"),
        (lambda m: m.update(size=17), "contradicts itself"),
        (lambda m: m.update(size="16"), "the size '16'"),
        (lambda m: m.update(size=True), "the size True"),
        (lambda m: m.update(channels=4), "4 channels"),
        (lambda m: m.update(channels=1), "contradicts itself"),
        (lambda m: m.update(splits={}), "no splits"),
        (lambda m: m.update(splits=[]), "the size 16"),
        (lambda m: m.pop("source"), "lacks 'source'"),
        (lambda m: m["splits"].update({"../val": m["splits"]["val"]}), r"a split named '\.\./val'"),
        (lambda m: m["splits"]["val"].pop("sha256"), "classes, bytes and sha256 of 'val'"),
        (lambda m: m["splits"]["val"].update(sha256="0"), "bytes and sha256 of 'val'"),
        (lambda m: m["splits"]["val"].update(bytes=-5), "bytes and sha256 of 'val'"),
        (lambda m: m["splits"]["val"].update(classes={}), "classes of 'val'"),
        (lambda m: m["splits"]["val"]["classes"].update(c=0), "classes of 'val'"),
        (lambda m: m["splits"]["val"]["classes"].update(c=3), "contradicts itself"),
        (lambda m: m["splits"]["val"]["classes"].update(c=2**40), "classes of 'val'"),
    ],
)
def test_manifest_that_lies_is_refused(store, change, complaint):
    changed(store, change)
    with pytest.raises(ValueError, match=f"manifest.json .*{complaint}.*; prepare the store again"):
        open_store(store)


def test_manifest_that_was_changed_by_hand_is_refused(store):
    text = (store / "manifest.json").read_text()
    (store / "manifest.json").write_text(text.replace('"a": 2', '"z": 2'))
    with pytest.raises(ValueError, match="is damaged: its checksum does not fit; prepare"):
        open_store(store)


def test_store_damaged_anywhere_is_refused(store):
    """Every file cut off or with a bit flipped, at random, 240 times."""
    draw = random.Random(0)
    files = sorted(path for path in store.iterdir() if path.is_file())
    assert {path.suffix for path in files} == {".json", ".npy"}
    for case in range(240):
        file = files[case % len(files)]
        content = file.read_bytes()
        broken = bytearray(content)
        if draw.random() < 0.4:
            del broken[draw.randrange(len(broken)) :]
        else:
            broken[draw.randrange(len(broken))] ^= 1 << draw.randrange(8)
        file.write_bytes(broken)
        # The bit of a line break may make another that means the same.
        if file.suffix == ".npy" or json_of(broken) != json.loads(content):
            with pytest.raises(ValueError, match=f"{file.name} .*; prepare the store again"):
                open_store(store)
        file.write_bytes(content)
    open_store(store)


def json_of(content: bytes) -> object:
    try:
        return json.loads(content)
    except ValueError:
        return None


def test_folder_without_a_manifest_is_no_store(tmp_path):
    with pytest.raises(ValueError, match="is not a store"):
        open_store(tmp_path)
    with pytest.raises(ValueError, match="There is no store"):
        open_store(tmp_path / "nowhere")


@pytest.mark.parametrize("channels", [1, 3])
def test_resized_split_is_what_preparing_at_that_size_gives(tmp_path, draw, channels):
    files = {f"a/{i}.png": draw.png(i, (24, 24), channels) for i in range(3)}
    source = draw.folder(tmp_path / "in", files)
    for size in (24, 10):
        prepare_store(source, tmp_path / f"{size}", Options(size=size, splits=(1.0, 0.0, 0.0)))
    large, small = (open_store(tmp_path / f"{size}").split("train") for size in (24, 10))
    made = resized(large, 10)
    np.testing.assert_array_equal(made.images, small.images)
    for field in dataclasses.fields(ImageSplit):
        if field.name != "images":
            np.testing.assert_array_equal(getattr(made, field.name), getattr(large, field.name))


def test_constant_images_stay_constant_when_resized(draw):
    images = np.full((2, 12, 12, 3), 77, np.uint8)
    split = ImageSplit("train", images, np.array([0]), np.array([2]), ("a",))
    assert (resized(split, 5).images == 77).all()
    assert resized(split, 12) is split


@pytest.mark.parametrize("size", [0, -1, 17])
def test_split_is_not_made_larger(store, size):
    with pytest.raises(ValueError, match=f"not {size}"):
        resized(open_store(store).split("train"), size)


def test_store_can_be_read_with_numpy_alone(store, draw):
    np.testing.assert_array_equal(
        np.load(store / "test.npy")[1], np.asarray(Image.fromarray(draw.pixels(2001)))
    )
