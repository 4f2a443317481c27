"""What is wrong with a single image, class or table of a source."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Problem:
    """A file or class by name, and what is wrong with it. Files with a problem are left out."""

    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"
