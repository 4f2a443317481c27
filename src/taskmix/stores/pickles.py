"""Reads pickled arrays without unpickling them.

``pickle.load`` runs whatever the file asks for. This is another reader of the same format, which
knows containers, text, numbers and the few calls with which NumPy describes an array. It imports
nothing and calls nothing by name, so there is nothing in a file for it to run.

Large arrays are views of the file: reading one of 800 MB takes no memory of its own. Python 2
wrote arrays as text strings in Latin-1; they too stay bytes here.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

MOST_STEPS = 20_000_000
"""Opcodes of a file. A cache of miniImageNet has 0.1 million; this many take half a minute."""
LONGEST_TEXT = 1 << 16
"""Text longer than this is content, which Python 2 wrote as text, and is left as bytes."""
MOST_SIDES = 8
"""Of an array; a cache has one of four."""
SPARE = 64 << 20
"""Bytes that may be made of a file beyond its own size: one text may be asked for many times."""
MARK = object()
CALLS = {
    ("numpy.core.multiarray", "_reconstruct"): "empty array",
    ("numpy._core.multiarray", "_reconstruct"): "empty array",
    ("numpy.core.multiarray", "scalar"): "scalar",
    ("numpy._core.multiarray", "scalar"): "scalar",
    ("numpy.core.numeric", "_frombuffer"): "array",
    ("numpy._core.numeric", "_frombuffer"): "array",
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    ("_codecs", "encode"): "encode",
}
"""What a file may name. The values are only words; ``_Reader`` knows what each stands for."""


@dataclasses.dataclass
class _Name:
    word: str


@dataclasses.dataclass
class _Type:
    """A dtype in the making: its code, then its byte order."""

    code: str
    order: str = "|"

    def made(self) -> np.dtype:
        order = self.order if self.order in "<>" else ""
        return np.dtype(order + self.code)


@dataclasses.dataclass
class _Array:
    """An array in the making: a file names it first, and gives its content later."""

    content: np.ndarray | None = None


def read_pickle(file: memoryview, name: str) -> Any:
    """The object in ``file``. ``name`` is what an error calls the file.

    >>> import pickle
    >>> read_pickle(memoryview(pickle.dumps({"a": [1, 2.5]})), "example.pkl")
    {'a': [1, 2.5]}
    """
    try:
        return _Reader(file, name).run()
    except (IndexError, KeyError, TypeError, AttributeError, struct.error, OverflowError) as error:
        raise ValueError(f"{name} is cut short or not a pickle ({error!r}).") from None


class _Reader:
    """The stack machine that a pickle is a program for, with harmless instructions only."""

    def __init__(self, file: memoryview, name: str) -> None:
        self.file = file
        self.name = name
        self.position = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.made = 0

    def run(self) -> Any:
        if bytes(self.file[:1]) != b"\x80":
            self.refuse("it is not a pickle of protocol 2 or later; pickle it anew with one")
        for _ in range(MOST_STEPS):
            code = self.take(1)[0]
            if code == ord("."):
                return self.stack.pop()
            if (step := STEPS.get(code)) is None:
                self.refuse(f"it uses the pickle instruction {bytes([code])!r}")
            step(self)
        self.refuse(f"it has more than {MOST_STEPS:,} pickle instructions")

    def refuse(self, why: str) -> NoReturn:
        raise ValueError(
            f"{self.name} is not read: {why}. Only arrays of numbers, text and containers are."
        )

    def take(self, length: int) -> memoryview:
        if length < 0 or self.position + length > len(self.file):
            raise ValueError(f"{self.name} is cut short or not a pickle; fetch it again.")
        self.position += length
        return self.file[self.position - length : self.position]

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self) -> str:
        text = bytearray()
        while (byte := self.take(1)[0]) != ord("\n"):
            text.append(byte)
            if len(text) > LONGEST_TEXT:
                self.refuse("a line of it does not end")
        return text.decode("utf-8", "replace")

    def made_bytes(self, text: Any) -> bytes:
        """A text as the bytes that it stands for, as long as not too many are asked for."""
        self.made += len(text)
        if self.made > len(self.file) + SPARE:
            self.refuse("it makes far more of its content than there is")
        known = text if isinstance(text, str) else bytes(text).decode("utf-8", "replace")
        return known.encode("latin-1", "replace")

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def recall(self, key: int) -> None:
        value = self.memo[key]
        made = value.content if isinstance(value, _Array) else None
        self.push(value if made is None else made)

    def text(self, length: int, encoding: str) -> None:
        content = self.take(length)
        self.push(content if length > LONGEST_TEXT else bytes(content).decode(encoding, "replace"))

    def since_mark(self) -> list[Any]:
        at = len(self.stack) - 1
        while self.stack[at] is not MARK:
            at -= 1
            if at < 0:
                raise IndexError("no mark")
        values = self.stack[at + 1 :]
        del self.stack[at:]
        return values

    def tuple_of(self, count: int) -> None:
        values = tuple(self.stack[-count:])
        if len(values) < count:
            raise IndexError("too few values")
        del self.stack[-count:]
        self.push(values)

    def extend(self, values: list[Any]) -> None:
        self.expect(self.stack[-1], list).extend(values)

    def set_items(self, values: list[Any]) -> None:
        target = self.expect(self.stack[-1], dict)
        for key, value in zip(values[::2], values[1::2], strict=True):
            # Other keys would be hashed, however deeply they are nested.
            if not isinstance(key, str | int):
                self.refuse(f"it has a dictionary with a {type(key).__name__} for a key")
            target[key] = value

    def expect(self, value: Any, kind: type) -> Any:
        if type(value) is not kind:
            self.refuse(f"it has a {type(value).__name__} where a {kind.__name__} belongs")
        return value

    def name_of(self, module: Any, attribute: Any) -> None:
        word = CALLS.get((module, attribute))
        if word is None:
            self.refuse(f"it asks for {str(module)[:80]}.{str(attribute)[:80]}")
        self.push(_Name(word))

    def call(self) -> None:
        arguments = self.expect(self.stack.pop(), tuple)
        word = self.expect(self.stack.pop(), _Name).word
        if word == "dtype":
            self.push(_Type(self.expect(arguments[0], str)))
        elif word == "empty array":
            self.push(_Array())
        elif word == "scalar":
            self.push(self.array(arguments[0], (), arguments[1]).item())
        elif word == "array":
            content, kind, shape, order = arguments
            self.push(self.array(kind, shape, content, order == "F"))
        elif word == "encode":
            # How Python 3 writes bytes for Python 2: as text, with the encoding to undo it.
            self.push(self.made_bytes(arguments[0]))
        else:
            self.refuse(f"it calls {word}")

    def build(self) -> None:
        state = self.expect(self.stack.pop(), tuple)
        target = self.stack[-1]
        if isinstance(target, _Type):
            target.order = self.expect(state[1], str)
        elif isinstance(target, _Array):
            _, shape, kind, fortran, content = state
            target.content = self.array(kind, shape, content, bool(fortran))
            self.stack[-1] = target.content
        else:
            self.refuse(f"it sets the state of a {type(target).__name__}")

    def array(self, kind: Any, shape: Any, content: Any, fortran: bool = False) -> np.ndarray:
        code = self.expect(kind, _Type).code
        if code not in {"b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"}:
            self.refuse(f"it has an array of the type {code!r}")
        if isinstance(content, str):
            content = self.made_bytes(content)
        if not isinstance(content, bytes | memoryview):
            self.refuse(f"it has an array made of a {type(content).__name__}")
        if len(content) % kind.made().itemsize:
            self.refuse(f"it has an array of {code!r} with {len(content):,} bytes")
        flat = np.frombuffer(content, kind.made())
        if len(self.expect(shape, tuple)) > MOST_SIDES:
            self.refuse(f"it has an array of {len(shape):,} dimensions")
        sides = tuple(self.expect(side, int) for side in shape)
        if not all(0 <= side <= len(self.file) for side in sides):
            self.refuse("it has an array with a side that is negative, or longer than the file")
        if int(np.prod(sides, dtype=object)) != flat.size:
            self.refuse(f"it has an array of shape {sides} with {flat.size:,} numbers")
        return flat.reshape(sides, order="F" if fortran else "C")


def _nothing(reader: _Reader) -> None:
    """An instruction that only helps ``pickle`` to read faster."""


STEPS: dict[int, Callable[[_Reader], Any]] = {
    ord(code): step
    for code, step in {
        "\x80": lambda r: r.take(1),  # PROTO
        "\x95": lambda r: r.take(8),  # FRAME
        "(": lambda r: r.push(MARK),
        "0": lambda r: r.stack.pop(),
        "N": lambda r: r.push(None),
        "\x88": lambda r: r.push(True),
        "\x89": lambda r: r.push(False),
        "K": lambda r: r.push(r.number("<B")),
        "M": lambda r: r.push(r.number("<H")),
        "J": lambda r: r.push(r.number("<i")),
        "\x8a": lambda r: r.push(int.from_bytes(r.take(r.number("<B")), "little", signed=True)),
        "G": lambda r: r.push(r.number(">d")),
        "U": lambda r: r.text(r.number("<B"), "latin-1"),
        "T": lambda r: r.text(r.number("<i"), "latin-1"),
        "X": lambda r: r.text(r.number("<I"), "utf-8"),
        "\x8c": lambda r: r.text(r.number("<B"), "utf-8"),
        "\x8d": lambda r: r.text(r.number("<Q"), "utf-8"),
        "C": lambda r: r.push(bytes(r.take(r.number("<B")))),
        "B": lambda r: r.push(r.take(r.number("<I"))),
        "\x8e": lambda r: r.push(r.take(r.number("<Q"))),
        "\x96": lambda r: r.push(r.take(r.number("<Q"))),  # BYTEARRAY8
        "]": lambda r: r.push([]),
        "}": lambda r: r.push({}),
        ")": lambda r: r.push(()),
        "t": lambda r: r.push(tuple(r.since_mark())),
        "\x85": lambda r: r.tuple_of(1),
        "\x86": lambda r: r.tuple_of(2),
        "\x87": lambda r: r.tuple_of(3),
        "a": lambda r: r.extend([r.stack.pop()]),
        "e": lambda r: r.extend(r.since_mark()),
        "s": lambda r: r.set_items([r.stack.pop(-2), r.stack.pop()]),
        "u": lambda r: r.set_items(r.since_mark()),
        "q": lambda r: r.memo.__setitem__(r.number("<B"), r.stack[-1]),
        "r": lambda r: r.memo.__setitem__(r.number("<I"), r.stack[-1]),
        "\x94": lambda r: r.memo.__setitem__(len(r.memo), r.stack[-1]),
        "h": lambda r: r.recall(r.number("<B")),
        "j": lambda r: r.recall(r.number("<I")),
        "c": lambda r: r.name_of(r.line(), r.line()),
        "\x93": lambda r: r.name_of(r.stack.pop(-2), r.stack.pop()),
        "R": lambda r: r.call(),
        "b": lambda r: r.build(),
        "\x98": _nothing,  # READONLY_BUFFER
    }.items()
}
