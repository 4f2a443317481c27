"""A set of images that needs no download: characters of many scripts, drawn in varied ways.

The images are synthetic and no benchmark of the literature. They are there so that the image
experiments run anywhere, and are hard enough that methods can differ: what has to be learnt
is the shape, since font, position, angle, colours and background say nothing about the class.
"""

from __future__ import annotations

import functools
import math
import unicodedata
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from taskmix.names import unknown
from taskmix.stores.store import ImageSplit

CHARACTERS = {
    "train": (
        "#$&02357<>CDHMNUWXYbdkmqr¢§©«¶»ÆÞΞΣΨαζςϠЂЉЊЧЫЯлъѤѬҘҠҤԔԲԴ"
        "ԹԻԾԿՃՇՎՔպდლპუფ↳↴↺⇦⇰√∴⊢□◊◑◒◠◥◭◮☈☋☖☜☝☟☢☧☮♃♈♉♊♔♖♡♤♨♬♮"
    ),
    "val": "%4@EPZn¬ßϞЋтҦՀՖო↯↰↼∞△◓◸☘☣☽♋♎♘♫",
    "test": "*1AKVaet£±¿ΦλωЦЮѪԒԷԽՊრ↲↶⇄⇧◐◡◿☆☊☞☩♅♌♏♑♧♩♭",
}
"""The classes of each split, chosen by comparing shapes so that no two look alike, whatever
their size: of Latin A, Greek Alpha and Cyrillic A there is one, and so of X, x and Chi."""

FONTS = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique"),
    *("DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSerif", "DejaVuSerif-Bold"),
    *("STIXGeneral", "STIXGeneralBol"),
)
"""Of those that come with matplotlib; true italics are left out, in which letters look like
others (the Cyrillic te like an m)."""

IMAGES = 40
"""Of each class."""

SEED = 0


@functools.lru_cache(maxsize=3)
def glyph_split(name: str, size: int = 32) -> ImageSplit:
    """The synthetic images of the split train, val or test: 40 of each class.

    Every call returns the same images, which cannot be written to, and other sizes show the
    same scenes; another version of Pillow or matplotlib may round some pixels differently.
    The three splits that were asked for last are not drawn again.

    >>> split = glyph_split("val", size=8)
    >>> split.images.shape, split.classes[0]
    ((1200, 8, 8, 3), 'percent sign')
    """
    if name not in CHARACTERS:
        raise unknown("split", name, CHARACTERS)
    if size < 8:
        raise ValueError(f"Characters need 8 x 8 pixels or more, not {size}.")
    characters = CHARACTERS[name]
    fonts = [_font(stem, size) for stem in FONTS]
    images = np.empty((len(characters), IMAGES, size, size, 3), np.uint8)
    for drawn, character in zip(images, characters, strict=True):
        shapes = [shape for font in fonts if (shape := _shape(font, character)) is not None]
        for number in range(IMAGES):
            random = np.random.default_rng([SEED, ord(character), number])
            drawn[number] = _scene(random, shapes, size)
    images.flags.writeable = False
    return ImageSplit(
        name,
        images.reshape(-1, size, size, 3),
        first=np.arange(0, len(characters) * IMAGES, IMAGES, dtype=np.int32),
        count=np.full(len(characters), IMAGES, np.int32),
        classes=tuple(unicodedata.name(character).lower() for character in characters),
    )


def _font(stem: str, size: int) -> ImageFont.FreeTypeFont:
    # Only those who draw glyphs wait for it.
    import matplotlib

    path = Path(matplotlib.get_data_path(), "fonts", "ttf", f"{stem}.ttf")
    # The basic layout is there in every build of Pillow.
    return ImageFont.truetype(path, 2 * size, layout_engine=ImageFont.Layout.BASIC)


def _shape(font: ImageFont.FreeTypeFont, character: str) -> Image.Image | None:
    """The character as a mask that just fits into a square, or None if the font lacks it."""
    # No font has a character of this number, hence it shows what the font draws instead.
    if bytes(font.getmask(character)) == bytes(font.getmask("\uffff")):
        return None
    left, top, right, bottom = font.getbbox(character)
    width, height = math.ceil(right - left), math.ceil(bottom - top)
    side = max(width, height)
    mask = Image.new("L", (side, side))
    corner = ((side - width) / 2 - left, (side - height) / 2 - top)
    ImageDraw.Draw(mask).text(corner, character, fill=255, font=font)
    return mask


def _scene(random: np.random.Generator, shapes: list[Image.Image], size: int) -> np.ndarray:
    """One of the shapes, transformed, in one colour on a cluttered background of another."""
    shape = shapes[random.integers(len(shapes))]
    mask = _transformed(random, shape, size)
    ink, ground = _colours(random)
    image = _background(random, ground, size)
    image += mask[..., None] * (ink - image)
    image += random.normal(scale=0.03, size=image.shape)
    return np.rint(255 * np.clip(image, 0, 1)).astype(np.uint8)


def _transformed(random: np.random.Generator, shape: Image.Image, size: int) -> np.ndarray:
    """The mask turned, sheared, stretched, scaled and moved at random, with values in [0, 1]."""
    angle = math.radians(random.uniform(-25, 25))
    shear = random.uniform(-0.2, 0.2)
    stretch = math.exp(random.uniform(-0.15, 0.15))
    scale = random.uniform(0.6, 0.8)
    shift = random.uniform(-0.08, 0.08, 2)
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    forward = scale * turn @ np.array([[stretch, shear], [0, 1 / stretch]])
    # Pillow asks where in the mask a pixel of the result comes from. The result is drawn twice
    # as large and then reduced, which smooths its edges.
    large = 2 * size
    back = np.linalg.inv(forward) * shape.width / large
    offset = shape.width / 2 - back @ (large * (0.5 + shift))
    (a, b), (d, e) = back
    coefficients = (a, b, offset[0], d, e, offset[1])
    drawn = shape.transform(
        (large, large), Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR
    )
    return np.asarray(drawn.reduce(2), np.float64) / 255


def _colours(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A dark colour for the character and a bright one for the background."""
    tints = random.uniform(-0.12, 0.12, (2, 3))
    return random.uniform(0.05, 0.3) + tints[0], random.uniform(0.7, 0.95) + tints[1]


def _background(random: np.random.Generator, ground: np.ndarray, size: int) -> np.ndarray:
    """A colour with a gradient, blobs and lines in colours between it and others."""
    axis = (np.arange(size) + 0.5) / size * 2 - 1
    x, y = axis[None, :], axis[:, None]
    slope = random.uniform(-0.1, 0.1, (2, 3))
    image = ground + x[..., None] * slope[0] + y[..., None] * slope[1]
    for _ in range(random.integers(1, 4)):
        centre, width = random.uniform(-1, 1, 2), random.uniform(0.15, 0.5)
        distance = ((x - centre[0]) ** 2 + (y - centre[1]) ** 2) / width**2
        _tint(image, np.exp(-(distance**2)), random.random(3))
    for _ in range(random.integers(1, 4)):
        angle, offset = random.uniform(0, math.pi), random.uniform(-0.9, 0.9)
        width = random.uniform(0.03, 0.08)
        distance = np.abs(x * math.cos(angle) + y * math.sin(angle) - offset)
        _tint(image, np.clip((width - distance) * size / 2 + 0.5, 0, 1), random.random(3))
    return image


def _tint(image: np.ndarray, where: np.ndarray, colour: np.ndarray) -> None:
    """Move the image part of the way to a colour, so far that a character stays legible."""
    image += 0.35 * where[..., None] * (colour - image)
