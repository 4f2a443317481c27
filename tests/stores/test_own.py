"""Folders of images that become stores when they are used."""

import os

import numpy as np
import pytest
from PIL import Image

from taskmix.stores import Options, open_store, prepare_store, store_of


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder per class, and a cache folder of the test's own."""
    monkeypatch.setenv("TASKMIX_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for number in range(5):
        path = tmp_path / "mine" / f"class-{number}"
        path.mkdir(parents=True)
        for name in ("a", "b"):
            pixels = rng.integers(0, 255, (9, 9, 3), np.uint8)
            Image.fromarray(pixels).save(path / f"{name}.png")
    return tmp_path / "mine"


def test_folder_is_prepared_once_and_said_so(folder, tmp_path):
    told = []
    first = store_of(folder, 8, told.append)
    assert first.is_relative_to(tmp_path / "cache")
    assert len(told) == 2
    again = store_of(folder, 8, told.append)
    assert again == first
    assert len(told) == 2, "nothing is prepared again"
    assert open_store(first).size == 8


def test_another_size_and_other_images_are_other_stores(folder):
    first = store_of(folder, 8)
    assert store_of(folder, 6) != first
    os.utime(folder / "class-0" / "a.png", (1, 1))
    assert store_of(folder, 8) != first


def test_store_is_itself(folder, tmp_path):
    prepare_store(folder, tmp_path / "store", Options(size=8, workers=1))
    assert store_of(tmp_path / "store", 4) == tmp_path / "store"


def test_folder_without_images_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="No images found"):
        store_of(tmp_path / "empty", 8)


@pytest.mark.parametrize("why", ["nothing is kept", "others may write", "it is a link"])
def test_store_is_kept_where_nobody_else_could_put_one(folder, tmp_path, monkeypatch, why):
    """What others put in its place would be trained on."""
    kept = tmp_path / "cache" / "stores"
    kept.mkdir(parents=True)
    if why == "nothing is kept":
        monkeypatch.setenv("TASKMIX_CACHE", "off")
    elif why == "others may write":
        kept.chmod(0o777)
    else:
        kept.rmdir()
        (tmp_path / "theirs").mkdir()
        kept.symlink_to(tmp_path / "theirs")
    found = store_of(folder, 8)
    assert not found.resolve().is_relative_to(tmp_path)
    assert found.parent.stat().st_mode & 0o777 == 0o700
    assert found.parent.name != "taskmix", "anyone could make a folder of that name"
    assert store_of(folder, 8) == found
