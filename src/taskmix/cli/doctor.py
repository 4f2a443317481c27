"""``taskmix doctor``: what there is to compute with, and whether it computes rightly."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from taskmix.cli.flags import parse
from taskmix.cli.output import Screen
from taskmix.diagnosis import doctor


@dataclasses.dataclass(frozen=True)
class DoctorFlags:
    """Print versions, devices, threads, and whether compiled programs compute rightly."""


def main(arguments: Sequence[str]) -> None:
    parse(DoctorFlags, arguments, "taskmix doctor")
    found, screen = doctor(), Screen()
    for line in str(found).splitlines():
        screen.say(line)
    if found.problems:
        raise ValueError(f"{len(found.problems)} of the things above should be put right.")
