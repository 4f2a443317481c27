"""Words of the command line as values, and which flags a dataclass declares."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

NUMBERS: dict[type, tuple[str, str]] = {
    int: ("INT", "a whole number"),
    float: ("FLOAT", "a number"),
}


class Called(str):
    """Marks a field with the name of its flag, where that is not its own."""


@dataclasses.dataclass(frozen=True)
class Flag:
    """What has to be known of a flag to say what is wrong with it."""

    required: bool
    takes_a_value: bool


class Words:
    """Reads numbers and choices, and remembers the last one that could not be read."""

    def __init__(self) -> None:
        self.registry = ConstructorRegistry()
        self.registry.primitive_rule(self._rule)
        self._wrong: tuple[str, str] | None = None

    def problem(self, arguments: Sequence[str]) -> str | None:
        """What is wrong with which flag, if a word could not be read."""
        if self._wrong is None:
            return None
        word, expected = self._wrong
        flag = ""
        for argument in arguments:
            name, _, value = argument.partition("=")
            flag = name if argument.startswith("--") else flag
            if flag and word in (argument, value):
                return f"{flag} is {word!r}; it must be {expected}"
        return f"{word!r} must be {expected}"

    def _rule(self, info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        if info.type in NUMBERS:
            metavar, expected = NUMBERS[info.type]
            return self._spec(info.type, metavar, expected, lambda found: type(found) is info.type)
        if typing.get_origin(info.type) is typing.Literal:
            choices = {str(choice): choice for choice in typing.get_args(info.type)}
            expected = f"one of {', '.join(choices)}"
            return self._spec(
                choices.__getitem__,
                f"{{{','.join(choices)}}}",
                expected,
                lambda found: found in choices.values(),
            )
        return None

    def _spec(
        self,
        convert: Callable[[str], Any],
        metavar: str,
        expected: str,
        fits: Callable[[Any], bool],
    ) -> PrimitiveConstructorSpec[Any]:
        def read(words: list[str]) -> Any:
            try:
                return convert(words[0])
            except (ValueError, KeyError):
                self._wrong = words[0], expected
                raise ValueError(f"{words[0]!r} is not {expected}") from None

        return PrimitiveConstructorSpec(1, metavar, read, fits, lambda found: [str(found)])


def declared(kind: type, flat: Any, prefix: str = "") -> dict[str, Flag]:
    """The flags of a dataclass by name, and what stands without one, by what help calls it.

    ``flat`` marks a nested dataclass whose flags carry no prefix.

    >>> import dataclasses
    >>> @dataclasses.dataclass
    ... class Flags:
    ...     out: str
    ...     seed: int = 0
    >>> sorted(declared(Flags, None))
    ['--out', '--seed']
    """
    found: dict[str, Flag] = {}
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        marks = getattr(hints[field.name], "__metadata__", ())
        own = hints[field.name].__origin__ if marks else hints[field.name]
        if not field.init or tyro.conf.Fixed in marks:
            continue
        called = [mark for mark in marks if isinstance(mark, Called)]
        name = called[0] if called else field.name.replace("_", "-")
        if dataclasses.is_dataclass(own):
            inner = prefix if flat in marks else f"{prefix}{name}."
            found |= declared(typing.cast(type, own), flat, inner)
            continue
        required = field.default is field.default_factory is dataclasses.MISSING
        if tyro.conf.Positional in marks:
            found[name.upper()] = Flag(required, False)
        else:
            found[f"--{prefix}{name}"] = Flag(required, _takes_a_value(own))
    return found


def _takes_a_value(kind: Any) -> bool:
    """Not so switches, and what takes any number of values."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return all(map(_takes_a_value, typing.get_args(kind)))
    return kind is not bool and not (typing.get_origin(kind) is tuple and ... in kind.__args__)
