"""``taskmix run``: one method, one seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from taskmix.cli import table
from taskmix.cli.flags import Flat, first_argument, parse, peek
from taskmix.cli.interruptions import interruptible, remember
from taskmix.cli.output import Screen, show
from taskmix.cli.settings import (
    chosen_experiment,
    learner_flags,
    own_settings,
    parsed_experiment,
    with_experiment,
    with_learner,
)
from taskmix.evaluation import further_measures
from taskmix.experiments import EXPERIMENTS, combined, fit, method
from taskmix.experiments.group import Keeping
from taskmix.files import inside
from taskmix.report import loss_figure, read_run, responsibility_figure
from taskmix.training.moments import check_seeds
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
    name = first_argument(arguments, "experiment", (*EXPERIMENTS, "table"), "taskmix run")
    if name == "table":
        table.main(arguments[1:])
        return
    given, arguments = ["run", *arguments], arguments[1:]
    chosen = method(peek(arguments, "method", DEFAULT_METHOD))
    recipe = chosen.rule(peek(arguments, "rule", "ours"))
    default = chosen_experiment(name, arguments)
    every = with_experiment(RunFlags, default)
    parts: tuple[Any, ...] = (every, default, default.training())
    taken = {field.name for part in parts for field in dataclasses.fields(part)}
    learner = learner_flags(recipe, default.shared(), taken)
    command = f"taskmix run {name} --method {chosen.name}"
    flags: Any = parse(with_learner(every, learner), arguments, command)
    experiment = parsed_experiment(default, flags)
    called = "-".join(filter(None, (chosen.name, flags.task_model)))
    out = flags.out or Path("runs", name, called, f"seed-{flags.seed}")
    # Whatever is wrong is said before the folder exists.
    trained = recipe.build(
        experiment.shared(), own_settings(flags.learner), flags.task_model or None
    )
    stream = experiment.stream()
    check_seeds([flags.seed])
    remember(out, given)
    request = StopRequest()
    with interruptible(out, request):
        fitted = fit(
            trained,
            experiment,
            [flags.seed],
            out=out,
            settings=flags.training,
            keeping=flags.keeping,
            labels={"experiment": name, "method": chosen.name, "rule": flags.rule},
            quiet=flags.quiet,
            request=request,
            stream=stream,
        )
    runs, folder = [read_run(out)], inside(out, "figures")
    figures = [
        *loss_figure(runs, folder / runs[0].measure),
        *responsibility_figure(runs, folder / "responsibilities"),
    ]
    told = {chosen.name: trained.told.value}
    show(Screen(), combined(name, told, fitted.summaries, further_measures()), out, figures)
