"""Several methods on several seeds of one stream, and what came out of them."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console

from taskmix.evaluation import Measure, further_measures
from taskmix.experiments.catalogue import Source, experiment_of
from taskmix.experiments.experiment import Experiment
from taskmix.experiments.group import Keeping
from taskmix.experiments.launching import Launcher, Where, launched
from taskmix.experiments.run import run_method
from taskmix.experiments.summary import Summary, combined
from taskmix.experiments.variants import folder_name, variant
from taskmix.files import inside, write_json
from taskmix.learner import Learner
from taskmix.streams import Stream
from taskmix.training import Settings
from taskmix.training.moments import check_seeds
from taskmix.training.watch import Request
from taskmix.training.workers import Job, request_for, shared_out

Methods = Sequence[str] | Mapping[str, "str | Learner"]
"""Names, or what each label in tables stands for: a name or a learner."""


class Comparison(dict[str, Any]):
    """What ``comparison.json`` holds, and where it was written.

    Examples
    --------
    >>> Comparison({"methods": {}}).report()
    Traceback (most recent call last):
    ValueError: Nothing was kept to report on; call compare with out=FOLDER.
    """

    folder: Path | None = None

    def report(self, path: str | Path | None = None) -> Path:
        """Write a report, one HTML file; by default ``report.html`` in the folder."""
        from taskmix.reporting.report import report

        if self.folder is None:
            raise ValueError("Nothing was kept to report on; call compare with out=FOLDER.")
        return report(self.folder, path)


def compare(
    methods: Methods,
    on: Source,
    seeds: Sequence[int] = (0, 1, 2),
    out: str | Path | None = None,
    *,
    settings: Settings | None = None,
    keeping: Keeping | None = None,
    workers: int = 1,
    quiet: bool = True,
    launcher: Where | Launcher = "here",
) -> Comparison:
    """Train several methods on the same stream, once per seed, and compare them.

    Parameters
    ----------
    methods
        Names as ``taskmix methods`` lists them, perhaps with settings
        (``"mixture:4"``, ``"maml:meta_rate=0.01"``); or, by the label that tables are to show,
        such names or learners.
    on
        A stream, an experiment, or the name of one.
    seeds
        One run per method and seed; the seeds of a method are trained side by side.
    out
        Folder for the runs, to be created, or to go on in; nothing is kept without one.
    settings
        How often runs are evaluated, and on how many tasks.
    keeping
        How often checkpoints are written.
    workers
        Processes to share methods and seeds out to; with a launcher, jobs at a time.
    quiet
        Whether to say nothing while training.
    launcher
        ``"local"`` or ``"slurm"`` for a job per method, with all its seeds side by side, on this
        machine or on those of SLURM; or a ``Launcher`` with its settings. ``out`` must then be a
        folder that all machines see. A job that dies is begun anew. The results are those of
        one process.

    Returns
    -------
    Comparison
        A dictionary with what ``comparison.json`` holds: every summary, and per method means
        over its seeds with intervals; ``report`` writes a page about it.

    Examples
    --------
    >>> import taskmix as tm
    >>> stream = tm.streams.regression(("linear",), (4,), tasks=2)
    >>> found = tm.compare(["alpaca", "alpaca:meta_rate=0.1"], stream, seeds=[0])
    >>> list(found["methods"])
    ['alpaca', 'alpaca:meta_rate=0.1']
    """
    who = launcher if isinstance(launcher, Launcher) else Launcher(launcher)
    if who.launcher != "here" and out is None:
        raise ValueError("launcher needs out, a folder that the jobs can see; give one.")
    plan = planned(methods, on, seeds, settings, keeping, workers, quiet, launcher=who)
    request = request_for(workers)
    if out is not None:
        found = Comparison(plan.train(Path(out), request))
        found.folder = Path(out)
        return found
    with tempfile.TemporaryDirectory() as folder:
        return Comparison(plan.train(Path(folder), request))


@dataclasses.dataclass(frozen=True)
class ComparisonPlan:
    """Methods and seeds to be trained; everything that can be wrong with them has been checked."""

    name: str
    """Of the experiment."""
    experiment: Experiment
    learners: Mapping[str, Learner]
    seeds: Sequence[int]
    settings: Settings
    keeping: Keeping
    workers: int
    quiet: bool
    stream: Stream
    """That of the experiment, built once; workers build their own, as images are large."""
    further: Sequence[Measure] = ()
    launcher: Launcher = Launcher()

    def train(self, out: Path, request: Request) -> dict[str, Any]:
        """Train every method on every seed and write what came out.

        Runs that have ended are left as they are, those that were interrupted go on.
        """
        elsewhere = self.launcher.launcher != "here"
        alone = self.workers == 1 or elsewhere
        labels = {"experiment": self.name}
        console = partial(Console, quiet=self.quiet, force_terminal=None if alone else False)
        work = partial(_trained, labels, self.experiment, self.settings, self.keeping, out, console)
        work = partial(work, further=self.further)
        if elsewhere:
            # When the jobs have ended, so have all runs; what follows only reads them.
            launched(self._jobs(work, 1), self.launcher, self.workers, out, request)
        if alone:
            jobs = self._jobs(partial(work, stream=self.stream), 1)
            summaries = [job.work(request) for job in jobs]
        else:
            summaries = shared_out(self._jobs(work, self.workers), self.workers, request)
        told = {name: learner.told.value for name, learner in self.learners.items()}
        comparison = combined(self.name, told, chain.from_iterable(summaries), self.further)
        write_json(out / "comparison.json", comparison)
        return comparison

    def _jobs(self, work: Callable[..., Any], parts: int) -> list[Job]:
        """One per method and part of the seeds, which are trained side by side."""
        groups = [self.seeds[first::parts] for first in range(parts)]
        return [
            Job(f"{name}, seeds {' '.join(map(str, seeds))}", partial(work, name, one, seeds))
            for name, one in self.learners.items()
            for seeds in groups
            if seeds
        ]


def planned(
    methods: Methods,
    on: Source,
    seeds: Sequence[int] = (0, 1, 2),
    settings: Settings | None = None,
    keeping: Keeping | None = None,
    workers: int = 1,
    quiet: bool = True,
    name: str | None = None,
    launcher: Launcher | None = None,
) -> ComparisonPlan:
    """Whatever is wrong is said here, before any folder exists.

    ``name`` is what tables call the experiment, if it is to be another than its own.
    """
    if not methods or len(set(methods)) != len(methods):
        raise ValueError(f"methods are {list(methods)}; name at least one, and each once.")
    if workers < 1:
        raise ValueError(f"workers is {workers}; it must be at least 1.")
    own_name, experiment = experiment_of(on)
    shared = experiment.shared()
    labelled = methods if isinstance(methods, Mapping) else {one: one for one in methods}
    learners = {
        label: variant(one, shared) if isinstance(one, str) else one
        for label, one in labelled.items()
    }
    folders = [folder_name(label) for label in learners]
    if len(set(folders)) < len(folders) or any("/" in folder for folder in folders):
        raise ValueError(f"methods are {list(learners)}; their labels must make different folders.")
    check_seeds(seeds)
    return ComparisonPlan(
        name or own_name,
        experiment,
        learners,
        list(seeds),
        settings or experiment.training(),
        keeping or Keeping(),
        workers,
        quiet,
        experiment.stream(),
        further_measures(),
        launcher or Launcher(),
    )


def _trained(
    labels: Mapping[str, Any],
    experiment: Experiment,
    settings: Settings,
    keeping: Keeping,
    out: Path,
    console: Any,
    name: str,
    learner: Learner,
    seeds: Sequence[int],
    request: Request,
    stream: Stream | None = None,
    further: Sequence[Measure] = (),
) -> list[Summary]:
    """A job of a comparison: one method, some seeds."""
    return run_method(
        experiment,
        {**labels, "method": name},
        learner,
        seeds,
        partial(_folder, out, folder_name(name)),
        settings,
        console(),
        keeping,
        request,
        stream,
        further,
    )


def _folder(out: Path, method: str, seed: int) -> Path:
    return inside(out, method, f"seed-{seed}")
