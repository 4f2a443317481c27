"""Ways to spoil a file: blindly, byte by byte, or knowingly, value by value."""

import json
import random
from collections.abc import Iterator
from typing import Any

HOSTILE = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**400, 0.5, -0.0, 1e308, 1e-320),
    *("", "x", "0", "../../etc/passwd", "/dev/zero", "\x00", "\ud800", "💥", "a" * 10_000),
    *([], [[]], {}, [0] * 3, {"a": None}, {"": ""}),
)
NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1)


def spoiled(content: bytes, draw: random.Random) -> bytes:
    """The content with a few changes that know nothing of what it means."""
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 8))):
        draw.choice(BLIND)(changed, draw)
    return bytes(changed)


def spoiled_json(value: Any, draw: random.Random) -> Any:
    """The value with one or two entries removed, doubled or replaced by something hostile."""
    value = json.loads(json.dumps(value))
    for _ in range(draw.choice((1, 1, 2))):
        places = list(_places(value))
        if not places:
            return _hostile(draw)
        holder, key = draw.choice(places)
        kind = draw.randrange(4)
        if kind == 0:
            del holder[key]
        elif kind == 1 and len(places) > 1:
            other, at = draw.choice(places)
            holder[key] = json.loads(json.dumps(other[at]))
        elif kind == 2 and isinstance(holder[key], int | float):
            holder[key] = draw.choice((-1, 1, 2, 10**9)) * holder[key] + draw.choice((0, 1, -1))
        else:
            holder[key] = _hostile(draw)
    return value


def _hostile(draw: random.Random) -> Any:
    """A copy, as the next change may be one of its own content."""
    return json.loads(json.dumps(draw.choice(HOSTILE)))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every entry of every list and object, as the holder and the key."""
    entries = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, entry in list(entries):
        yield value, key
        yield from _places(entry)


def _flip(content: bytearray, draw: random.Random) -> None:
    if content:
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)


def _cut(content: bytearray, draw: random.Random) -> None:
    del content[draw.randrange(len(content) + 1) :]


def _set(content: bytearray, draw: random.Random) -> None:
    """A number that is a limit somewhere, in either order of bytes."""
    width = draw.choice((1, 2, 4, 8))
    number = draw.choice(NUMBERS) % 256**width
    at = draw.randrange(len(content) + 1)
    content[at : at + width] = number.to_bytes(width, draw.choice(("little", "big")))


def _remove(content: bytearray, draw: random.Random) -> None:
    at = draw.randrange(len(content) + 1)
    del content[at : at + draw.choice((1, 2, 8, 100))]


def _double(content: bytearray, draw: random.Random) -> None:
    at = draw.randrange(len(content) + 1)
    part = content[at : at + draw.choice((1, 4, 64, 512))]
    content[at:at] = part * draw.choice((1, 1, 50))


def _move(content: bytearray, draw: random.Random) -> None:
    at, to = (draw.randrange(len(content) + 1) for _ in range(2))
    part = content[at : at + draw.choice((1, 4, 64))]
    content[to : to + len(part)] = part


def _fill(content: bytearray, draw: random.Random) -> None:
    at = draw.randrange(len(content) + 1)
    content[at : at + 16] = draw.randbytes(draw.choice((1, 16)))


BLIND = (_flip, _flip, _cut, _set, _set, _remove, _double, _move, _fill)
