"""``taskmix tune``: choose settings of methods, each with the same budget."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from taskmix.cli.flags import Flat, first_argument, parse
from taskmix.cli.interruptions import interruptible, owned
from taskmix.cli.output import Screen
from taskmix.cli.settings import chosen_experiment, parsed_experiment, with_experiment
from taskmix.experiments import EXPERIMENTS
from taskmix.experiments.group import Keeping
from taskmix.experiments.tuning import planned_searches, tune
from taskmix.training.watch import StopRequest


@dataclasses.dataclass(frozen=True)
class TuneFlags:
    """Choose settings of methods, each with the same number of trials on the same seeds."""

    methods: tuple[str, ...] = ("nonparametric:paper",)
    """As for `taskmix compare`; settings that a name has stay as they are."""
    trials: int = 20
    """Settings to try per method, the method as it is among them."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """One run per trial and seed. Report on others."""
    space: tuple[str, ...] = ()
    """What to search instead of the usual: `worth=2..20`, `refresh=average,density`."""
    out: Path | None = None
    """Folder to create for the studies, or to go on in (default: runs/tune-NAME)."""
    keeping: Annotated[Keeping, Flat] = Keeping()
    quiet: bool = False
    """Say nothing while training."""


def main(arguments: Sequence[str]) -> None:
    name = first_argument(arguments, "experiment", EXPERIMENTS, "taskmix tune")
    default = chosen_experiment(name, arguments[1:])
    flags: Any = parse(with_experiment(TuneFlags, default), arguments[1:], f"taskmix tune {name}")
    experiment = parsed_experiment(default, flags)
    out = flags.out or Path("runs", f"tune-{name}")
    planned_searches(flags.methods, experiment, flags.trials, flags.seeds, flags.space)
    request = StopRequest()
    with owned(out, ["tune", *arguments]), interruptible(out, request):
        found = tune(
            flags.methods,
            experiment,
            out,
            trials=flags.trials,
            seeds=flags.seeds,
            space=flags.space,
            settings=flags.training,
            keeping=flags.keeping,
            quiet=flags.quiet,
            request=request,
        )
    console = Screen()
    for label, one in found.items():
        console.say(f"{label}: error {one.error:.4g} of {len(one.trials)} trials with {one.name}")
    console.say(f"results: {out}")
