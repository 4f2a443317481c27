"""One learner on one stream: the shortest way from both to something that predicts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from taskmix.evaluation import further_measures
from taskmix.experiments.catalogue import Source, experiment_of
from taskmix.experiments.experiment import Experiment
from taskmix.experiments.group import Keeping, shapes_of
from taskmix.experiments.run import run_method, warm_start
from taskmix.experiments.sharing import Predictor, newest_checkpoint
from taskmix.experiments.summary import Summary, summarise
from taskmix.experiments.variants import variant
from taskmix.learner import Growing, Learner, State
from taskmix.likelihood import reported
from taskmix.streams import Stream, Until
from taskmix.training import Chunk, Record, Settings, TrainingProgress, train
from taskmix.training.checkpoints import from_arrays
from taskmix.training.moments import check_seeds
from taskmix.training.placement import Placement
from taskmix.training.programs import first_state
from taskmix.training.watch import Request


@dataclasses.dataclass(frozen=True)
class Fitted:
    """What a learner came to, once per seed.

    Examples
    --------
    >>> import taskmix as tm
    >>> learner = tm.MAML(tm.MLP(hidden=(4,)), adaptation=tm.Adaptation(steps=1))
    >>> fitted = tm.fit(learner, tm.streams.regression(("linear",), (3,), tasks=2))
    >>> fitted.predictor().predict([[0.0], [1.0]], [[0.0], [2.0]], [[3.0]]).mean.shape
    (1, 1)
    """

    learner: Learner
    """What was trained."""
    seeds: tuple[int, ...]
    """One run per seed."""
    summaries: tuple[Summary, ...]
    """Of each seed, as ``summary.json`` has it."""
    facts: Mapping[str, Any]
    """Families of the stream, and shapes of its examples."""
    read: Callable[[int], State] = dataclasses.field(repr=False)
    """The state of a seed, by its place; a run folder is read when somebody asks."""
    folder: Path | None = None
    """Where the run was written, or all of them; None if nothing was kept."""

    @cached_property
    def states(self) -> tuple[State, ...]:
        """Of each seed, after the last iteration."""
        return tuple(self.read(place) for place in range(len(self.seeds)))

    def predictor(self, seed: int | None = None) -> Predictor:
        """What one seed has learned, ready to predict.

        Parameters
        ----------
        seed
            One of ``seeds``; the first if none is named.

        Returns
        -------
        Predictor
            Whose ``predict`` takes arrays.
        """
        if seed is not None and seed not in self.seeds:
            raise ValueError(f"seed is {seed}; there are {', '.join(map(str, self.seeds))}.")
        place = 0 if seed is None else self.seeds.index(seed)
        return Predictor(self.learner, self.states[place], self.facts)

    def report(self, path: str | Path | None = None) -> Path:
        """Write a report, one HTML file.

        Parameters
        ----------
        path
            File to write; by default ``report.html`` in the folder of the run.

        Returns
        -------
        Path
            The file.
        """
        from taskmix.reporting.report import report

        if self.folder is None:
            raise ValueError("Nothing was kept to report on; call fit with out=FOLDER.")
        return report(self.folder, path)


def fit(
    learner: Learner | str,
    on: Source,
    seeds: Sequence[int] = (0,),
    iterations: int | None = None,
    out: str | Path | None = None,
    *,
    settings: Settings | None = None,
    keeping: Keeping | None = None,
    labels: Mapping[str, str] | None = None,
    quiet: bool = True,
    request: Request | None = None,
    stream: Stream | None = None,
    devices: int = 1,
) -> Fitted:
    """Train a learner on a stream, once per seed.

    Parameters
    ----------
    learner
        A learner, or the name of a method, perhaps with settings (``"mixture:4"``).
    on
        A stream, an experiment, or the name of one.
    seeds
        They decide the stream, the initialisation and the test tasks; all are trained side by
        side.
    iterations
        Batches to learn from; None for the whole stream.
    out
        Run folder to create, or to go on in: of the seed, if there is one only, or else with a
        folder per seed. Nothing is kept without one.
    settings
        How often the run is evaluated, and on how many tasks.
    keeping
        How often checkpoints are written.
    labels
        What tables call the run: ``experiment`` and ``method``.
    quiet
        Whether to say nothing while training.
    request
        Something that can ask the run to stop in good order.
    stream
        That of the experiment, if it has been built already: images are read once.
    devices
        How many share the work, of all processes together; 0 for all there are. Results are the
        same up to rounding.

    Returns
    -------
    Fitted
        Final states and summaries, in the order of the seeds.

    Examples
    --------
    >>> import taskmix as tm
    >>> stream = tm.streams.regression(("linear", "step"), (6, 6), tasks=2)
    >>> learner = tm.MAML(tm.MLP(hidden=(4,)), adaptation=tm.Adaptation(steps=1))
    >>> fitted = tm.fit(learner, stream, seeds=[0, 1], iterations=4)
    >>> [summary["iterations"] for summary in fitted.summaries]
    [4, 4]
    """
    check_seeds(seeds)
    name, experiment = experiment_of(on)
    method = learner if isinstance(learner, str) else type(learner).__name__
    if isinstance(learner, str):
        learner = variant(learner, experiment.shared())
    labels = {"experiment": name, "method": method, **(labels or {})}
    stream = stream or experiment.stream()
    if iterations is not None:
        stream = Until(stream, iterations)
    settings = settings or experiment.training()
    facts = {**labels, "families": list(stream.families), "example": shapes_of(stream)}
    console = Console(quiet=quiet)
    if out is None:
        placement = Placement(devices, len(seeds))
        states, summaries = _in_memory(
            experiment, learner, stream, seeds, settings, labels, console, placement
        )
        read = states.__getitem__
    else:
        folders = _folders(Path(out), seeds)
        summaries = run_method(
            experiment,
            labels,
            learner,
            list(seeds),
            folders.__getitem__,
            settings,
            console,
            keeping,
            request,
            stream,
            further_measures(),
            devices,
        )
        read = partial(_kept, learner, stream, [folders[seed] for seed in seeds])
    kept = None if out is None else Path(out)
    return Fitted(learner, tuple(seeds), tuple(summaries), facts, read, kept)


def _folders(out: Path, seeds: Sequence[int]) -> dict[int, Path]:
    return {seed: out if len(seeds) == 1 else out / f"seed-{seed}" for seed in seeds}


def _in_memory(
    experiment: Experiment,
    learner: Learner,
    stream: Stream,
    seeds: Sequence[int],
    settings: Settings,
    labels: Mapping[str, str],
    console: Console,
    placement: Placement,
) -> tuple[list[State], list[Summary]]:
    """States and summaries of a run that leaves no trace."""
    records = [
        Record.begin(stream.families, stream.phases, position) for position in range(len(seeds))
    ]
    progress = TrainingProgress(console, labels["method"], seeds, stream.phases[-1].stop)

    def observe(chunk: Chunk) -> None:
        for record in records:
            record.add(chunk)
        progress.update(chunk)

    with progress:
        warm = warm_start(experiment, stream, learner, seeds, progress.tell)
        stacked = train(learner, stream, seeds, settings, observe, placement=placement, warm=warm)
    states = [
        jax.tree.map(lambda leaf, place=place: leaf[place], stacked) for place in range(len(seeds))
    ]
    measure, grows = reported(learner.likelihood), isinstance(learner, Growing)
    further = further_measures()
    return states, [
        {**labels, "seed": seed, **summarise(record, stream.phases, measure, further, grows)}
        for seed, record in zip(seeds, records, strict=True)
    ]


def _kept(learner: Learner, stream: Stream, folders: Sequence[Path], place: int) -> State:
    """The state at a run's last checkpoint, which is that of its end."""
    arrays = newest_checkpoint(folders[place]).arrays
    state = from_arrays(learner, first_state(learner, stream), arrays, "state")
    return jax.tree.map(jax.numpy.asarray, state)
