"""The sheet of filtered images is written, and says what it cannot show."""

import numpy as np
import pytest
from PIL import Image

from taskmix.reporting.contact_sheet import contact_sheet
from taskmix.stores import ImageSplit


@pytest.fixture
def split():
    """Three classes of two images each, 9 pixels a side."""
    images = np.random.default_rng(0).integers(0, 256, (6, 9, 9, 3), np.uint8)
    first = np.array([0, 2, 4], np.int32)
    return ImageSplit("train", images, first, np.full(3, 2, np.int32), ("ant", "bee", "cat"))


def test_sheet_is_a_png_wider_with_more_classes_and_higher_with_more_filters(split, tmp_path):
    small = contact_sheet(split, tmp_path / "new" / "small.png", ("plain", "night"), classes=2)
    large = contact_sheet(split, tmp_path / "large.png", classes=3)
    assert small == tmp_path / "new" / "small.png"
    with Image.open(small) as one, Image.open(large) as other:
        assert one.format == "PNG"
        assert one.width < other.width
        assert one.height < other.height


def test_suffix_of_the_sheet_is_png_whatever_was_asked_for(split, tmp_path):
    sheet = contact_sheet(split, tmp_path / "sheet.v2", ("plain",), classes=1)
    assert sheet == tmp_path / "sheet.v2.png"
    assert sheet.is_file()


def test_grey_images_are_drawn_grey(split, tmp_path):
    grey = ImageSplit("val", split.images[..., :1], split.first, split.count, split.classes)
    with Image.open(contact_sheet(grey, tmp_path / "grey.png", classes=2)) as sheet:
        pixels = np.asarray(sheet.convert("RGB"))
    assert np.all(np.ptp(pixels, axis=-1) == 0)


@pytest.mark.parametrize("classes", [0, 4])
def test_a_number_of_classes_that_the_split_does_not_have_is_refused(split, tmp_path, classes):
    with pytest.raises(ValueError, match=f"split train has 1 to 3 classes, not {classes}"):
        contact_sheet(split, tmp_path / "sheet.png", classes=classes)


def test_unknown_filter_is_refused_before_anything_is_drawn(split, tmp_path):
    with pytest.raises(ValueError, match=r"no image filter 'blurr'. Did you mean 'blur'"):
        contact_sheet(split, tmp_path / "sheet.png", ("plain", "blurr"), classes=2)
    assert not list(tmp_path.iterdir())


def test_a_sheet_without_filters_is_refused(split, tmp_path):
    with pytest.raises(ValueError, match="name at least one"):
        contact_sheet(split, tmp_path / "sheet.png", ())
