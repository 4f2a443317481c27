"""What the commands have in common: the experiments by name, and how results are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from taskmix.report import accuracy_table, comparison_table


def show(
    console: Console, comparison: Mapping[str, Any], out: Path, figures: Sequence[Path]
) -> None:
    """The table, then the paths, so that they stand last on the screen."""
    tested = all("test" in method for method in comparison["methods"].values())
    console.print(accuracy_table(comparison) if tested else comparison_table(comparison))
    console.print(f"results: {out}", highlight=False, soft_wrap=True)
    for figure in figures:
        if figure.suffix == ".png":
            console.print(f"figure:  {figure}", highlight=False, soft_wrap=True)
