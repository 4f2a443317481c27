"""``taskmix compare``: several methods, several seeds, one stream."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console

from taskmix.cli.flags import first_argument, parse
from taskmix.cli.output import console_for, show
from taskmix.cli.settings import chosen_experiment, with_experiment
from taskmix.experiments import (
    EXPERIMENTS,
    Experiment,
    build_learner,
    compare,
    method,
    methods_for,
    run_method,
)
from taskmix.experiments.methods import learner_class
from taskmix.experiments.summary import Summary
from taskmix.learner import Learner
from taskmix.report import loss_figure, read_runs, responsibility_figure
from taskmix.training import Settings
from taskmix.training.loop import check_seeds
from taskmix.training.run_folder import claim, write_json

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"


@dataclasses.dataclass(frozen=True)
class SeveralFlags:
    """What every command that trains several methods can be told."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """One run of each method per seed, trained side by side."""
    out: Path | None = None
    """Folder to create for the results (default: runs/NAME)."""
    workers: int = 1
    """Processes to share methods and seeds out to; one a core is best."""
    quiet: bool = False
    """Say nothing while training."""


@dataclasses.dataclass(frozen=True)
class CompareFlags(SeveralFlags):
    """Train several methods on the same stream."""

    methods: tuple[str, ...] = ()
    """Some of those that `taskmix methods` lists; NAME:paper for a paper's own rule, and
    mixture:4 for four components (default: all that can do the experiment)."""


def main(arguments: Sequence[str]) -> None:
    name = first_argument(arguments, "experiment", EXPERIMENTS, "taskmix compare")
    asked_for = with_experiment(CompareFlags, chosen_experiment(name, arguments[1:]))
    flags: Any = parse(asked_for, arguments[1:], f"taskmix compare {name}")
    out = flags.out or Path("runs", f"compare-{name}")
    methods = flags.methods or methods_for(flags.experiment.learner_settings()["likelihood"])
    comparison = compare_methods(name, methods, flags, out)
    show(Console(), comparison, out, draw(out, methods))


def compare_methods(
    experiment: str, methods: Sequence[str], flags: Any, out: Path
) -> dict[str, Any]:
    """Train every method on every seed and write what came out.

    ``flags`` are ``SeveralFlags`` with an experiment.
    """
    if not methods or len(set(methods)) != len(methods):
        raise ValueError(f"--methods is {list(methods)}; name at least one, and each once.")
    if flags.workers < 1:
        raise ValueError(f"--workers is {flags.workers}; it must be at least 1.")
    settings = flags.experiment.learner_settings()
    learners = {name: variant(name, settings) for name in methods}
    check_seeds(flags.seeds)
    # Whatever is wrong with the stream is said before the folder exists.
    flags.experiment.stream()
    claim(out)
    # Only what a worker process can be sent: the class of the flags is made on the spot.
    console = partial(console_for, flags.quiet, plain=flags.workers > 1)
    train = partial(_train, experiment, flags.experiment, flags.training, out, console)
    groups = [flags.seeds[first :: flags.workers] for first in range(flags.workers)]
    jobs = [(name, seeds) for name in learners for seeds in groups if seeds]
    if flags.workers == 1:
        summaries = [train(name, learners[name], seeds) for name, seeds in jobs]
    else:
        with _pool(flags.workers) as pool:
            each = [pool.submit(train, name, learners[name], seeds) for name, seeds in jobs]
            summaries = [job.result() for job in each]
    told = {name: learner.told.value for name, learner in learners.items()}
    comparison = compare(experiment, told, chain.from_iterable(summaries))
    write_json(out / "comparison.json", comparison)
    return comparison


def variant(name: str, settings: Mapping[str, Any]) -> Learner:
    """``nonparametric:paper`` is the paper's rule of a method, ``mixture:4`` has 4 components."""
    base, _, kind = name.partition(":")
    if not kind.isdigit():
        return build_learner(method(base).rule(kind or "ours"), settings, {})
    build = method(base).build
    if "components" not in {field.name for field in dataclasses.fields(learner_class(build))}:
        raise ValueError(f"{base} has no number of components; leave {kind} out of {name}.")
    return build_learner(build, settings, {"components": int(kind)})


def _train(
    label: str,
    experiment: Experiment,
    training: Settings,
    out: Path,
    console: Callable[[], Console],
    name: str,
    learner: Learner,
    seeds: Sequence[int],
) -> list[Summary]:
    labels = {"experiment": label, "method": name}
    folder = partial(_folder, out / name.replace(":", "-"))
    return run_method(experiment, labels, learner, seeds, folder, training, console())


def _pool(workers: int) -> ProcessPoolExecutor:
    # Spawned, because a process that has used JAX must not be forked.
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_one_thread)


def _one_thread() -> None:
    """A worker has one core to itself; threads of its own would only contend for it."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD}"


def _folder(parent: Path, seed: int) -> Path:
    return parent / f"seed-{seed}"


def draw(out: Path, methods: Sequence[str]) -> list[Path]:
    """Errors of all methods in one figure, responsibilities in one figure a method."""
    runs = read_runs(out)
    figures = list(loss_figure(runs, out / "figures" / runs[0].measure))
    for name in methods:
        own = [run for run in runs if run.method == name]
        path = out / "figures" / f"responsibilities-{name.replace(':', '-')}"
        figures += responsibility_figure(own, path)
    return figures
