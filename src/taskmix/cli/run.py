"""``taskmix run``: one method, one seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from taskmix.cli.flags import (
    Flat,
    decided_elsewhere,
    first_argument,
    learner_flags,
    own_settings,
    parse,
    peek,
    with_learner,
)
from taskmix.cli.output import EXPERIMENTS, console_for, show
from taskmix.experiments import Regression, build_learner, compare, method, run_method
from taskmix.report import loss_figure, read_run, responsibility_figure
from taskmix.training import Settings

DEFAULT_METHOD = "nonparametric"


@dataclasses.dataclass(frozen=True)
class RunFlags:
    """Train one method on one stream."""

    method: str = DEFAULT_METHOD
    """One of those that `taskmix methods` lists."""
    rule: str = "ours"
    """`paper` for the algorithm to the letter of its paper, where ours departs from it."""
    seed: int = 0
    """Decides the stream, the initialisation and the test tasks."""
    out: Path | None = None
    """Folder to create for the results (default: runs/EXPERIMENT/METHOD/seed-SEED)."""
    quiet: bool = False
    """Say nothing while training."""
    experiment: Annotated[Regression, Flat] = Regression()
    training: Annotated[Settings, Flat] = Settings()


def main(arguments: Sequence[str]) -> None:
    name = first_argument(arguments, "experiment", EXPERIMENTS, "taskmix run")
    arguments = arguments[1:]
    chosen = method(peek(arguments, "method", DEFAULT_METHOD))
    build = chosen.rule(peek(arguments, "rule", "ours"))
    decided = decided_elsewhere(build, Regression().learner_settings())
    taken = {f.name for part in (RunFlags, Regression, Settings) for f in dataclasses.fields(part)}
    learner = learner_flags(build, decided, taken)
    command = f"taskmix run {name} --method {chosen.name}"
    flags: Any = parse(with_learner(RunFlags, learner), arguments, command)
    out = flags.out or Path("runs", name, chosen.name, f"seed-{flags.seed}")
    labels = {"experiment": name, "method": chosen.name, "rule": flags.rule}
    trained = build_learner(
        build, flags.experiment.learner_settings(), own_settings(flags.learner, decided)
    )
    summaries = run_method(
        flags.experiment,
        labels,
        trained,
        [flags.seed],
        lambda seed: out,
        flags.training,
        console_for(flags.quiet),
    )
    runs = [read_run(out)]
    figures = [
        *loss_figure(runs, out / "figures" / "loss"),
        *responsibility_figure(runs, out / "figures" / "responsibilities"),
    ]
    show(Console(), compare(name, {chosen.name: trained.told.value}, summaries), out, figures)
