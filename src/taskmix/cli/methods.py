"""``taskmix methods``: what there is."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rich.console import Console

from taskmix.cli.flags import parse
from taskmix.experiments import METHODS
from taskmix.experiments.listing import methods

ROW = "{:15} {:10} {:>10} {:>10} {}"
NOTE = (
    "Numbers: parameters, on the network of the regression and on that for 5-way miniImageNet; "
    "L is the number of clusters. A method without the first is for classes only."
)


@dataclasses.dataclass(frozen=True)
class MethodsFlags:
    """List the methods, with their papers."""


def main(arguments: Sequence[str]) -> None:
    parse(MethodsFlags, arguments, "taskmix methods")
    console = Console(highlight=False)
    console.print(ROW.format("method", "told", "regression", "images", "paper"), style="bold")
    for name, listed in methods().items():
        method = listed.method
        paper = " ".join(filter(None, (method.reference, str(method.year or ""))))
        row = ROW.format(name, method.told.value, listed.regression, listed.images, paper)
        console.print(row, f"    {method.summary}", sep="\n")
    for name, problem in METHODS.broken.items():
        console.print(f"{name} cannot be used: {problem}", markup=False)
    console.print(f"\n{NOTE}", style="italic")
