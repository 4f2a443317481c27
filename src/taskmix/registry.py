"""Things by name: our own, those that a program registers, and those of installed packages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from taskmix.names import unknown

Thing = TypeVar("Thing")


class Registry(Mapping[str, Thing], Generic[Thing]):
    """Things of one kind by their names, in the order in which they were registered.

    Our own come first. Then come those that installed packages announce as entry points of the
    registry's group; they are imported when somebody asks for a name that is not our own, or for
    all names. One that cannot be used does not harm the others: ``broken`` says what is wrong.

    Parameters
    ----------
    kind
        What the things are called in messages.
    group
        The group of entry points, such as ``taskmix.learners``.
    accept
        From a name and what was registered under it to what is kept; it raises a ``ValueError``
        if that is nothing of this kind.

    Examples
    --------
    >>> colours = Registry("colour", "example.colours")
    >>> colours.register("red", (255, 0, 0))
    (255, 0, 0)
    >>> colours.find("redd")
    Traceback (most recent call last):
        ...
    ValueError: There is no colour 'redd'. Did you mean 'red'? Choose from red.
    """

    def __init__(
        self, kind: str, group: str, accept: Callable[[str, Any], Thing] | None = None
    ) -> None:
        self.kind = kind
        self.group = group
        self._accept = accept
        self._things: dict[str, Thing] = {}
        self._broken: dict[str, str] | None = None

    def register(self, name: str, thing: Any) -> Any:
        """Keep ``thing`` under a ``name`` that is still free, and return it as it came."""
        if not name or name != name.strip() or set(name) & set(":/\\="):
            raise ValueError(f"{name!r} is no name for a {self.kind}; use letters and hyphens.")
        if name in self._things:
            raise ValueError(f"There is a {self.kind} {name!r} already; choose another name.")
        self._things[name] = self._accept(name, thing) if self._accept else thing
        return thing

    def remove(self, name: str) -> None:
        """Forget what was registered under a name, so that it is free again."""
        self.find(name)
        del self._things[name]

    def find(self, name: str) -> Thing:
        """What has that name, or a ``ValueError`` that suggests the nearest one."""
        if name in self:
            return self._things[name]
        if name in self.broken:
            raise ValueError(f"The {self.kind} {name!r} cannot be used: {self.broken[name]}.")
        raise unknown(self.kind, name, self)

    @property
    def broken(self) -> Mapping[str, str]:
        """What is wrong with things of installed packages that cannot be used, by name."""
        if self._broken is None:
            self._broken = {}
            for entry in entry_points(group=self.group):
                self._take(entry, self._broken)
        return self._broken

    def __getitem__(self, name: str) -> Thing:
        if name not in self._things:
            _ = self.broken
        return self._things[name]

    def __contains__(self, name: object) -> bool:
        if name not in self._things:
            _ = self.broken
        return name in self._things

    def __iter__(self) -> Iterator[str]:
        _ = self.broken
        return iter(self._things)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _take(self, entry: EntryPoint, broken: dict[str, str]) -> None:
        package = entry.dist.name if entry.dist else entry.value
        try:
            self.register(entry.name, entry.load())
        except Exception as error:
            # Whatever it is that another package does when it is imported.
            what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            broken[entry.name] = f"{what} (package {package})"
