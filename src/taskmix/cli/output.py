"""What the commands have in common: the experiments by name, and how results are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from taskmix.experiments.notes import notes_by_method
from taskmix.names import printable
from taskmix.reporting import accuracy_table, comparison_table
from taskmix.reporting.comparison_page import grouped_notes
from taskmix.reporting.report import report


class Screen(Console):
    """Where results go. Names of others are shown as they are, and colour nothing."""

    def say(self, text: str) -> None:
        self.print(printable(text), highlight=False, soft_wrap=True, markup=False)

    def on_broken_pipe(self) -> None:
        # rich would end the program here, with an exit code that says nothing.
        raise BrokenPipeError


def show(
    console: Screen, comparison: Mapping[str, Any], out: Path, figures: Sequence[Path]
) -> None:
    """The table, what is to be said in words, then the paths, so that they stand last."""
    tested = all("test" in method for method in comparison["methods"].values())
    console.print(accuracy_table(comparison) if tested else comparison_table(comparison))
    for note in grouped_notes(notes_by_method(comparison), len(comparison["methods"])):
        console.say(note)
    show_paths(console, out, figures)
    console.say(f"report:  {report(out)}")


def show_paths(console: Screen, out: Path, figures: Sequence[Path]) -> None:
    console.say(f"results: {out}")
    for figure in figures:
        if figure.suffix == ".png":
            console.say(f"figure:  {figure}")
