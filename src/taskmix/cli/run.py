"""``taskmix run``: one method, one seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from taskmix.cli import table
from taskmix.cli.flags import Flat, first_argument, parse, peek, peek_all
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
from taskmix.experiments.images import ImageTasks
from taskmix.files import inside
from taskmix.machine import ask_for_devices, join
from taskmix.reporting import loss_figure, read_run, responsibility_figure
from taskmix.training.moments import check_seeds
from taskmix.training.watch import StopRequest

DEFAULT_METHOD = "nonparametric"


@dataclasses.dataclass(frozen=True)
class RunFlags:
    """Train one method on one stream."""

    method: str = DEFAULT_METHOD
    """One of those that `taskmix methods` lists."""
    rule: str = "ours"
    """`paper` for the algorithm as its paper describes it, where ours departs from it."""
    task_model: str = ""
    """What clusters are made of: `gradient`, `calibrated-gradient`, `bayesian-head` or `ridge-head`
    (images only); default: what suits the method and the inputs."""
    seed: int = 0
    """Decides the stream, the initialisation and the test tasks."""
    out: Path | None = None
    """Folder to create for the results, or to go on in (default:
    runs/EXPERIMENT/METHOD/seed-SEED)."""
    keeping: Annotated[Keeping, Flat] = Keeping()
    devices: int = 1
    """Devices that share the work, of all processes together; 0 for all there are. On a CPU each
    is a part of the cores."""
    coordinator: str = ""
    """HOST:PORT of the first of several processes that train together, each with this command."""
    processes: int = 1
    """How many these are."""
    process: int = 0
    """Which of them this is; the first is 0, and writes the results."""
    quiet: bool = False
    """Say nothing while training."""


def main(arguments: Sequence[str]) -> None:
    name = first_argument(arguments, "experiment", (*EXPERIMENTS, "table"), "taskmix run")
    if name == "table":
        table.main(arguments[1:])
        return
    given, arguments = ["run", *arguments], arguments[1:]
    first = _joined(arguments)
    chosen = method(peek(arguments, "method", DEFAULT_METHOD))
    recipe = chosen.rule(peek(arguments, "rule", "ours"))
    default = chosen_experiment(name, arguments)
    every = with_experiment(RunFlags, default)
    parts: tuple[Any, ...] = (every, default, default.training())
    taken = {field.name for part in parts for field in dataclasses.fields(part)}
    # What the experiment suggests to a learner may depend on the experiment's own flags; what is
    # wrong with those is said when all are read.
    known: Any = peek_all(every, arguments)
    asked = default if known is None else parsed_experiment(default, known)
    learner = learner_flags(recipe, asked.shared(), taken)
    command = f"taskmix run {name} --method {chosen.name}"
    flags: Any = parse(with_learner(every, learner), arguments, command)
    experiment = parsed_experiment(default, flags)
    called = "-".join(filter(None, (chosen.name, flags.task_model)))
    out = flags.out or Path("runs", name, called, f"seed-{flags.seed}")
    if isinstance(experiment, ImageTasks):
        experiment.prepare(Screen(quiet=flags.quiet).say)
    # Whatever is wrong is said before the folder exists.
    trained = recipe.build(
        experiment.shared(), own_settings(flags.learner), flags.task_model or None
    )
    stream = experiment.stream()
    check_seeds([flags.seed])
    if first:
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
            devices=flags.devices,
        )
    if not first:
        return
    runs, folder = [read_run(out)], inside(out, "figures")
    figures = [
        *loss_figure(runs, folder / runs[0].measure),
        *responsibility_figure(runs, folder / "responsibilities"),
    ]
    told = {chosen.name: trained.told.value}
    show(Screen(), combined(name, told, fitted.summaries, further_measures()), out, figures)


def _joined(arguments: Sequence[str]) -> bool:
    """Have the devices and the company that the flags ask for; whether this process is the first.

    JAX has to know before it is used, which may be before all flags can be read.
    """
    numbers = {"devices": 1, "processes": 1, "process": 0}
    for name, default in numbers.items():
        value = peek(arguments, name, str(default))
        # Whatever else it is, is said when all flags are read.
        numbers[name] = int(value) if value.isascii() and value.isdigit() else default
    coordinator = peek(arguments, "coordinator", "")
    if coordinator:
        join(coordinator, numbers["processes"], numbers["process"], numbers["devices"])
    elif numbers["processes"] > 1:
        raise ValueError("--processes needs --coordinator HOST:PORT, the address of the first.")
    else:
        ask_for_devices(numbers["devices"])
    return numbers["process"] == 0
