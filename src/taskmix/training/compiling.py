"""Saying what a long compilation is for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax

LONG = 3.0
"""Seconds after which somebody who waits is told what for."""


class Compiling:
    """Tells what is compiled, if that takes long.

    A program is compiled when it is first called, and once more when the arrays that it is given
    have other shapes, as after a state has grown.

    Examples
    --------
    >>> with Compiling(print)("something quick"):
    ...     pass
    """

    def __init__(self, tell: Callable[[str], None] | None) -> None:
        self._tell = tell
        self._seen: set[tuple[Any, ...]] = set()

    @contextlib.contextmanager
    def __call__(self, what: str, given: Any = None) -> Iterator[None]:
        """``what`` is the program that is called inside, ``given`` what its shapes follow."""
        key = (what, *(leaf.shape for leaf in jax.tree.leaves(given)))
        if self._tell is None or key in self._seen:
            yield
            return
        sentence = f"compiling {what}; that is done once, and kept for the next start if it can be"
        timer = threading.Timer(LONG, self._tell, [sentence])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
        self._seen.add(key)
