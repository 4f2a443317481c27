"""``taskmix reproduce``: the figures and the table of the paper, and the stress streams."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from taskmix.cli.compare import SeveralFlags, plan_of
from taskmix.cli.flags import first_argument, parse
from taskmix.cli.interruptions import interruptible, owned
from taskmix.cli.output import Screen, show, show_paths
from taskmix.cli.settings import chosen_experiment, parsed_experiment, with_experiment
from taskmix.experiments.comparison import Plan, planned
from taskmix.experiments.outcome import Outcome, read_outcomes
from taskmix.experiments.stress import (
    OURS,
    SEEDS,
    StressExperiment,
    StressStream,
    chosen,
    verdicts,
)
from taskmix.files import inside, replace, write_json
from taskmix.report import loss_figure, read_runs, responsibility_figure, shot_table
from taskmix.report.stress import (
    StressResult,
    stress_figure,
    stress_json,
    stress_markdown,
    stress_table,
)
from taskmix.training.workers import request_for


@dataclasses.dataclass(frozen=True)
class Figure:
    """What a figure of the paper compares, and what draws it."""

    experiment: str
    methods: tuple[str, ...]
    draw: Callable[..., Any]


FIGURES = {
    "figure-5": Figure("regression", ("nonparametric", "mixture", "uniform", "maml"), loss_figure),
    "figure-6": Figure("regression", ("nonparametric",), responsibility_figure),
    "figure-8": Figure(
        "evolving-images",
        ("nonparametric", "task-aware", "mixture", "uniform", "maml"),
        loss_figure,
    ),
    "figure-9": Figure("evolving-images", ("nonparametric",), responsibility_figure),
}

TABLE = "table-1"
TABLE_METHODS = (
    *("matching", "matching-simple", "meta-lstm", "prototypical", "maml", "fomaml"),
    *("mt-net", "t-net", "platipus", "versa", "llama"),
    *("mixture:2", "mixture:3", "mixture:4", "mixture:5", "nonparametric"),
)


@dataclasses.dataclass(frozen=True)
class TableFlags(SeveralFlags):
    """Train what the paper's table compares, once for each number of shots."""

    shots: tuple[int, ...] = (1, 5)
    """Support images of a class: a column of the table each."""


STRESS = "stress"


@dataclasses.dataclass(frozen=True)
class StressFlags(SeveralFlags):
    """Train on streams of every kind, and say which of the criteria are reached."""

    streams: tuple[str, ...] = ()
    """Names of streams, as docs/streams.md lists them (default: all)."""
    seeds: tuple[int, ...] = SEEDS
    """One run per seed and method; stationary streams take the first three."""
    scale: Literal["small", "full"] = "full"
    """small: a fifth of the length, to see that all works; its bounds are those of the full."""


def main(arguments: Sequence[str]) -> None:
    known = (*FIGURES, TABLE, STRESS)
    name = first_argument(arguments, "figure or table", known, "taskmix reproduce")
    arguments = list(arguments[1:])
    if name == TABLE:
        _table(arguments)
        return
    if name == STRESS:
        _stress(arguments)
        return
    figure = FIGURES[name]
    default = chosen_experiment(figure.experiment, arguments)
    flags: Any = parse(
        with_experiment(SeveralFlags, default), arguments, f"taskmix reproduce {name}"
    )
    experiment = parsed_experiment(default, flags)
    out = flags.out or Path("runs", name)
    command = ["reproduce", name, *arguments]
    plan = plan_of(figure.experiment, figure.methods, experiment, flags)
    request = request_for(plan.workers)
    with owned(out, command), interruptible(out, request):
        comparison = plan.train(out, request)
    show(Screen(), comparison, out, figure.draw(read_runs(out), inside(out, "figures") / name))


def _table(arguments: Sequence[str]) -> None:
    """One comparison for each number of shots, and a table of them all."""
    default = chosen_experiment("few-shot", arguments)
    flags: Any = parse(
        with_experiment(TableFlags, default), arguments, f"taskmix reproduce {TABLE}"
    )
    if any(argument.split("=")[0] == "--shot" for argument in arguments):
        raise ValueError(f"{TABLE} has a column for each of --shots; give that instead of --shot.")
    if not flags.shots or len(set(flags.shots)) != len(flags.shots):
        raise ValueError(f"--shots is {list(flags.shots)}; name at least one, and each once.")
    out = flags.out or Path("runs", TABLE)
    plans = {}
    for shot in flags.shots:
        experiment: Any = parsed_experiment(default, flags)
        experiment = dataclasses.replace(experiment, shot=shot)
        plans[shot] = plan_of("few-shot", TABLE_METHODS, experiment, flags)
    request = request_for(flags.workers)
    with owned(out, ["reproduce", TABLE, *arguments]), interruptible(out, request):
        comparisons = {
            shot: plan.train(inside(out, f"{shot}-shot"), request) for shot, plan in plans.items()
        }
    console = Screen()
    console.print(shot_table(comparisons))
    show_paths(console, out, [])


def _stress(arguments: Sequence[str]) -> None:
    """One comparison for each stream, and a table of what was reached on all of them."""
    flags = parse(StressFlags, arguments, f"taskmix reproduce {STRESS}")
    streams = chosen(flags.streams)
    out = flags.out or Path("runs", STRESS)
    plans = {name: _plan(stress, flags) for name, stress in streams.items()}
    request = request_for(flags.workers)
    outcomes: dict[str, list[Outcome]] = {}
    results: list[StressResult] = []
    figures: list[Path] = []
    with owned(out, ["reproduce", STRESS, *arguments]), interruptible(out, request):
        for name, plan in plans.items():
            plan.train(inside(out, name), request)
            ended = read_outcomes(out / name)
            outcomes[name] = [one for one in ended if one.seed in plan.seeds]
            results.append(_judged(streams[name], outcomes))
            figures += _picture(out / name, inside(out, "figures") / name)
            # After every stream, so that what is known can be looked at.
            write_json(out / "stress.json", stress_json(results))
            replace(out / "stress.md", stress_markdown(results).encode())
    figures += stress_figure(results, inside(out, "figures") / "overview")
    console = Screen()
    console.print(stress_table(results))
    show_paths(console, out, figures)


def _plan(stress: StressStream, flags: StressFlags) -> Plan:
    return planned(
        stress.methods,
        StressExperiment.at(flags.scale, stress.stream),
        flags.seeds[: stress.most_seeds],
        keeping=flags.keeping,
        workers=flags.workers,
        quiet=flags.quiet,
        name=f"{STRESS}-{stress.name}",
    )


def _judged(stress: StressStream, outcomes: Mapping[str, Sequence[Outcome]]) -> StressResult:
    own = outcomes[stress.name]
    return StressResult(
        stress.name,
        stress.point,
        tuple(outcome.seed for outcome in own if outcome.method == OURS),
        sum(outcome.seconds for outcome in own) / 60,
        tuple(verdicts(stress.name, outcomes)),
    )


def _picture(folder: Path, path: Path) -> Sequence[Path]:
    """Responsibilities over time; of one seed, since clusters of two are not the same ones."""
    return responsibility_figure(read_runs(folder / OURS)[:1], path)
