"""The paper's figures and its table, and the stress streams: trained, drawn and written."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from taskmix.experiments import Experiment, default_experiment
from taskmix.experiments.comparison import ComparisonPlan, planned
from taskmix.experiments.group import Keeping
from taskmix.experiments.outcome import Outcome, read_outcomes
from taskmix.experiments.stress import (
    OURS,
    SEEDS,
    Scale,
    StressExperiment,
    StressStream,
    chosen,
    verdicts,
)
from taskmix.files import inside, replace, write_json
from taskmix.names import unknown
from taskmix.reporting.figures import loss_figure, responsibility_figure
from taskmix.reporting.runs import Run, read_runs
from taskmix.reporting.stress import StressResult, stress_figure, stress_json, stress_markdown
from taskmix.training import Settings
from taskmix.training.watch import Request
from taskmix.training.workers import request_for


@dataclasses.dataclass(frozen=True)
class PaperFigure:
    """What a figure of the paper compares, and what draws it."""

    experiment: str
    methods: tuple[str, ...]
    draw: Callable[..., Any]


def loss_figures(runs: Sequence[Run], path: Path) -> list[Path]:
    """What clusters say together, in three ways: as a mixture, as the paper, by the likeliest.

    Runs that do not know the last two have the first only.
    """
    figures = [*loss_figure(runs, path)]
    for combined in ("weighted", "likeliest"):
        if not any(np.isnan(run.shown(combined)).all() for run in runs):
            named = path.with_name(f"{path.name}-{combined}")
            figures += loss_figure(runs, named, combined)
    return figures


FIGURES = {
    "figure-6": PaperFigure(
        "regression",
        ("nonparametric", "nonparametric:paper", "mixture", "uniform", "maml"),
        loss_figures,
    ),
    "figure-7": PaperFigure("regression", ("nonparametric",), responsibility_figure),
    "figure-8": PaperFigure(
        "evolving-images",
        (
            *("nonparametric", "task-aware", "nonparametric:paper", "task-aware:paper"),
            *("mixture", "uniform", "maml", "mt-net", "platipus", "versa"),
        ),
        loss_figures,
    ),
    "figure-9": PaperFigure("evolving-images", ("nonparametric",), responsibility_figure),
}
"""Figures that show runs, by their numbers in the paper; ``reporting.drawn`` has the others."""
TABLE_METHODS = (
    *("matching", "matching-simple", "meta-lstm", "prototypical", "maml", "fomaml"),
    *("mt-net", "t-net", "platipus", "versa", "llama"),
    *("mixture:2", "mixture:3", "mixture:4", "mixture:5", "nonparametric"),
)


@dataclasses.dataclass(frozen=True)
class Training:
    """What all of these can be told of how to train.

    Parameters
    ----------
    seeds
        One run of each method per seed.
    settings
        How often runs are evaluated; None for what the experiment says.
    keeping
        How often checkpoints are written.
    workers
        Processes to share methods and seeds out to.
    quiet
        Whether to say nothing while training.

    Examples
    --------
    >>> Training(seeds=(10, 11)).workers
    1
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    settings: Settings | None = None
    keeping: Keeping = Keeping()
    workers: int = 1
    quiet: bool = True

    def plan(self, methods: Sequence[str], on: Experiment, name: str) -> ComparisonPlan:
        """A comparison that is trained so; whatever is wrong is said here."""
        return planned(
            methods,
            on,
            self.seeds,
            self.settings,
            self.keeping,
            self.workers,
            self.quiet,
            name,
        )


@dataclasses.dataclass(frozen=True)
class Reproduced:
    """What was trained and drawn.

    Parameters
    ----------
    comparisons
        By experiment or number of shots, as ``comparison.json`` has them.
    figures
        Pictures that were drawn.
    results
        Of each stress stream, which criteria were reached.

    Examples
    --------
    >>> Reproduced({}, ()).results
    ()
    """

    comparisons: Mapping[Any, Mapping[str, Any]]
    figures: Sequence[Path]
    results: Sequence[StressResult] = ()


def figure_plan(
    name: str, training: Training, experiment: Experiment | None = None
) -> ComparisonPlan:
    """What a figure of the paper compares; nothing is trained or written yet."""
    if name not in FIGURES:
        raise unknown("figure", name, FIGURES)
    figure = FIGURES[name]
    on = default_experiment(figure.experiment) if experiment is None else experiment
    return training.plan(figure.methods, on, figure.experiment)


def trained_figure(name: str, plan: ComparisonPlan, out: Path, request: Request) -> Reproduced:
    """Train, or go on, and draw."""
    comparison = plan.train(out, request)
    figures = FIGURES[name].draw(read_runs(out), inside(out, "figures") / name)
    return Reproduced({plan.name: comparison}, figures)


def reproduce_figure(
    name: str,
    out: str | Path | None = None,
    training: Training | None = None,
    experiment: Experiment | None = None,
) -> Reproduced:
    """Train what a figure of the paper compares, and draw it.

    Parameters
    ----------
    name
        ``figure-6``, ``figure-7``, ``figure-8`` or ``figure-9``.
    out
        Folder to create, or to go on in; ``runs/NAME`` unless it is given.
    training
        Seeds, workers and the like.
    experiment
        That of the figure with other settings; by default as in the paper.

    Returns
    -------
    Reproduced
        The comparison and the paths of the figure.

    Examples
    --------
    >>> reproduce_figure("figure-3")
    Traceback (most recent call last):
    ValueError: There is no figure 'figure-3'. Did you mean ...
    """
    training = training or Training()
    plan = figure_plan(name, training, experiment)
    return trained_figure(name, plan, _folder(out, name), request_for(training.workers))


def table_plans(
    shots: Sequence[int], training: Training, experiment: Any = None
) -> dict[int, ComparisonPlan]:
    """A comparison per number of shots."""
    if not shots or len(set(shots)) != len(shots):
        raise ValueError(f"shots are {list(shots)}; name at least one, and each once.")
    on: Any = default_experiment("few-shot") if experiment is None else experiment
    return {
        shot: training.plan(TABLE_METHODS, dataclasses.replace(on, shot=shot), "few-shot")
        for shot in shots
    }


def trained_table(plans: Mapping[int, ComparisonPlan], out: Path, request: Request) -> Reproduced:
    """Train, or go on, in a folder per number of shots."""
    return Reproduced(
        {shot: plan.train(inside(out, f"{shot}-shot"), request) for shot, plan in plans.items()},
        (),
    )


def reproduce_table(
    out: str | Path | None = None,
    shots: Sequence[int] = (1, 5),
    training: Training | None = None,
    experiment: Any = None,
) -> Reproduced:
    """Train what table 1 of the paper compares, once for each number of shots.

    Parameters
    ----------
    out
        Folder to create, or to go on in; ``runs/table-1`` unless it is given.
    shots
        Support images per class: a column of the table each.
    training
        Seeds, workers and the like.
    experiment
        A ``FewShot`` with other settings; its own number of shots is not used.

    Returns
    -------
    Reproduced
        A comparison per number of shots.

    Examples
    --------
    >>> reproduce_table(shots=[5, 5])
    Traceback (most recent call last):
    ValueError: shots are [5, 5]; name at least one, and each once.
    """
    training = training or Training()
    plans = table_plans(shots, training, experiment)
    return trained_table(plans, _folder(out, "table-1"), request_for(training.workers))


@dataclasses.dataclass(frozen=True)
class StressPlans:
    """Streams with the comparison that each of them asks for."""

    streams: Mapping[str, StressStream]
    plans: Mapping[str, ComparisonPlan]

    def train(self, out: Path, request: Request) -> Reproduced:
        """Train, or go on; what is known is written after every stream."""
        outcomes: dict[str, list[Outcome]] = {}
        results: list[StressResult] = []
        figures: list[Path] = []
        comparisons = {}
        for name, plan in self.plans.items():
            comparisons[name] = plan.train(inside(out, name), request)
            ended = read_outcomes(out / name)
            outcomes[name] = [one for one in ended if one.seed in plan.seeds]
            results.append(_result(self.streams[name], outcomes))
            # Of one seed, since clusters of two are not the same ones.
            picture = inside(out, "figures") / name
            figures += responsibility_figure(read_runs(out / name / OURS)[:1], picture)
            write_json(out / "stress.json", stress_json(results))
            replace(out / "stress.md", stress_markdown(results).encode())
        figures += stress_figure(results, inside(out, "figures") / "overview")
        return Reproduced(comparisons, figures, results)


def stress_plans(streams: Sequence[str], scale: Scale, training: Training) -> StressPlans:
    """A comparison per stream; those that are stationary take the first three seeds."""
    found = chosen(streams)
    return StressPlans(
        found,
        {
            name: dataclasses.replace(training, seeds=training.seeds[: one.most_seeds]).plan(
                one.methods, StressExperiment.at(scale, one.stream), f"stress-{name}"
            )
            for name, one in found.items()
        },
    )


def reproduce_stress(
    out: str | Path | None = None,
    streams: Sequence[str] = (),
    scale: Scale = "full",
    training: Training | None = None,
) -> Reproduced:
    """Train on streams of every kind, and say which of the criteria are reached.

    Parameters
    ----------
    out
        Folder to create, or to go on in; ``runs/stress`` unless it is given.
    streams
        Names of streams, as results/stress/README.md lists them; all if there are none.
    scale
        ``small``: a fifth of the length, to see that all works.
    training
        Seeds, workers and the like.

    Returns
    -------
    Reproduced
        Comparisons, figures and results, a result per stream.

    Examples
    --------
    >>> reproduce_stress(streams=["quiet"])
    Traceback (most recent call last):
    ValueError: There is no stress stream 'quiet'. Choose from paper, ...
    """
    training = training or Training(seeds=SEEDS)
    plans = stress_plans(streams, scale, training)
    return plans.train(_folder(out, "stress"), request_for(training.workers))


def _result(stress: StressStream, outcomes: Mapping[str, Sequence[Outcome]]) -> StressResult:
    own = outcomes[stress.name]
    return StressResult(
        stress.name,
        stress.point,
        tuple(outcome.seed for outcome in own if outcome.method == OURS),
        sum(outcome.seconds for outcome in own) / 60,
        tuple(verdicts(stress.name, outcomes)),
    )


def _folder(out: str | Path | None, name: str) -> Path:
    return Path("runs", name) if out is None else Path(out)
