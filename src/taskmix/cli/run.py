"""``taskmix run``: one method, one seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from taskmix.cli.flags import Flat, first_argument, parse, peek
from taskmix.cli.interruptions import interruptible, remember
from taskmix.cli.output import Screen, console_for, show
from taskmix.cli.settings import (
    chosen_experiment,
    decided_elsewhere,
    learner_flags,
    own_settings,
    with_experiment,
    with_learner,
)
from taskmix.experiments import EXPERIMENTS, build_learner, compare, method, run_method
from taskmix.experiments.group import Keeping
from taskmix.files import inside
from taskmix.report import loss_figure, read_run, responsibility_figure
from taskmix.training.loop import check_seeds
from taskmix.training.watch import StopRequest

DEFAULT_METHOD = "nonparametric"


@dataclasses.dataclass(frozen=True)
class RunFlags:
    """Train one method on one stream."""

    method: str = DEFAULT_METHOD
    """One of those that `taskmix methods` lists."""
    rule: str = "ours"
    """`paper` for the algorithm to the letter of its paper, where ours departs from it."""
    task_model: str = ""
    """What clusters are made of: `gradient`, `calibrated-gradient` or `bayesian-head` (default:
    what suits the method)."""
    seed: int = 0
    """Decides the stream, the initialisation and the test tasks."""
    out: Path | None = None
    """Folder to create for the results, or to go on in (default:
    runs/EXPERIMENT/METHOD/seed-SEED)."""
    keeping: Annotated[Keeping, Flat] = Keeping()
    quiet: bool = False
    """Say nothing while training."""


def main(arguments: Sequence[str]) -> None:
    name = first_argument(arguments, "experiment", EXPERIMENTS, "taskmix run")
    given, arguments = ["run", *arguments], arguments[1:]
    chosen = method(peek(arguments, "method", DEFAULT_METHOD))
    build = chosen.rule(peek(arguments, "rule", "ours"))
    experiment = chosen_experiment(name, arguments)
    decided = decided_elsewhere(build, experiment.learner_settings())
    every = with_experiment(RunFlags, experiment)
    parts: tuple[Any, ...] = (every, experiment, experiment.training())
    taken = {field.name for part in parts for field in dataclasses.fields(part)}
    learner = learner_flags(build, decided, taken)
    command = f"taskmix run {name} --method {chosen.name}"
    flags: Any = parse(with_learner(every, learner), arguments, command)
    called = "-".join(filter(None, (chosen.name, flags.task_model)))
    out = flags.out or Path("runs", name, called, f"seed-{flags.seed}")
    labels = {"experiment": name, "method": chosen.name, "rule": flags.rule}
    trained = build_learner(
        build,
        flags.experiment.learner_settings(),
        own_settings(flags.learner, decided),
        flags.task_model or None,
    )
    # Whatever is wrong is said before the folder exists.
    flags.experiment.stream()
    check_seeds([flags.seed])
    remember(out, given)
    request = StopRequest()
    with interruptible(out, request):
        summaries = run_method(
            flags.experiment,
            labels,
            trained,
            [flags.seed],
            lambda seed: out,
            flags.training,
            console_for(flags.quiet),
            flags.keeping,
            request,
        )
    runs, folder = [read_run(out)], inside(out, "figures")
    figures = [
        *loss_figure(runs, folder / runs[0].measure),
        *responsibility_figure(runs, folder / "responsibilities"),
    ]
    show(Screen(), compare(name, {chosen.name: trained.told.value}, summaries), out, figures)
