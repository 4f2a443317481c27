"""Image files to square arrays of pixels. It runs in the worker processes, and imports no JAX."""

from __future__ import annotations

import dataclasses
import io
import signal
import warnings
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from taskmix.machine import end_with_parent

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
GREY_MODES = {"1", "L", "LA", "La", "I;16", "I;16B", "I;16L"}
DEEP_MODES = {"I", "F"}

Content = bytes | np.ndarray
"""An image file, or the pixels (height, width, channels) where they never were a file."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """What every image is made into."""

    size: int
    channels: int
    smallest: int
    """Images with fewer pixels than this on a side are refused."""
    inverted: bool
    """Dark becomes bright: for drawings in black on white."""


@dataclasses.dataclass(frozen=True)
class Decoded:
    """The pixels (size, size, channels), or why there are none."""

    pixels: np.ndarray | None = None
    problem: str = ""
    colourful: bool = False
    """The image has colours, and the shape has a single channel."""


def decode_all(contents: Sequence[Content], shape: Shape) -> list[Decoded]:
    return [decode(content, shape) for content in contents]


def decode(content: Content, shape: Shape) -> Decoded:
    """Decode and resize one image, with nothing cropped: a wide image is squashed."""
    try:
        with _strict():
            image = _upright(content)
            if shape.channels == 1 and image.mode not in GREY_MODES:
                return Decoded(colourful=True)
            if min(image.size) < shape.smallest:
                width, height = image.size
                what = f"is too small: {width}x{height} pixels, smallest is {shape.smallest}"
                return Decoded(problem=what)
            flat = _flattened(image).convert("L" if shape.channels == 1 else "RGB")
            pixels = resize(np.asarray(flat), shape.size)
    except UnidentifiedImageError:
        # Its message has the address of the content in memory, which says nothing.
        return Decoded(problem=f"is not a readable image: none of {', '.join(FORMATS)}")
    except Exception as error:
        # Pillow's decoders raise many kinds of errors; each means that this file is no image.
        return Decoded(problem=f"is not a readable image: {' '.join(str(error).split())[:200]}")
    pixels = pixels.reshape(shape.size, shape.size, shape.channels)
    return Decoded(255 - pixels if shape.inverted else pixels)


def is_grey(content: Content) -> bool | None:
    """Whether an image has no colours, as its header tells; nothing if it has no such header."""
    if isinstance(content, np.ndarray):
        return content.shape[-1] == 1
    try:
        with _strict():
            image = Image.open(io.BytesIO(content), formats=FORMATS)
            return image.mode in GREY_MODES or _deep_pgm(image)
    except Exception:
        return None


def resize(pixels: np.ndarray, size: int) -> np.ndarray:
    """An image (height, width) or (height, width, 3) as a square, by Lanczos resampling."""
    if pixels.shape[:2] == (size, size):
        return pixels
    return np.asarray(Image.fromarray(pixels).resize((size, size), Image.Resampling.LANCZOS))


def begin_worker() -> None:
    """Ctrl-C is for the process that started this one, without which this one is of no use."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def _upright(content: Content) -> Image.Image:
    if isinstance(content, np.ndarray):
        return Image.fromarray(content[..., 0] if content.shape[-1] == 1 else content)
    image = Image.open(io.BytesIO(content), formats=FORMATS)
    image.load()
    if _deep_pgm(image):
        return Image.fromarray(np.asarray(image).astype(np.uint16))
    # A photograph may be stored lying on its side, with a note about that.
    return ImageOps.exif_transpose(image)


def _deep_pgm(image: Image.Image) -> bool:
    """A grey image of up to 16 bits, which Pillow reads as 32 and scales to the whole of 16."""
    return image.format == "PPM" and image.mode == "I"


def _flattened(image: Image.Image) -> Image.Image:
    """Eight bits a channel, and no transparency: what shines through is white."""
    if image.mode in DEEP_MODES:
        raise ValueError(f"32 bits a pixel (mode {image.mode}); save it with 8 or 16")
    if image.mode.startswith("I;16"):
        return _from_16_bits(image)
    if not image.has_transparency_data:
        return image
    clear = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), clear)


def _from_16_bits(image: Image.Image) -> Image.Image:
    """The upper eight of them; one of the greys may stand for nothing, which becomes white."""
    values = np.asarray(image)
    grey = (values >> 8).astype(np.uint8)
    clear = image.info.get("transparency")
    return Image.fromarray(grey if clear is None else np.where(values == clear, 255, grey))


class _strict(warnings.catch_warnings):
    """Pillow's warning of a decompression bomb is an error; its other warnings are no news."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
