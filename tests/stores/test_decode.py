"""Whatever a file holds, it becomes a square of the right shape or a problem with a reason."""

import io
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from taskmix.stores.decode import Shape, decode, is_grey

COLOUR = Shape(size=8, channels=3, smallest=4, inverted=False)
GREY = Shape(size=8, channels=1, smallest=4, inverted=False)


def flat(colour, mode="RGB") -> Image.Image:
    return Image.new(mode, (12, 10), colour)


def bomb() -> bytes:
    """A PNG of a few bytes that claims to have 900 million pixels."""

    def chunk(kind, content):
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    header = struct.pack(">IIBBBBB", 30000, 30000, 8, 0, 0, 0, 0)
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    return start + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


@pytest.mark.parametrize("form", ["PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM"])
def test_every_format_gives_its_colour(draw, form):
    settings = {"lossless": True} if form == "WEBP" else {}
    done = decode(draw.encoded(flat((10, 20, 30)), form, **settings), COLOUR)
    np.testing.assert_array_equal(done.pixels, np.full((8, 8, 3), (10, 20, 30)))


def test_jpeg_gives_its_colour_nearly(draw):
    done = decode(draw.encoded(flat((10, 20, 30)), "JPEG"), COLOUR)
    assert np.abs(done.pixels.astype(int) - (10, 20, 30)).max() <= 3


@pytest.mark.parametrize(("mode", "colour"), [("1", 1), ("L", 255), ("I;16", 65535)])
def test_grey_of_any_depth_is_eight_bits(draw, mode, colour):
    content = draw.encoded(flat(colour, mode))
    assert is_grey(content)
    np.testing.assert_array_equal(decode(content, GREY).pixels, np.full((8, 8, 1), 255))
    np.testing.assert_array_equal(decode(content, COLOUR).pixels, np.full((8, 8, 3), 255))


def test_inverted_makes_dark_strokes_bright(draw):
    shape = Shape(size=8, channels=1, smallest=4, inverted=True)
    assert (decode(draw.encoded(flat(0, "1")), shape).pixels == 255).all()


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA"])
def test_what_is_transparent_is_white(draw, mode):
    image = Image.new("RGBA", (12, 10), (200, 0, 0, 0))
    content = draw.encoded(image.convert(mode), "TIFF" if mode == "PA" else "PNG")
    assert (decode(content, COLOUR).pixels == 255).all()


def test_photograph_that_lies_on_its_side_is_turned(draw):
    image = Image.fromarray(np.tile(np.arange(16, dtype=np.uint8) * 16, (16, 1)))
    exif = Image.Exif()
    exif[0x0112] = 6
    shape = Shape(size=16, channels=1, smallest=1, inverted=False)
    turned = decode(draw.encoded(image, "PNG", exif=exif), shape).pixels[..., 0]
    np.testing.assert_array_equal(turned, np.rot90(np.asarray(image), -1))


def test_colour_is_not_lost_in_a_grey_store(draw):
    done = decode(draw.encoded(flat((1, 2, 3))), GREY)
    assert done.colourful
    assert done.pixels is None


@pytest.mark.parametrize(
    "content",
    [b"", b"text", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"GIF89a", b"BM", b"%PDF-1"],
)
def test_what_is_no_image_is_a_problem(content):
    assert is_grey(content) is None
    assert decode(content, COLOUR).problem.startswith("is not a readable image")


def test_decompression_bomb_is_a_problem():
    assert "decompression bomb" in decode(bomb(), COLOUR).problem


@pytest.mark.parametrize("form", ["EPS", "PDF", "ICO"])
def test_other_formats_are_no_images(draw, form):
    assert decode(draw.encoded(flat((1, 2, 3)), form), COLOUR).problem


@given(st.data())
def test_damaged_file_gives_pixels_or_a_problem(data):
    form = data.draw(st.sampled_from(["PNG", "JPEG", "GIF", "BMP"]))
    file = io.BytesIO()
    Image.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3)).save(file, form)
    content = bytearray(file.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))]
    done = decode(bytes(content), COLOUR)
    assert (done.pixels is None) == bool(done.problem)
    assert done.pixels is None or done.pixels.shape == (8, 8, 3)


def test_workers_do_not_wait_for_jax():
    script = "import sys, taskmix.stores.prepare; print('jax' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def grey_values(hidden: int, dtype) -> np.ndarray:
    values = np.full((8, 8), 0x40 << (0 if dtype == np.uint8 else 8), dtype)
    values[0, 1] = hidden
    return values


@pytest.mark.parametrize(("most", "shift"), [(65535, 0), (4095, 4)])
def test_deep_pgm_is_grey_and_keeps_its_upper_bits(most, shift):
    values = (grey_values(0x1234, np.uint16) >> shift).astype(">u2")
    content = f"P5\n8 8\n{most}\n".encode() + values.tobytes()
    assert is_grey(content)
    pixels = decode(content, GREY).pixels[..., 0]
    assert np.abs(pixels[0, :3].astype(int) - [0x40, 0x12, 0x40]).max() <= 1


@pytest.mark.parametrize(("dtype", "hidden"), [(np.uint8, 0x12), (np.uint16, 0x1234)])
def test_grey_that_stands_for_nothing_is_white(dtype, hidden):
    file = io.BytesIO()
    Image.fromarray(grey_values(hidden, dtype)).save(file, "PNG", transparency=hidden)
    assert decode(file.getvalue(), GREY).pixels[0, :3, 0].tolist() == [0x40, 255, 0x40]
